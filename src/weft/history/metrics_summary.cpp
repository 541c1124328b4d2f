#include "weft/history/metrics_summary.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/plain_file.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr size_t kLongestLine = 16 << 20;  // the loads of many experts in many layers take kilobytes

// Fields of a step that say nothing of what was reached.
constexpr std::array<std::string_view, 10> kNoResults = {"step",       "lr",        "step_time_s", "memory_bytes",
                                                         "data_s",     "phase",     "batch",       "global_batch_size",
                                                         "seq_length", "loss_scale"};
// Means over the whole run, taken line by line.
constexpr std::array<std::string_view, 4> kMeans = {"tokens_per_s", "mfu", "eval_s", "save_s"};

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  for (const std::string_view one : names)
    if (one == name) return true;
  return false;
}

// The number behind `"name":` in a line that weft wrote, without reading the rest; none where there is no such number.
std::optional<double> number_behind(std::string_view line, std::string_view name) {
  const size_t at = line.find(name);
  if (at == std::string_view::npos) return {};
  double value = 0;
  const char* const begin = line.data() + at + name.size();
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), value);
  if (error != std::errc() || end == begin || !std::isfinite(value)) return {};
  return value;
}

class Summarizer {
 public:
  void take(std::string_view line) {
    const auto step = number_behind(line, "\"step\":");
    if (line.size() < 2 || line.front() != '{' || line.back() != '}' || !step || !is_step(*step)) {
      ++sum_.damaged_lines;
      return;
    }
    if (line.find("\"eval\":") != std::string_view::npos || line.find("\"tasks\":") != std::string_view::npos)
      take_judgement(line);
    else
      take_step(line, int64_t(*step));
  }
  void pass_over() { ++sum_.damaged_lines; }
  MetricsSummary finish() {
    take_last_step();
    if (step_s_ > 0) {
      if (tokens_ > 0) sum_.results["tokens_per_s"] = {tokens_ / step_s_, sum_.last_step};
      if (mfu_s_ > 0) sum_.results["mfu"] = {mfu_s_ / step_s_, sum_.last_step};
    }
    return std::move(sum_);
  }

 private:
  static bool is_step(double number) {
    constexpr double kMost = 1e15;  // a whole number in any way of writing
    return number >= 0 && number <= kMost;
  }
  void take_step(std::string_view line, int64_t step) {
    const double took = number_behind(line, "\"step_time_s\":").value_or(0);
    ++sum_.num_records;
    sum_.last_step = step;
    step_s_ += took;
    tokens_ += took * number_behind(line, "\"tokens_per_s\":").value_or(0);
    mfu_s_ += took * number_behind(line, "\"mfu\":").value_or(0);
    sum_.busy_s +=
        took + number_behind(line, "\"eval_s\":").value_or(0) + number_behind(line, "\"save_s\":").value_or(0);
    last_ = line;
  }
  void take_judgement(std::string_view text) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    const bool is_eval = line.is_object() && line.contains("eval");
    const char* key = is_eval ? "eval" : "tasks";
    if (!line.is_object() || !line.contains(key) || !line[key].is_object() || !line.contains("step") ||
        !line["step"].is_number() || !is_step(line["step"].get<double>())) {
      ++sum_.damaged_lines;
      return;
    }
    const auto step = int64_t(line["step"].get<double>());
    for (const auto& [name, value] : line[key].items()) {
      if (!value.is_number() || (is_eval && name == "tokens")) continue;
      const double number = value.get<double>();
      if (!std::isfinite(number)) continue;
      const std::string full = is_eval ? "held_out." + name : name;
      const auto before = sum_.results.find(full);
      if (full == "held_out.loss" && before != sum_.results.end() && before->second.value <= number) continue;
      sum_.results[full] = {number, step};
    }
  }
  void take_last_step() {
    if (last_.empty()) return;
    const Json line = Json::parse(last_, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) return;
    for (const auto& [name, value] : line.items())
      if (value.is_number() && !is_one_of(name, kNoResults) && !is_one_of(name, kMeans) &&
          std::isfinite(value.get<double>()))
        sum_.results[name] = {value.get<double>(), sum_.last_step};
  }

  MetricsSummary sum_;
  double step_s_ = 0, tokens_ = 0, mfu_s_ = 0;
  std::string last_;
};

}  // namespace

MetricsSummary summarize_metrics(const fs::path& file) {
  if (!is_plain_file(file, std::numeric_limits<int64_t>::max()))
    throw FileError(fmt::format("{}: no such file", file.string()));
  std::ifstream in(file, std::ios::binary);
  if (!in) throw FileError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  Summarizer summary;
  std::vector<char> buffer(1 << 20);
  std::string begun;      // of a line that the buffer before has begun
  bool too_long = false;  // that line
  while (in) {
    in.read(buffer.data(), std::streamsize(buffer.size()));
    std::string_view rest(buffer.data(), size_t(in.gcount()));
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      const std::string_view tail = rest.substr(0, end);
      if (too_long)
        summary.pass_over();
      else if (begun.empty())
        summary.take(tail);
      else
        summary.take(begun.append(tail));
      begun.clear();
      too_long = false;
    }
    if (!too_long) begun.append(rest);
    if (begun.size() > kLongestLine) {
      too_long = true;
      begun = {};
    }
  }
  return summary.finish();
}

bool is_judged(const std::string& result) {
  for (const char* end : {"_stderr", "ratio_mean", "skipped_steps", "spikes", "logp_chosen", "logp_rejected"})
    if (result.ends_with(end)) return false;
  return true;
}

bool less_is_better(const std::string& result) {
  const std::string last = result.substr(result.rfind('.') + 1);
  for (const char* part : {"loss", "perplexity", "grad_norm", "kl", "ce", "bytes", "fraction", "toxic", "over_refused"})
    if (last == part || last.ends_with(std::string("_") + part) || last.starts_with(std::string(part) + "_"))
      return true;
  return last.ends_with("_s") && !last.ends_with("per_s");
}

}  // namespace weft
