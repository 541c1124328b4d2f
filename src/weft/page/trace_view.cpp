#include "weft/page/trace_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/page/followed_file.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kMostTrace = 64 << 20;  // bytes
constexpr size_t kMostTraceRows = 4096, kMostSlices = 400'000, kMostTraceNames = 20'000;
constexpr size_t kRanksWhole = 16;  // of so many, all tracks are told at once
constexpr size_t kSlicesTold = 24'000, kMostTraceColumns = 800, kLeastTraceColumns = 40;
constexpr JsonLimits kTraceLineLimits{.max_bytes = 4096, .max_depth = 4};

std::string stamp_of(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) return "-";
  return fmt::format("{}:{}", size, fs::last_write_time(file, error).time_since_epoch().count());
}

}  // namespace

TraceView::TraceView(fs::path run) : file_(std::move(run) / "trace.json") {}

void TraceView::read() {
  const std::string stamp = stamp_of(file_);
  if (stamp == stamp_) return;
  stamp_ = stamp;
  step_ = bad_lines_ = 0;
  ended_us_ = 0;
  names_.clear(), kinds_.clear(), rows_.clear(), ranks_.clear(), problem_.clear();
  const std::string text = read_plain(file_, kMostTrace, problem_);
  size_t slices = 0;
  for (size_t at = 0; at < text.size() && slices < kMostSlices; ++slices) {
    const size_t end = std::min(text.find('\n', at), text.size());
    take(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  for (auto& [row, all] : rows_) {
    std::stable_sort(all.begin(), all.end(), [](const Slice& a, const Slice& b) { return a.began_us < b.began_us; });
    if (ranks_.empty() || ranks_.back() != row.first) ranks_.push_back(row.first);
  }
  if (bad_lines_ > 0 && rows_.empty()) problem_ = "trace.json: has no events, an event a line, as weft train writes it";
}

// An event is a line, perhaps with a comma behind it.
void TraceView::take(std::string_view line) {
  if (line.ends_with(',')) line.remove_suffix(1);
  if (!line.starts_with("{\"") || line.starts_with("{\"traceEvents")) return;
  try {
    const nlohmann::json json = parse_json(line, "trace.json", kTraceLineLimits);
    const JsonFields event(json, "trace.json");
    const nlohmann::json* args = event.find("args");
    if (event.string("ph") == "M") {
      if (event.string("name") == "step") step_ = event.object("args").integer("step", {.min = 0});
      return;
    }
    if (event.string("ph") != "X") return;
    constexpr double kLongestUs = 1e12;
    const double began = event.number("ts", {.min = 0, .max = kLongestUs}),
                 lasted = event.number("dur", {.min = 0, .max = kLongestUs});
    const std::pair row{event.integer("pid", {.min = 0}), event.integer("tid", {.min = 0})};
    const bool has_room = names_.size() < kMostTraceNames && kinds_.size() < kMostTraceNames;
    if (!has_room || (rows_.size() >= kMostTraceRows && rows_.count(row) == 0)) throw FileError("too many");
    rows_[row].push_back({.began_us = began,
                          .lasted_us = lasted,
                          .name = number_of(names_, event.string("name")),
                          .kind = number_of(kinds_, event.string("cat")),
                          .micro_batch = args != nullptr && args->contains("micro_batch")
                                             ? event.object("args").integer("micro_batch", {.min = 0})
                                             : -1});
    ended_us_ = std::max(ended_us_, began + lasted);
  } catch (const std::exception&) { ++bad_lines_; }
}

int32_t TraceView::number_of(Names& names, const std::string& name) {
  return names.emplace(name, int32_t(names.size())).first->second;
}

namespace {

// Slices of a row that a window shows. Those shorter than a column are told together with their neighbours, as one
// without a name.
class Thinned {
 public:
  Thinned(double from, double to, double least) : from_(from), to_(to), least_(least) {}
  template <class Slice>
  void add(const Slice& s) {
    if (s.ended_us() < from_ || s.began_us > to_) return;
    if (s.lasted_us >= least_) {
      close();
      out_.push_back({s.began_us, s.lasted_us, s.name, s.kind, s.micro_batch, 1});
      return;
    }
    const bool joins = count_ > 0 && s.began_us - ended_ < least_ && s.ended_us() - began_ < 2 * least_;
    if (!joins) close();
    if (count_++ == 0)
      began_ = s.began_us, ended_ = s.ended_us(), lasted_ = s.lasted_us, name_ = s.name, kind_ = s.kind,
      of_ = s.micro_batch;
    ended_ = std::max(ended_, s.ended_us());
  }
  Json take() {
    close();
    return std::move(out_);
  }

 private:
  void close() {
    if (count_ > 0)
      out_.push_back({began_, count_ == 1 ? lasted_ : ended_ - began_, count_ == 1 ? name_ : -1, kind_,
                      count_ == 1 ? of_ : -1, count_});
    count_ = 0;
  }
  const double from_, to_, least_;
  Json out_ = Json::array();
  double began_ = 0, ended_ = 0, lasted_ = 0;
  int32_t name_ = 0, kind_ = 0;
  int64_t of_ = 0, count_ = 0;
};

}  // namespace

Json TraceView::json(const Window& window) {
  read();
  if (rows_.empty())
    return {{"available", false},
            {"reason",
             problem_.empty() ? "a run traces a step now and then with train.trace_interval = N (steps)" : problem_}};
  const double from = std::clamp(window.from_us.value_or(0), 0.0, ended_us_);
  const double to = std::max(from, std::min(window.to_us.value_or(ended_us_), ended_us_));
  const auto is_told = [&](const std::pair<int64_t, int64_t>& row) {
    if (window.rank) return row.first == *window.rank;
    return ranks_.size() <= kRanksWhole || row.second == 0;
  };
  const auto told = size_t(std::count_if(rows_.begin(), rows_.end(), [&](const auto& r) { return is_told(r.first); }));
  const size_t columns = std::clamp(kSlicesTold / std::max<size_t>(told, 1), kLeastTraceColumns, kMostTraceColumns);
  Json rows = Json::array(), names = Json::array(), kinds = Json::array();
  std::map<int32_t, size_t> used;  // names, and their numbers in the answer
  for (const auto& [row, all] : rows_) {
    if (!is_told(row)) continue;
    Thinned thinned(from, to, (to - from) / double(columns));
    for (const Slice& s : all) thinned.add(s);
    Json slices = thinned.take();
    for (Json& s : slices)
      if (s[2] >= 0) s[2] = used.emplace(s[2].get<int32_t>(), used.size()).first->second;
    rows.push_back({{"rank", row.first}, {"track", row.second}, {"slices", std::move(slices)}});
  }
  names.get_ref<Json::array_t&>().resize(used.size());
  for (const auto& [name, number] : names_)
    if (const auto at = used.find(number); at != used.end()) names[at->second] = name;
  kinds.get_ref<Json::array_t&>().resize(kinds_.size());
  for (const auto& [kind, number] : kinds_) kinds[size_t(number)] = kind;
  return {{"available", true}, {"step", step_},  {"ranks", ranks_}, {"end_us", ended_us_}, {"from_us", from},
          {"to_us", to},       {"names", names}, {"kinds", kinds},  {"rows", rows}};
}

}  // namespace weft
