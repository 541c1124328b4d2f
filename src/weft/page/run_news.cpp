#include "weft/page/run_news.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFewSteps = 16, kLeastBefore = 48;

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Tokens a second of the last steps and of those before; zeros where too few were recorded.
struct Speeds {
  double now = 0, usual = 0;
};
Speeds speeds_of(const RunView& run) {
  const auto curve = run.metrics().curves().find("tokens_per_s");
  if (curve == run.metrics().curves().end()) return {};
  std::vector<double> values;
  for (const CurvePoint& p : curve->second.newest)
    if (std::isfinite(p.value)) values.push_back(p.value);
  if (values.size() < kFewSteps + kLeastBefore) return {};
  const auto last = values.end() - kFewSteps;
  return {.now = median({last, values.end()}), .usual = median({values.begin(), last})};
}

bool is_slow(const Speeds& speeds) { return speeds.now < 0.5 * speeds.usual; }

bool tells_a_state(const std::string& kind) { return kind == "finished" || kind == "stopped"; }

// Files may hold anything by these names.
std::string text_of(const Json& event, const char* name) {
  const auto at = event.find(name);
  return at != event.end() && at->is_string() ? at->get<std::string>() : "";
}

// "first: spike at step 12: loss 9.5, median 2" of an event.
std::string sentence_of(const Json& event) {
  std::string text = fmt::format("{}: {}", text_of(event, "run"), text_of(event, "event"));
  if (const auto step = event.find("step"); step != event.end() && step->is_number())
    text += fmt::format(" at step {}", step->dump());
  std::string more = text_of(event, "reason");
  for (const auto& [name, value] : event.items()) {
    if (name == "event" || name == "run" || name == "path" || name == "time" || name == "step" || name == "reason")
      continue;
    if (value.is_structured() || value.is_null()) continue;
    more += fmt::format("{}{} {}", more.empty() ? "" : ", ", name,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return more.empty() ? text : text + ": " + more;
}

}  // namespace

const std::vector<std::string>& RunNews::all_kinds() {
  static const std::vector<std::string> kinds{"running",
                                              "stalled",
                                              "finished",
                                              "stopped",
                                              "failed",
                                              "lost",
                                              "unfinished",
                                              "unreadable",
                                              "away",
                                              "slow",
                                              "started",
                                              "ended",
                                              "fleet",
                                              "layout",
                                              "waiting",
                                              "queued",
                                              "placed",
                                              "yielding",
                                              "reclaimed",
                                              "nonfinite",
                                              "large_update",
                                              "weight_growth",
                                              "vanished_gradient",
                                              "spike",
                                              "corrupted",
                                              "replayed",
                                              "autotuned",
                                              "crash",
                                              "hang",
                                              "straggler",
                                              "straggler_over",
                                              "rebalance",
                                              "local_saved",
                                              "local_save_failed",
                                              "local_unheld",
                                              "local_taken",
                                              "local_passed_over",
                                              "local_neighbour"};
  return kinds;
}

const std::vector<std::string>& RunNews::urgent_kinds() {
  static const std::vector<std::string> kinds{"stalled",       "finished",          "stopped",     "failed",
                                              "lost",          "unreadable",        "slow",        "waiting",
                                              "spike",         "nonfinite",         "corrupted",   "large_update",
                                              "weight_growth", "vanished_gradient", "straggler",   "crash",
                                              "hang",          "local_save_failed", "local_unheld"};
  return kinds;
}

RunNews::RunNews(std::vector<std::string> kinds) : kinds_(kinds.begin(), kinds.end()) {
  const std::vector<std::string>& all = all_kinds();
  for (const std::string& kind : kinds_)
    if (std::find(all.begin(), all.end(), kind) == all.end())
      throw ConfigError(fmt::format("{}: no event has this name; there are {}", in_quotes(kind), fmt::join(all, ", ")));
}
RunNews::~RunNews() = default;

void RunNews::look(const RunView& run) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = seen_.try_emplace(run.facts().path);
  Seen& seen = at->second;
  if (is_new || seen.state.empty()) {  // until all that was there is read, it is as if it had always been so
    if (run.has_more()) return;
    seen = {.state = run.state(),
            .num_events = run.num_events(),
            .step = run.metrics().last_step(),
            .is_slow = is_slow(speeds_of(run))};
    return;
  }
  tell_events(run, seen);
  tell_speed(run, seen);
  tell_state(run, seen);
}

void RunNews::tell_state(const RunView& run, Seen& seen) {
  if (run.state() == seen.state) return;
  Json event{{"event", run.state()}, {"was", seen.state}, {"step", run.step()}};
  if (!run.reason().empty()) event["reason"] = run.reason();
  seen.state = run.state();
  tell(run, std::move(event));
}

void RunNews::tell_events(const RunView& run, Seen& seen) {
  if (run.num_events() != seen.num_events) {
    const Json last = run.events();
    const int64_t all = std::max<int64_t>(0, run.num_events() - seen.num_events);
    const int64_t came = std::min(all, int64_t(last.size()));  // RunView keeps so many
    num_left_out_ += all - came;
    for (size_t i = last.size() - size_t(came); i < last.size(); ++i)
      if (last[i].is_object() && !tells_a_state(text_of(last[i], "event"))) tell(run, last[i]);
  }
  seen.num_events = run.num_events();
}

void RunNews::tell_speed(const RunView& run, Seen& seen) {
  const int64_t step = run.metrics().last_step();
  if (step == std::exchange(seen.step, step)) return;
  const Speeds speeds = speeds_of(run);
  if (seen.is_slow ? speeds.now >= 0.75 * speeds.usual : is_slow(speeds)) {
    seen.is_slow = !seen.is_slow;
    if (!seen.is_slow) return;
    tell(run, {{"event", "slow"},
               {"step", step},
               {"tokens_per_s", speeds.now},
               {"usual_tokens_per_s", speeds.usual},
               {"reason", fmt::format("its last {} steps had {:.0f} tokens/s, of the {:.0f} that are usual", kFewSteps,
                                      speeds.now, speeds.usual)}});
  }
}

void RunNews::tell(const RunView& run, Json event) {
  if (kinds_.count(text_of(event, "event")) == 0) return;
  if (waiting_.size() >= kMostWaiting) {
    ++num_left_out_;
    return;
  }
  event["run"] = run.name();
  event["path"] = run.facts().path;
  if (!event.contains("time")) event["time"] = wall_time_s();
  event["text"] = sentence_of(event);
  waiting_.push_back(std::move(event));
}

Json RunNews::take() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return nullptr;
  Json first = std::move(waiting_.front());
  waiting_.pop_front();
  return first;
}

int64_t RunNews::num_left_out() const {
  const std::lock_guard lock(mutex_);
  return num_left_out_;
}

}  // namespace weft
