#include "weft/plan/layout_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "weft/plan/rank_classes.h"
#include "weft/plan/recompute_budget.h"

namespace weft {
namespace {

auto memory_of(const MemoryPlan& p) {
  std::vector<std::tuple<std::string, int64_t, int64_t>> rows;
  for (const MemoryPlan::Row& row : p.rows()) rows.emplace_back(row.name, row.count, row.bytes_each);
  return rows;
}

bool same_memory(const RankClass& a, const RankClass& b) { return memory_of(a.plan) == memory_of(b.plan); }

// Adds it to those of the same tensor-parallel ranks, or makes it one of its own.
void add_stage(std::vector<RankClass>& classes, RankClass c, bool same_traffic) {
  const auto alike = [&](const RankClass& k) {
    return k.tp_ranks == c.tp_ranks && same_memory(k, c) && (!same_traffic || k.plan.traffic == c.plan.traffic);
  };
  const auto known = std::find_if(classes.begin(), classes.end(), alike);
  if (known == classes.end()) return classes.push_back(std::move(c));
  known->stages.insert(known->stages.end(), c.stages.begin(), c.stages.end());
  known->ranks.insert(known->ranks.end(), c.ranks.begin(), c.ranks.end());
  known->num_ranks += c.num_ranks;
}

void add_places(std::vector<RankClass>& classes, RankClass c, bool same_traffic) {
  const auto known = std::find_if(classes.begin(), classes.end(), [&](const RankClass& k) {
    return same_memory(k, c) && (!same_traffic || k.plan.traffic == c.plan.traffic);
  });
  if (known == classes.end()) return classes.push_back(std::move(c));
  std::vector<int> both;
  std::set_union(known->tp_ranks.begin(), known->tp_ranks.end(), c.tp_ranks.begin(), c.tp_ranks.end(),
                 std::back_inserter(both));
  known->tp_ranks = std::move(both);
  known->ranks.insert(known->ranks.end(), c.ranks.begin(), c.ranks.end());
  known->num_ranks += c.num_ranks;
}

// The classes of ranks `tp` of all stages.
std::vector<RankClass> stage_classes(const Recipe& recipe, const RunPlan& run, const std::vector<int>& tp,
                                     const WorkspaceModel& workspace) {
  const MeshSizes& mesh = run.step.mesh;
  std::vector<RankClass> classes;
  struct Measured {
    StepSpec step;
    MemoryPlan plan;
  };
  std::map<int, Measured> stage_before;  // [place]
  for (int stage = 0; stage < mesh.pp; ++stage) {
    const auto step_at = [&](int place) { return step_of(recipe, run, rank_at_place(mesh, stage, place)); };
    std::vector<RankClass> of_stage;
    for (const Places& places : update_classes(recipe, run, step_at(tp[0]), tp)) {
      std::set<int> tp_ranks;
      std::vector<int> ranks;
      for (const int place : places) {
        tp_ranks.insert(place % mesh.tp);
        ranks.push_back(rank_at_place(mesh, stage, place));
      }
      const StepSpec step = step_at(places[0]);
      Measured& last = stage_before[places[0]];
      if (!runs_alike(run.model, last.step, step))
        last.plan = measure_memory(run.model, step, *run.optimizer, workspace);
      last.step = step;
      add_places(of_stage,
                 {.stages = {stage},
                  .tp_ranks = {tp_ranks.begin(), tp_ranks.end()},
                  .ranks = std::move(ranks),
                  .rank = step.rank,
                  .num_ranks = int64_t(places.size()),
                  .plan = last.plan},
                 !run.step.order.unequal.empty());
    }
    for (RankClass& c : of_stage) add_stage(classes, std::move(c), recipe.optimizer.name != OptimizerKind::muon);
  }
  return classes;
}

}  // namespace

LayoutPlan plan_layout(const Recipe& given, const WorkspaceModel& workspace) {
  LayoutPlan all{.run = prepare_run(given, 0), .classes = {}};
  Recipe recipe = given;
  recipe.parallel.pipeline_layout = block_layout_of(given, all.run.model);  // found once, not for each stage
  settle_recompute(recipe, all.run, workspace);
  const Arithmetic arithmetic = measure_arithmetic(all.run.model, all.run.step, *all.run.optimizer, workspace);
  for (const std::vector<int>& tp : tp_classes(all.run)) {
    std::vector<RankClass> classes = stage_classes(recipe, all.run, tp, workspace);
    std::move(classes.begin(), classes.end(), std::back_inserter(all.classes));
  }
  for (RankClass& c : all.classes) {
    c.plan.arithmetic = arithmetic;
    std::sort(c.ranks.begin(), c.ranks.end());
  }
  std::stable_sort(all.classes.begin(), all.classes.end(),
                   [](const RankClass& a, const RankClass& b) { return a.plan.total_bytes() > b.plan.total_bytes(); });
  all.run.memory = all.classes[0].plan;
  all.run.step = step_of(recipe, all.run, all.classes[0].rank);
  return all;
}

namespace {

// "0-3,5"
std::string runs_text(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::string to_string(const RankClass& c, const MeshSizes& sizes) {
  if (c.num_ranks == sizes.world())
    return sizes.world() == 1 ? "the only rank" : fmt::format("every one of {} ranks", sizes.world());
  std::string which;
  if (sizes.pp > 1) which = fmt::format("stage{} {}", c.stages.size() > 1 ? "s" : "", runs_text(c.stages));
  if (int(c.tp_ranks.size()) < sizes.tp)
    which += fmt::format("{}tp {}", which.empty() ? "" : ", ", runs_text(c.tp_ranks));
  const int64_t all = int64_t(c.stages.size() * c.tp_ranks.size()) * sizes.dp * sizes.cp;
  const std::string some = c.num_ranks < all ? fmt::format(" of {}", all) : "";
  const std::string ranks = c.num_ranks == 1 && some.empty()
                                ? fmt::format("rank {}", c.rank)
                                : fmt::format("{}{} ranks, as rank {}", c.num_ranks, some, c.rank);
  return which.empty() ? ranks : fmt::format("{} ({})", which, ranks);
}

std::string summary_of(const LayoutPlan& plan) {
  const MeshSizes& mesh = plan.run.step.mesh;
  size_t width = 5;
  for (const RankClass& c : plan.classes) width = std::max(width, to_string(c, mesh).size());
  std::string text = fmt::format("{:<{}} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}\n", "MiB", width, "parameters",
                                 "gradients", "state", "activations", "other", "total");
  for (const RankClass& c : plan.classes) {
    const auto& p = c.plan.persistent;
    int64_t activations = c.plan.replay;
    for (const MemoryPlan::Chunk& k : c.plan.chunks)
      activations += k.slots.till_dgrad * k.till_dgrad + k.slots.till_wgrad * k.till_wgrad +
                     k.slots.dgrad_till_wgrad * k.dgrad_till_wgrad;
    const int64_t total = c.plan.total_bytes(), other = total - p.params - p.grads - p.states - activations;
    text += fmt::format("{:<{}}", to_string(c, mesh), width);
    for (int64_t bytes : {p.params, p.grads, p.states, activations, other, total})
      text += fmt::format(" {:>12.2f}", double(bytes) / kMiB);
    text += "\n";
  }
  return text;
}

std::string to_string(const Traffic& traffic) {
  if (traffic.counts().empty()) return "";
  std::string text = fmt::format("{:<32} {:<42} {:>6} {:>14} {:>14}\n", "communication of a step",
                                 "sent by the rank, in a ring of its axis", "calls", "MiB each", "MiB");
  for (const auto& [what, count] : traffic.counts()) {
    const auto& [axis, kind] = what;
    text += fmt::format("{:<32} {:<42} {:>6} {:>14.2f} {:>14.2f}\n", axis, name_of(kind), count.calls,
                        double(count.bytes) / double(count.calls) / kMiB, double(count.bytes) / kMiB);
  }
  return text +
         fmt::format("{:<32} {:<42} {:>6} {:>14} {:>14.2f}\n", "total", "", "", "", double(traffic.bytes()) / kMiB);
}

}  // namespace weft
