#include "weft/page/live_page.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/base/error.h"
#include "weft/base/host_name.h"
#include "weft/base/json.h"
#include "weft/base/version.h"
#include "weft/page/page_files.h"
#include "weft/page/prometheus.h"
#include "weft/page/run_json.h"
#include "weft/page/traffic_map.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kReadAtOnce = 1 << 20;  // bytes of a file
constexpr double kMostReadingS = 0.5;     // of one answer, while the others wait
constexpr size_t kMostNames = 64;
constexpr double kLongestTraceUs = 1e15;
constexpr int64_t kMostStepNumber = int64_t(1) << 53;

// A request that cannot be answered, and with which status.
class PageError : public Error {
 public:
  PageError(int of, const std::string& what) : Error(what), status(of) {}
  int status;
};

std::string text_of_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

PageAnswer error_answer(int status, const std::string& what) {
  return {.status = status, .body = text_of_json({{"error", what}})};
}

int64_t whole_number(const LivePage::Params& params, const std::string& key, int64_t fallback, int64_t least,
                     int64_t most) {
  const auto at = params.find(key);
  if (at == params.end() || at->second.empty()) return fallback;
  int64_t value = 0;
  const char* const end = at->second.data() + at->second.size();
  const auto [stopped, error] = std::from_chars(at->second.data(), end, value);
  if (error != std::errc() || stopped != end || value < least || value > most)
    throw PageError(
        400, fmt::format("{}: expected a whole number from {} to {}, got {}", key, least, most, in_quotes(at->second)));
  return value;
}

std::vector<std::string> names_in(const LivePage::Params& params, const RunView& run) {
  const auto [first, end] = params.equal_range("names");
  if (first == end) throw PageError(400, "names: expected names of curves, with commas between: names=loss,lr");
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  const bool is_list = std::next(first) == end && run.metrics().curves().count(first->second) == 0;
  for (auto at = first; at != end && !is_list; ++at) add(at->second);
  std::string_view rest = is_list ? std::string_view(first->second) : std::string_view();
  while (!rest.empty()) {
    const std::string name(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    add(name);
  }
  if (names.size() > kMostNames) throw PageError(400, fmt::format("names: at most {} at once", kMostNames));
  return names;
}

// Of kMapKinds.
size_t map_kind(const LivePage::Params& params) {
  const auto at = params.find("of");
  if (at == params.end()) return 0;
  std::string known;
  for (size_t i = 0; i < kMapKinds.size(); ++i) {
    if (kMapKinds[i].key == at->second) return i;
    known += fmt::format("{}{}", i == 0 ? "" : i + 1 == kMapKinds.size() ? " or " : ", ", kMapKinds[i].key);
  }
  throw PageError(400, fmt::format("of: expected {}, got {}", known, in_quotes(at->second)));
}

constexpr std::string_view kNoPage =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>weft</title></head><body>\n"
    "<h1>weft</h1>\n<p>The page was not built: esbuild was missing when weft was built. Install it (scripts/install) "
    "and build anew.</p>\n"
    "<p>What it would show is here all the same: <a href=\"/api/runs\">/api/runs</a>, "
    "<a href=\"/api/run?run=0\">/api/run?run=0</a>, <a href=\"/metrics\">/metrics</a>.</p>\n</body></html>\n";

std::optional<PageAnswer> file_answer(const std::string& path) {
  for (const PageFile& file : page_files())
    if (file.path == path) return PageAnswer{.type = std::string(file.type), .body = std::string(file.bytes)};
  if (path == "/" && page_files().empty())
    return PageAnswer{.type = "text/html; charset=utf-8", .body = std::string(kNoPage)};
  return {};
}

}  // namespace

struct LivePage::Plan {
  Recipe recipe;
  std::string answer;
};

LivePage::LivePage(Spec spec) : spec_(std::move(spec)), machine_(spec_.machine_root), plans_(spec_.runs.size()) {
  const std::vector<std::string> names = names_of_runs(spec_.runs);
  for (size_t i = 0; i < spec_.runs.size(); ++i) runs_.push_back(std::make_unique<RunView>(spec_.runs[i], names[i]));
}
LivePage::~LivePage() = default;

PageAnswer LivePage::answer(const std::string& path, const Params& params) {
  try {
    return answer_of(path, params);
  } catch (const PageError& e) { return error_answer(e.status, e.what()); } catch (const std::exception& e) {
    return error_answer(500, e.what());
  }
}

PageAnswer LivePage::answer_of(const std::string& path, const Params& params) {
  if (auto file = file_answer(path)) return *file;
  if (path == "/api/plan") return {.body = plan_of(run_of(params))};
  if (path == "/api/run") return {.body = text_of_run(run_of(params))};
  const std::lock_guard lock(mutex_);
  if (path == "/api/machine") return {.body = text_of_json(machine())};
  refresh();
  if (path == "/metrics") {
    std::vector<const RunView*> runs;
    for (const auto& run : runs_) runs.push_back(run.get());
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = prometheus_text(runs, wall_time_s())};
  }
  if (path == "/api/runs") return {.body = text_of_json(list_of_runs())};
  if (path == "/api/names") return {.body = text_of_json(json_of_names(*runs_[run_of(params)], run_of(params)))};
  if (path == "/api/curves") return {.body = text_of_json(curves(params))};
  if (path == "/api/heat") return {.body = text_of_json(norm_map(params))};
  if (path == "/api/trace") return {.body = text_of_json(trace(params))};
  if (path == "/api/traffic") return {.body = text_of_json(traffic(params))};
  throw PageError(
      404, fmt::format("{}: there is no such page; docs/formats/page.md has those that there are", in_quotes(path)));
}

// Long files are read over several answers; each run has been looked at once behind the first.
void LivePage::refresh() {
  const double began = now_s();
  if (refreshed_s_ >= 0 && began - refreshed_s_ < spec_.refresh_each_s) return;
  const size_t at_least = refreshed_s_ < 0 ? runs_.size() : 1;
  size_t read_out = 0;  // runs, one behind the other, that have nothing more
  for (size_t looked_at = 0; read_out < runs_.size() && !stops_; ++looked_at) {
    if (looked_at >= at_least && now_s() - began > kMostReadingS) break;
    RunView& run = *runs_[next_run_];
    next_run_ = (next_run_ + 1) % runs_.size();
    if (looked_at < runs_.size() || run.has_more()) {
      run.refresh(wall_time_s(), kReadAtOnce);
      if (spec_.on_look) spec_.on_look(run);
    }
    read_out = run.has_more() ? 0 : read_out + 1;
  }
  refreshed_s_ = now_s();
}

std::string LivePage::text_of_run(size_t number) {
  std::optional<Recipe> recipe;
  if (spec_.price_per_hour) {
    const std::lock_guard lock(mutex_);
    refresh();
    recipe = runs_[number]->recipe();
  }
  // Others are answered meanwhile: a file of the user's is read.
  const std::optional<double> price = recipe ? spec_.price_per_hour(*recipe) : std::nullopt;
  const std::lock_guard lock(mutex_);
  refresh();
  return text_of_json(json_of_run(*runs_[number], number, wall_time_s(), price));
}

size_t LivePage::run_of(const Params& params) const {
  return size_t(whole_number(params, "run", 0, 0, int64_t(runs_.size()) - 1));
}

Json LivePage::list_of_runs() const {
  Json runs = Json::array();
  for (size_t i = 0; i < runs_.size(); ++i) runs.push_back(list_entry_of(*runs_[i], i));
  return {{"weft", version_of(kVersion)}, {"host", name_of_host()}, {"now", wall_time_s()}, {"runs", runs}};
}

Json LivePage::curves(const Params& params) const {
  const size_t number = run_of(params);
  const RunView& run = *runs_[number];
  const int64_t from = whole_number(params, "from", 0, 0, kMostStepNumber);
  const int64_t to = whole_number(params, "to", kMostStepNumber, 0, kMostStepNumber);
  const int64_t points = whole_number(params, "points", 1000, 4, int64_t(kMostCurvePoints));
  return json_of_curves(run, number, run.metrics().windows(names_in(params, run), from, to, size_t(points), stops_));
}

Json LivePage::norm_map(const Params& params) {
  const size_t number = run_of(params);
  RunView& run = *runs_[number];
  const int64_t from = whole_number(params, "from", 0, 0, kMostStepNumber);
  const int64_t to = whole_number(params, "to", kMostStepNumber, 0, kMostStepNumber);
  const int64_t columns = whole_number(params, "columns", 200, 1, int64_t(kMostMapColumns));
  const double began = now_s();
  NormMap& map = run.norms(map_kind(params));
  do map.poll(kReadAtOnce);
  while (map.has_more() && now_s() - began < kMostReadingS && !stops_);
  return json_of_map(run, number, map, map.columns(from, to, size_t(columns)));
}

Json LivePage::trace(const Params& params) {
  const size_t number = run_of(params);
  const auto given = [&](const char* key) -> std::optional<double> {
    const auto at = params.find(key);
    if (at == params.end() || at->second.empty()) return {};
    double value = 0;
    const char* const end = at->second.data() + at->second.size();
    if (const auto [stopped, error] = std::from_chars(at->second.data(), end, value);
        error != std::errc() || stopped != end || !(value >= 0 && value <= kLongestTraceUs))
      throw PageError(400, fmt::format("{}: expected microseconds, got {}", key, in_quotes(at->second)));
    return value;
  };
  const int64_t rank = whole_number(params, "rank", -1, 0, kMostStepNumber);
  Json out{{"run", number}, {"generation", runs_[number]->generation()}};
  out.update(runs_[number]->trace().json(
      {.from_us = given("from_us"), .to_us = given("to_us"), .rank = rank < 0 ? std::nullopt : std::optional(rank)}));
  return out;
}

Json LivePage::traffic(const Params& params) const {
  const size_t number = run_of(params);
  Json out{{"run", number}, {"generation", runs_[number]->generation()}};
  try {
    out.update(traffic_map(runs_[number]->facts().path));
  } catch (const FileError& e) { out["available"] = false, out["reason"] = e.what(); }
  return out;
}

Json LivePage::machine() {
  Json out = machine_.look(now_s());
  out["disks"] = Json::array();
  for (size_t i = 0; i < runs_.size(); ++i) {
    Json disk{{"run", i}};
    disk.update(disk_of(runs_[i]->facts().path));
    out["disks"].push_back(disk);
  }
  return out;
}

std::string LivePage::plan_of(size_t run) {
  std::optional<Recipe> recipe;
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    refresh();
    recipe = runs_[run]->recipe();
    reason = runs_[run]->reason();
  }
  const auto none = [](const std::string& why) { return text_of_json({{"available", false}, {"reason", why}}); };
  if (!recipe) return none(reason.empty() ? "its recipe cannot be read" : reason);
  if (!spec_.plan) return none("plans are not made here");
  const std::lock_guard lock(plans_mutex_);
  if (plans_[run] && plans_[run]->recipe == *recipe) return plans_[run]->answer;
  if (stops_) return none("the page ends");  // another viewer's plan was waited for
  std::string answer;
  try {
    Json plan{{"available", true}};
    plan.update(spec_.plan(*recipe, stops_));
    answer = text_of_json(plan);
  } catch (const std::exception& e) { answer = none(e.what()); }
  if (stops_) return answer;  // it may be of no whole plan
  plans_[run] = std::make_unique<Plan>(Plan{*recipe, answer});
  return answer;
}

void LivePage::look() {
  const std::lock_guard lock(mutex_);
  refresh();
}

std::string LivePage::news(int64_t& seen) {
  const std::lock_guard lock(mutex_);
  refresh();
  if (told_of_s_ != refreshed_s_) {
    told_of_s_ = refreshed_s_;
    Json runs = Json::array();
    for (size_t i = 0; i < runs_.size(); ++i) runs.push_back(stream_entry_of(*runs_[i], i));
    if (std::string told = text_of_json(runs); told != told_) {
      told_ = std::move(told);
      ++message_number_;
    }
  }
  if (seen == message_number_) return {};
  seen = message_number_;
  return fmt::format(R"({{"now":{},"runs":{}}})", Json(wall_time_s()).dump(), told_);
}

size_t LivePage::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t all = 0;
  for (const auto& run : runs_) all += run->metrics().bytes();
  return all;
}

std::vector<std::string> names_of_runs(const std::vector<fs::path>& folders) {
  std::vector<std::vector<std::string>> parts;  // from the last one on
  size_t most = 1;
  for (const fs::path& folder : folders) {
    std::error_code ignored;
    fs::path path = fs::absolute(folder, ignored).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();
    std::vector<std::string>& of = parts.emplace_back();
    for (; path.has_relative_path(); path = path.parent_path()) of.push_back(whole_utf8(path.filename().string()));
    most = std::max(most, of.size());
  }
  std::vector<std::string> names;
  for (size_t count = 1; count <= most; ++count) {
    names.clear();
    for (const auto& of : parts) {
      std::string name;
      for (size_t i = 0; i < std::min(count, of.size()); ++i) name = name.empty() ? of[i] : of[i] + "/" + name;
      names.push_back(name);
    }
    if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  }
  // One folder twice, or names that are no UTF-8 and look alike.
  for (size_t i = 0; i < names.size(); ++i) names[i] += fmt::format(" ({})", i);
  return names;
}

}  // namespace weft
