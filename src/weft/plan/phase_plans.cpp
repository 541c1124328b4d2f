#include "weft/plan/phase_plans.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/models/hf_names.h"

namespace weft {
namespace {

bool same_size(const Recipe& a, const Recipe& b) {
  return a.parallel == b.parallel && a.train.objective == b.train.objective && a.objective == b.objective &&
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

std::vector<PlannedSpan> on_this_layout(const std::vector<PlannedSpan>& spans, const Recipe& recipe) {
  std::vector<PlannedSpan> here;
  for (const PlannedSpan& span : spans)
    if (span.span.layout_from == layout_from(recipe)) here.push_back(span);
  return here;
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

namespace {

// What of the model is another one's, where the objective has other heads.
std::string heads_text(const PlannedSpan& before, const PlannedSpan& span) {
  if (!changes_heads(before.span.recipe, span.span.recipe)) return "";
  const ModelSpec &then = before.layout->run.model, &now = span.layout->run.model;
  std::string text;
  if (const auto begun = trained_only_in(now, then); !begun.empty())
    text += fmt::format("; begins {} anew", fmt::join(begun, ", "));
  if (const auto dropped = trained_only_in(then, now); !dropped.empty())
    text += fmt::format("; drops {}", fmt::join(dropped, ", "));
  return text;
}

}  // namespace

std::string to_string(const std::vector<PlannedSpan>& spans) {
  std::string text;
  for (size_t i = 0; i < spans.size(); ++i) {
    const PlannedSpan& s = spans[i];
    text += fmt::format("{}; {:.2f} MiB on {}{}\n", to_string(s.span), double(bytes_of(s)) / kMiB,
                        s.layout->run.step.mesh.world() > 1 ? "the largest rank" : "the rank",
                        i == 0 ? "" : heads_text(spans[i - 1], s));
  }
  return text;
}

}  // namespace weft
