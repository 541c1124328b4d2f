#include "weft/plan/layout_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "weft/sharding/whole_matrices.h"

namespace weft {
namespace {

using Shapes = std::vector<std::pair<int64_t, int64_t>>;

// What a tensor-parallel rank holds of one of each kind of block, and of the tables.
void add_shapes(const ModelSpec& model, const LayerPlan& plan, RankOf tp, Shapes& shapes) {
  ModelSpec small = model;
  small.layers.clear();
  for (const LayerSpec& layer : model.layers)
    if (std::find(small.layers.begin(), small.layers.end(), layer) == small.layers.end()) small.layers.push_back(layer);
  small.num_layers = std::min(small.num_layers, std::max<int64_t>(1, int64_t(small.layers.size())));
  ParamStore store(kF32, {});
  const Transformer declared(store, small, {.layers = plan});
  for (const Param* p : store.params(ParamStore::Copies::with))
    for (const HeldPart& part : held_parts(p->spec(), {.tp = tp}))
      shapes.emplace_back(part.rows.count, part.cols.count);
}

// What tensor-parallel ranks hold of a block and the tables: where that is equal, so is all that follows from it.
std::vector<std::vector<int>> tp_classes(const RunPlan& run) {
  std::map<Shapes, std::vector<int>> by_shapes;
  for (int r = 0; r < run.step.mesh.tp; ++r) {
    Shapes shapes;
    add_shapes(run.model, run.step.model.layers, {run.step.mesh.tp, r}, shapes);
    if (const auto& teacher = run.step.teacher)
      add_shapes(teacher->frozen.model, teacher->frozen.plan.layers, {run.step.mesh.tp, r}, shapes);
    by_shapes[shapes].push_back(r);
  }
  std::vector<std::vector<int>> classes;
  for (auto& [shapes, ranks] : by_shapes) classes.push_back(std::move(ranks));
  std::sort(classes.begin(), classes.end());
  return classes;
}

auto memory_of(const MemoryPlan& p) {
  std::vector<std::tuple<std::string, int64_t, int64_t>> rows;
  for (const MemoryPlan::Row& row : p.rows()) rows.emplace_back(row.name, row.count, row.bytes_each);
  return rows;
}

using Places = std::vector<int>;  // dp x cp x tp, tp innermost

// What optimizer state takes on the ranks of a stage: found once for each set of shards and rank of tp and ep.
class StatesOfStage {
 public:
  StatesOfStage(const RunPlan& run, const StepSpec& step) : run_(run), step_(step) {}
  ParamStore::StateBytes at(MeshPlace place) {
    place.pp = place_of(step_.mesh, step_.rank).pp;
    const ProcessMesh mesh = dry_mesh(step_.mesh, rank_at(step_.mesh, place));
    GradientOrder order = step_.order;
    order.rank = place.dp;
    std::vector<int64_t> key;
    for (const ReplicaSet set : kReplicaSets) {
      const CutRanks cut = replica_group(mesh, set, order).cut();
      key.insert(key.end(), {cut.tp.rank, cut.ep.rank});
    }
    std::unique_ptr<ParamStore>& store = stores_[key];
    if (!store) {
      store = std::make_unique<ParamStore>(step_.precision, order, mesh);
      const Transformer declared(*store, run_.model, step_.model);
    }
    for (const ReplicaSet set : kReplicaSets)
      key.push_back(member_at(step_.mesh, place, set) % step_.mesh.shards_of(set));
    const auto [known, is_new] = bytes_.try_emplace(key);
    if (is_new) known->second = store->state_bytes(run_.optimizer->formats(), place);
    return known->second;
  }

 private:
  const RunPlan& run_;
  const StepSpec& step_;
  std::map<std::vector<int64_t>, std::unique_ptr<ParamStore>> stores_;  // [tp, ep]
  std::map<std::vector<int64_t>, ParamStore::StateBytes> bytes_;        // [tp, ep, the shard of each set]
};

// What decides over a rank's memory, beside its stage and what it holds of matrices.
enum class Update : uint8_t { alike, of_whole_matrices, of_codes };
Update update_of(const Recipe& recipe) {
  if (recipe.optimizer.name == OptimizerKind::muon) return Update::of_whole_matrices;
  return recipe.optimizer.name == OptimizerKind::adamw8bit ? Update::of_codes : Update::alike;
}

// Groups the places of these tensor-parallel ranks by memory that is the same for certain. Where an optimizer updates
// whole matrices, they are those that keep as much state, and to which matrices of the same shapes fall; where its
// state is codes, those that touch as many code blocks.
std::vector<Places> update_classes(const RunPlan& run, const StepSpec& step, const std::vector<int>& tp,
                                   Update update) {
  const int num_tp = step.mesh.tp, members = step.mesh.replicas(ReplicaSet::dense);
  if (update == Update::alike) {
    Places places;
    for (int member = 0; member < members; ++member)
      for (const int t : tp) places.push_back(member * num_tp + t);
    return {places};
  }
  ParamStore store(kF32, step.order, dry_mesh(step.mesh, step.rank));
  const Transformer declared(store, run.model, step.model);
  std::vector<std::vector<WholeMatrix>> groups;
  if (update == Update::of_whole_matrices)
    for (const ReplicaGroup* group : store.groups()) groups.push_back(whole_matrices(store, *group));
  StatesOfStage states(run, step);
  std::map<std::pair<Shapes, ParamStore::StateBytes>, Places> alike;
  for (int member = 0; member < members; ++member) {
    MeshPlace at = place_of_member(step.mesh, {}, ReplicaSet::dense, member);
    for (const int t : tp) {
      at.tp = t;
      Shapes shapes;
      for (size_t g = 0; g < groups.size(); ++g) {
        const ReplicaSet set = store.groups()[g]->set;
        const int owner = member_at(step.mesh, at, set) * num_tp + t, owners = step.mesh.replicas(set) * num_tp;
        for (const WholeMatrix& m : matrices_of(groups[g], owner, owners))
          shapes.emplace_back(m.rows.count, m.cols.count);
      }
      alike[{shapes, states.at(at)}].push_back(member * num_tp + t);
    }
  }
  std::vector<Places> classes;
  for (auto& [what, places] : alike) classes.push_back(std::move(places));
  std::sort(classes.begin(), classes.end());
  return classes;
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
  known->num_ranks += c.num_ranks;
}

void add_places(std::vector<RankClass>& classes, RankClass c) {
  const auto known =
      std::find_if(classes.begin(), classes.end(), [&](const RankClass& k) { return same_memory(k, c); });
  if (known == classes.end()) return classes.push_back(std::move(c));
  std::vector<int> both;
  std::set_union(known->tp_ranks.begin(), known->tp_ranks.end(), c.tp_ranks.begin(), c.tp_ranks.end(),
                 std::back_inserter(both));
  known->tp_ranks = std::move(both);
  known->num_ranks += c.num_ranks;
}

// Whether two stages have the same blocks of a model, and nothing else of it.
bool have_alike(const ModelSpec& model, const TransformerPlan& a, const TransformerPlan& b) {
  if (a.parts.size() != 1 || b.parts.size() != 1) return false;
  const ModelPart &x = a.parts[0], &y = b.parts[0];
  if (x.embedding || x.head || y.embedding || y.head || x.blocks.count != y.blocks.count) return false;
  for (int64_t i = 0; i < x.blocks.count; ++i)
    if (model.layer(x.blocks.first + i) != model.layer(y.blocks.first + i)) return false;
  return true;
}

// Does a stage do the same list of actions over the same blocks, so that its ranks hold and send the same.
bool runs_alike(const ModelSpec& model, const StepSpec& a, const StepSpec& b) {
  if (!have_alike(model, a.model, b.model)) return false;
  if (a.teacher && !have_alike(a.teacher->frozen.model, a.teacher->frozen.plan, b.teacher->frozen.plan)) return false;
  return a.schedule == b.schedule;
}

// The classes of ranks `tp` of all stages.
std::vector<RankClass> stage_classes(const Recipe& recipe, const RunPlan& run, const std::vector<int>& tp,
                                     const WorkspaceModel& workspace) {
  const MeshSizes& mesh = run.step.mesh;
  const Update update = update_of(recipe);
  std::vector<RankClass> classes;
  struct Measured {
    StepSpec step;
    MemoryPlan plan;
  };
  std::map<int, Measured> stage_before;  // [place]
  for (int stage = 0; stage < mesh.pp; ++stage) {
    const auto step_at = [&](int place) {
      const MeshPlace there{.dp = 0, .pp = stage, .cp = 0, .tp = place % mesh.tp};
      return step_of(recipe, run.model, rank_at(mesh, place_of_member(mesh, there, ReplicaSet::dense, place / mesh.tp)),
                     run.config.teacher.get());
    };
    std::vector<RankClass> of_stage;
    for (const Places& places : update_classes(run, step_at(tp[0]), tp, update)) {
      std::set<int> tp_ranks;
      for (const int place : places) tp_ranks.insert(place % mesh.tp);
      const StepSpec step = step_at(places[0]);
      Measured& last = stage_before[places[0]];
      if (!runs_alike(run.model, last.step, step))
        last.plan = measure_memory(run.model, step, *run.optimizer, workspace);
      last.step = step;
      add_places(of_stage, {.stages = {stage},
                            .tp_ranks = {tp_ranks.begin(), tp_ranks.end()},
                            .rank = step.rank,
                            .num_ranks = int64_t(places.size()),
                            .plan = last.plan});
    }
    for (RankClass& c : of_stage) add_stage(classes, std::move(c), update != Update::of_whole_matrices);
  }
  return classes;
}

}  // namespace

LayoutPlan plan_layout(const Recipe& given, const WorkspaceModel& workspace) {
  LayoutPlan all{.run = prepare_run(given, 0), .classes = {}};
  Recipe recipe = given;
  recipe.parallel.pipeline_layout = block_layout_of(given, all.run.model);  // found once, not for each stage
  const Arithmetic arithmetic = measure_arithmetic(all.run.model, all.run.step, *all.run.optimizer, workspace);
  for (const std::vector<int>& tp : tp_classes(all.run)) {
    std::vector<RankClass> classes = stage_classes(recipe, all.run, tp, workspace);
    std::move(classes.begin(), classes.end(), std::back_inserter(all.classes));
  }
  for (RankClass& c : all.classes) c.plan.arithmetic = arithmetic;
  std::stable_sort(all.classes.begin(), all.classes.end(),
                   [](const RankClass& a, const RankClass& b) { return a.plan.total_bytes() > b.plan.total_bytes(); });
  all.run.memory = all.classes[0].plan;
  all.run.step = step_of(recipe, all.run.model, all.classes[0].rank, all.run.config.teacher.get());
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
