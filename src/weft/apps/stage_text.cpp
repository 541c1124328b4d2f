#include "weft/apps/stage_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "weft/records/progress.h"

namespace weft {
namespace {

constexpr size_t kAnyWidth = 10000;  // of lines that are not for a terminal
constexpr size_t kAllReasons = 100;

int64_t sum(const std::map<std::string, int64_t>& counts) {
  int64_t all = 0;
  for (const auto& [name, n] : counts) all += n;
  return all;
}

std::string share_done(const StageProgress::View& v) {
  if (v.work <= 0) return "";
  return fmt::format(" {:.0f}%", std::floor(100 * std::min(1.0, double(v.work_done) / double(v.work))));
}

}  // namespace

std::string megabytes(double bytes) { return fmt::format("{:.1f} MB", bytes / 1e6); }

std::string most_frequent(const std::map<std::string, int64_t>& counts, size_t most, size_t width) {
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  const auto text_of = [&](size_t shown) {
    std::string text;
    for (size_t i = 0; i < shown; ++i)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", sorted[i].first, sorted[i].second);
    return text + (shown < sorted.size() ? fmt::format(", +{} more", sorted.size() - shown) : "");
  };
  for (size_t shown = std::min(most, sorted.size()); shown > 0; --shown)
    if (std::string text = text_of(shown); text.size() <= width) return text;
  return "";
}

std::string format_stage_progress(const StageProgress::View& v, double speed, size_t width) {
  const Counts& c = v.counts;
  if (!v.waits_for.empty()) return (v.stage + ": waiting for " + v.waits_for).substr(0, width);
  if (v.work_done == 0 && v.work == 0) return v.stage.substr(0, width);  // it waits
  std::vector<std::string> parts;
  const auto add = [&](std::string part) { parts.push_back(std::move(part)); };
  add(fmt::format("{}{}: {} documents", v.stage, share_done(v), c.documents_in));
  add(fmt::format("{:.1f} MB/s", speed / 1e6));
  if (speed > 0 && v.work > v.work_done) add("ETA " + format_duration(double(v.work - v.work_done) / speed));
  if (c.documents_out > 0) add(fmt::format("kept {}", c.documents_out));
  if (!c.dropped.empty()) add(fmt::format("dropped {}", sum(c.dropped)));
  std::string line;
  for (const std::string& part : parts) {
    const std::string more = (line.empty() ? "" : ", ") + part;
    if (line.size() + more.size() > width) return line.empty() ? part.substr(0, width) : line;
    line += more;
  }
  if (c.dropped.empty() || line.size() + 2 >= width) return line;
  const std::string reasons = most_frequent(c.dropped, kAllReasons, width - line.size() - 2);
  return reasons.empty() ? line : line + ": " + reasons;
}

std::string StageTeller::look(const StageProgress::View& view, double now_s, size_t width) {
  if (view.stage.empty()) return "";
  if (view.stage != stage_) {  // its speed is known from the next look on
    stage_ = view.stage;
    since_s_ = now_s;
    next_s_ = now_s + kLongStage_s;
    before_ = view.bytes;
    return "";
  }
  if (!live_ && now_s < next_s_) return "";
  next_s_ = now_s + kPlainInterval_s;
  const double elapsed_s = now_s - since_s_;
  return format_stage_progress(view, elapsed_s > 0 ? double(view.bytes - before_) / elapsed_s : 0, width);
}

std::string failure_of(const nlohmann::json& input) {
  const auto found = input.find("failure");
  return found != input.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string stage_text(const nlohmann::json& manifest, const std::filesystem::path& folder) {
  const Counts c = counts_of_json(manifest.at("counts"), "manifest.json");
  std::string text =
      fmt::format("{:<14} {:>9} in, {:>9} out, {} to {}", manifest.at("stage").get<std::string>(), c.documents_in,
                  c.documents_out, megabytes(double(c.bytes_in)), megabytes(double(c.bytes_out)));
  if (!c.dropped.empty()) text += "\n  dropped " + most_frequent(c.dropped, kAllReasons, kAnyWidth);
  if (!c.contaminated.empty())
    text += "\n  by evaluation file " + most_frequent(c.contaminated, kAllReasons, kAnyWidth);
  if (c.dropped.contains("broken"))
    text += fmt::format("\n  broken rows are in {}, with file, row, bytes and reason",
                        (folder / manifest.at("stage").get<std::string>() / "broken-*.jsonl").string());
  if (c.changed.empty()) return text + "\n";
  if (manifest.at("stage") != "tokens")
    return text + "\n  changed " + most_frequent(c.changed, kAllReasons, kAnyWidth) + "\n";
  const auto tokens = [&](const char* name) { return c.changed.contains(name) ? c.changed.at(name) : 0; };
  return text + fmt::format("\n  {} tokens to train on, {} held out\n", tokens("tokens.train"), tokens("tokens.valid"));
}

}  // namespace weft
