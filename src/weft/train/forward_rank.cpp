#include "weft/train/forward_rank.h"

#include "weft/models/hf_weights.h"
#include "weft/models/init.h"
#include "weft/plan/run_plan.h"
#include "weft/sharding/text_ranks.h"

namespace weft {
namespace {

// A batch of one micro-batch on each rank.
Recipe recipe_of(const Recipe::Parallel& layout, const ForwardShape& shape) {
  Recipe r;
  r.parallel = layout;
  r.train.seq_length = shape.seq_length;
  r.train.micro_batch_size = shape.size;
  r.train.global_batch_size = shape.size * layout.dp;
  return r;
}

}  // namespace

StepSpec forward_step(const Recipe::Parallel& layout, const ModelSpec& model, const ForwardShape& shape, int rank) {
  StepSpec step = step_of(recipe_of(layout, shape), model, rank);
  step.precision = shape.precision;
  step.schedule = {};
  step.evaluates = true;
  step.counts_experts = false;
  return step;
}

void check_forward_layout(const Recipe::Parallel& layout, const ModelSpec& model, const ForwardShape& shape) {
  check_layout(recipe_of(layout, shape), model);
}

ForwardRank::ForwardRank(const Source& source, const StepSpec& step, const MemoryPlan& plan, const Machine& machine,
                         const ProcessMesh& of_mesh)
    : RankBackend(machine, of_mesh, plan.workspace),
      arenas(std::make_shared<PersistentArenas>(plan.persistent, machine.memory)),
      params(step.precision, step.order, mesh, WeightUse::frozen),
      model(params, source.model, step.model),
      links(model, step, mesh, nullptr) {
  params.allocate_frozen(arenas->params, arenas->transit);
  model.allocate_constants(arenas->constants, step.precision);
  if (source.random_weights)
    init_weights(params, *source.random_weights, machine.threads);
  else
    read_hf_weights(source.folder, source.model, params, machine.threads);
  params.masters_changed(backend);
  if (source.reaches_experts) reach_experts();
}

void ForwardRank::reach_experts() {
  struct Shown {
    std::shared_ptr<PersistentArenas> arenas;
    std::vector<Param*> weights;
  } mine{arenas, {}};
  for (Param* w : params.params(ParamStore::Copies::with))
    if (w->spec().place.experts_are_cut()) mine.weights.push_back(w);
  backend.wait_all();
  for (const void* shown : shown_by_ranks_of_experts(mesh, &mine)) {
    const auto& [theirs, weights] = *static_cast<const Shown*>(shown);
    reached_.push_back(theirs);
    for (size_t i = 0; i < mine.weights.size(); ++i) mine.weights[i]->of_ranks.push_back(weights[i]->value);
  }
  wait_for_ranks_of_experts(mesh);
}

}  // namespace weft
