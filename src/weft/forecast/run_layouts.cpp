#include "weft/forecast/run_layouts.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "weft/base/error.h"
#include "weft/forecast/run_report.h"

namespace weft {
namespace {

std::optional<int64_t> whole_in(const nlohmann::json& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_number_integer()) return {};
  return found->get<int64_t>();
}

std::string text_in(const nlohmann::json& event, const char* key) {
  const auto found = event.find(key);
  return found == event.end() || !found->is_string() ? "" : found->get<std::string>();
}

// A run goes on from its newest checkpoint in this layout.
void begin_stretch(std::vector<RunStretch>& stretches, RunStretch next) {
  while (!stretches.empty() && stretches.back().first_step >= next.first_step) stretches.pop_back();
  const bool goes_on =
      !stretches.empty() && stretches.back().ranks == next.ranks && stretches.back().layout == next.layout;
  if (!goes_on) stretches.push_back(std::move(next));
}

}  // namespace

std::vector<RunStretch> stretches_in(const std::string& events) {
  std::vector<RunStretch> stretches;
  std::string layout;   // of attempts to come
  bool is_new = false;  // it was told since the last attempt began
  std::istringstream lines(events);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object()) continue;
    const std::string name = text_in(event, "event");
    // Before `started` said it: the last that the same supervisor has told of.
    if (name == "layout") layout = text_in(event, "layout"), is_new = true;
    if (name == "stopped" || name == "finished") layout.clear();
    if (name != "started") continue;
    const auto newest = whole_in(event, "newest_step"), ranks = whole_in(event, "ranks");
    const bool is_told = std::exchange(is_new, false), is_first = whole_in(event, "attempt") == 1;
    if (event.contains("layout") || (is_first && !is_told)) layout = text_in(event, "layout");
    if (newest && ranks && *newest >= 0 && *newest < INT64_MAX)
      begin_stretch(stretches, {.first_step = *newest + 1, .ranks = *ranks, .layout = layout});
  }
  return stretches;
}

std::vector<StretchMeans> means_before(const RecordedRun& run) {
  std::vector<StretchMeans> all;
  for (size_t i = 0; i + 1 < run.stretches.size(); ++i) {
    StretchMeans m{.stretch = run.stretches[i]};
    double tokens = 0;
    bool warm = false;
    const StepRecord* first = nullptr;
    const auto add = [&](const StepRecord& s) {
      ++m.counted;
      m.step_s += s.step_time_s;
      tokens += tokens_of_step(run.recipe, s);
    };
    for (const StepRecord& s : run.metrics.steps) {
      if (s.step < m.stretch.first_step || s.step >= run.stretches[i + 1].first_step) continue;
      m.last_step = s.step;
      if (warm)
        add(s);
      else
        first = &s;
      warm = true;
    }
    if (first != nullptr && m.counted == 0) add(*first);
    if (!(m.step_s > 0)) continue;  // no step of it was kept
    m.tokens_per_s = tokens / m.step_s;
    m.step_s /= double(m.counted);
    all.push_back(m);
  }
  return all;
}

}  // namespace weft
