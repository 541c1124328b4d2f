#include "weft/plan/rank_classes.h"

#include <algorithm>
#include <map>
#include <memory>
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

}  // namespace

std::vector<std::vector<int>> tp_classes(const RunPlan& run) {
  std::map<Shapes, std::vector<int>> by_shapes;
  for (int r = 0; r < run.step.mesh.tp; ++r) {
    Shapes shapes;
    add_shapes(run.model, run.step.model.layers, {run.step.mesh.tp, r}, shapes);
    if (const auto& teacher = run.step.teacher; teacher && !teacher->apart)
      add_shapes(teacher->frozen.model, teacher->frozen.plan.layers, {run.step.mesh.tp, r}, shapes);
    by_shapes[shapes].push_back(r);
  }
  std::vector<std::vector<int>> classes;
  for (auto& [shapes, ranks] : by_shapes) classes.push_back(std::move(ranks));
  std::sort(classes.begin(), classes.end());
  return classes;
}

namespace {

// What optimizer state takes on the ranks of a stage: found once for each set of shards and rank of tp and ep.
class StatesOfStage {
 public:
  StatesOfStage(const RunPlan& run, const StepSpec& step) : run_(run), step_(step) {}
  ParamStore::StateBytes at(MeshPlace place) {
    place.pp = place_of(step_.mesh, step_.rank).pp;
    const ProcessMesh mesh = dry_mesh(step_.mesh, rank_at(step_.mesh, place));
    const GradientOrder order = step_.order.of_rank(place.dp);
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
enum class UpdateKind : uint8_t { alike, of_whole_matrices, of_codes };
UpdateKind update_of(const Recipe& recipe) {
  if (recipe.optimizer.name == OptimizerKind::muon) return UpdateKind::of_whole_matrices;
  return recipe.optimizer.name == OptimizerKind::adamw8bit ? UpdateKind::of_codes : UpdateKind::alike;
}

}  // namespace

namespace {

// Splits each class by what a teacher with axes of its own has on these ranks: its stage, what it holds of matrices,
// and whether its largest logits are found there.
std::vector<Places> split_by_teacher(const std::vector<Places>& classes, const StepSpec& step) {
  const StepSpec& own = *step.teacher->apart;
  const ModelSpec& model = step.teacher->frozen.model;
  const int stage = place_of(step.mesh, step.rank).pp;
  std::vector<Shapes> shapes(size_t(own.mesh.tp));
  for (int r = 0; r < own.mesh.tp; ++r)
    add_shapes(model, step.teacher->frozen.plan.layers, {own.mesh.tp, r}, shapes[size_t(r)]);
  std::vector<Places> split;
  for (const Places& places : classes) {
    std::map<std::tuple<int, bool, Shapes>, Places> alike;
    for (const int place : places) {
      const MeshPlace at = place_of(own.mesh, rank_at_place(step.mesh, stage, place));
      alike[{at.pp, at.tp == 0, shapes[size_t(at.tp)]}].push_back(place);
    }
    for (auto& [what, of_class] : alike) split.push_back(std::move(of_class));
  }
  std::sort(split.begin(), split.end());
  return split;
}

// Splits each class by how many micro-batches its ranks have.
std::vector<Places> split_by_micro_batches(std::vector<Places> classes, const StepSpec& step) {
  const std::vector<int64_t>& shares = step.order.unequal;
  if (shares.empty()) return classes;
  std::vector<Places> split;
  for (const Places& places : classes) {
    std::map<int64_t, Places> alike;
    for (const int place : places)
      alike[shares[size_t(place_of(step.mesh, rank_at_place(step.mesh, 0, place)).dp)]].push_back(place);
    for (auto& [count, of_class] : alike) split.push_back(std::move(of_class));
  }
  std::sort(split.begin(), split.end());
  return split;
}

std::vector<Places> student_classes(const Recipe& recipe, const RunPlan& run, const StepSpec& step,
                                    const std::vector<int>& tp) {
  const UpdateKind update = update_of(recipe);
  const int num_tp = step.mesh.tp, members = step.mesh.replicas(ReplicaSet::dense);
  if (update == UpdateKind::alike) {
    Places places;
    for (int member = 0; member < members; ++member)
      for (const int t : tp) places.push_back(member * num_tp + t);
    return {places};
  }
  ParamStore store(kF32, step.order, dry_mesh(step.mesh, step.rank));
  const Transformer declared(store, run.model, step.model);
  std::vector<std::vector<WholeMatrix>> groups;
  if (update == UpdateKind::of_whole_matrices)
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

}  // namespace

std::vector<Places> update_classes(const Recipe& recipe, const RunPlan& run, const StepSpec& step,
                                   const std::vector<int>& tp) {
  std::vector<Places> classes = split_by_micro_batches(student_classes(recipe, run, step, tp), step);
  return step.teacher && step.teacher->apart ? split_by_teacher(classes, step) : classes;
}

int rank_at_place(const MeshSizes& mesh, int stage, int place) {
  const MeshPlace there{.dp = 0, .pp = stage, .cp = 0, .tp = place % mesh.tp};
  return rank_at(mesh, place_of_member(mesh, there, ReplicaSet::dense, place / mesh.tp));
}

namespace {

BlockRecompute again_of(const TransformerPlan& plan, int64_t block) {
  return plan.recompute.empty() ? BlockRecompute::none : plan.recompute[size_t(block)];
}

// Whether two stages have the same blocks of a model, and nothing else of it, and compute the same of them again.
bool have_alike(const ModelSpec& model, const TransformerPlan& a, const TransformerPlan& b) {
  if (a.parts.size() != 1 || b.parts.size() != 1) return false;
  const ModelPart &x = a.parts[0], &y = b.parts[0];
  if (x.embedding || x.head || y.embedding || y.head || x.blocks.count != y.blocks.count) return false;
  for (int64_t i = 0; i < x.blocks.count; ++i) {
    const int64_t k = x.blocks.first + i, l = y.blocks.first + i;
    if (model.layer(k) != model.layer(l) || again_of(a, k) != again_of(b, l)) return false;
  }
  return true;
}

}  // namespace

bool runs_alike(const ModelSpec& model, const StepSpec& a, const StepSpec& b) {
  if (b.teacher && b.teacher->apart) return false;  // its ranks are others than the stages'
  if (!have_alike(model, a.model, b.model)) return false;
  if (a.teacher && !have_alike(a.teacher->frozen.model, a.teacher->frozen.plan, b.teacher->frozen.plan)) return false;
  return a.schedule == b.schedule;
}

}  // namespace weft
