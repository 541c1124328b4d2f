// The plans of all phases of a run, before it begins.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "weft/plan/layout_plan.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {

struct PlannedSpan {
  PhaseSpan span;
  std::shared_ptr<const LayoutPlan> layout;  // that of an earlier span where steps are of the same size
};

// Throws as plan_layout, of the first phase that cannot run; its name begins the message.
std::vector<PlannedSpan> plan_phases(const Recipe& recipe, const WorkspaceModel& workspace);

// Those on the layout with which a process of this recipe begins: the others are for the processes that come after it.
std::vector<PlannedSpan> on_this_layout(const std::vector<PlannedSpan>& spans, const Recipe& recipe);

// Of the step that takes most memory on a rank.
const PlannedSpan& largest_of(const std::vector<PlannedSpan>& spans);

// Calls f(recipe of the span, its plan) for each plan once. A ConfigError gets the phase's name before its message,
// where there is more than one span.
void for_each_plan(const std::vector<PlannedSpan>& spans,
                   const std::function<void(const Recipe&, const LayoutPlan&)>& f);

// A line for each span: its steps, batch, learning rate and memory, and which weights it begins anew or drops.
std::string to_string(const std::vector<PlannedSpan>& spans);

}  // namespace weft
