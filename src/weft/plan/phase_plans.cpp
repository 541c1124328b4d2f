#include "weft/plan/phase_plans.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

bool same_size(const Recipe& a, const Recipe& b) {
  return a.train.objective == b.train.objective && a.objective == b.objective &&
         a.data.valid.empty() == b.data.valid.empty() && a.train.global_batch_size == b.train.global_batch_size &&
         a.train.micro_batch_size == b.train.micro_batch_size && a.train.seq_length == b.train.seq_length;
}

template <class F>
void named(const PhaseSpan& span, bool is_only, const F& f) {
  try {
    f();
  } catch (const ConfigError& e) {
    if (is_only) throw;
    throw ConfigError(fmt::format("{}: {}", to_string(span), e.what()));
  }
}

int64_t bytes_of(const PlannedSpan& span) { return span.layout->run.memory.total_bytes(); }

}  // namespace

std::vector<PlannedSpan> plan_phases(const Recipe& recipe, const WorkspaceModel& workspace) {
  std::vector<PlannedSpan> all;
  std::vector<PhaseSpan> spans = phase_spans(recipe);
  for (PhaseSpan& span : spans) {
    const auto like = std::find_if(all.begin(), all.end(),
                                   [&](const PlannedSpan& s) { return same_size(s.span.recipe, span.recipe); });
    std::shared_ptr<const LayoutPlan> layout;
    if (like != all.end())
      layout = like->layout;
    else
      named(span, spans.size() == 1,
            [&] { layout = std::make_shared<const LayoutPlan>(plan_layout(span.recipe, workspace)); });
    all.push_back({std::move(span), std::move(layout)});
  }
  return all;
}

const PlannedSpan& largest_of(const std::vector<PlannedSpan>& spans) {
  return *std::max_element(spans.begin(), spans.end(),
                           [](const auto& a, const auto& b) { return bytes_of(a) < bytes_of(b); });
}

void for_each_plan(const std::vector<PlannedSpan>& spans,
                   const std::function<void(const Recipe&, const LayoutPlan&)>& f) {
  for (auto at = spans.begin(); at != spans.end(); ++at) {
    const bool is_told =
        std::any_of(spans.begin(), at, [&](const PlannedSpan& before) { return before.layout == at->layout; });
    if (!is_told) named(at->span, spans.size() == 1, [&] { f(at->span.recipe, *at->layout); });
  }
}

std::string to_string(const std::vector<PlannedSpan>& spans) {
  std::string text;
  for (const PlannedSpan& s : spans)
    text += fmt::format("{}; {:.2f} MiB on {}\n", to_string(s.span), double(bytes_of(s)) / kMiB,
                        s.layout->run.step.mesh.world() > 1 ? "the largest rank" : "the rank");
  return text;
}

}  // namespace weft
