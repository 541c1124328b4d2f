#include "weft/train/objectives.h"

#include "weft/models/hf_weights.h"
#include "weft/models/init.h"
#include "weft/step/dpo.h"

namespace weft {

std::unique_ptr<const Objective> objective_of(const Recipe& r) {
  if (r.train.objective == ObjectiveKind::cross_entropy) return std::make_unique<NextToken>();
  const auto& o = r.objective;
  return std::make_unique<Dpo>(
      Dpo::Spec{.loss = o.loss_type == PreferenceLoss::ipo ? Dpo::Loss::ipo : Dpo::Loss::sigmoid,
                .beta = o.beta,
                .label_smoothing = o.label_smoothing,
                .average_logps = o.average_logps,
                .num_pairs = r.train.global_batch_size});
}

void start_frozen(const Recipe& recipe, RankRun& rank, int num_threads) {
  for (FrozenModel& other : rank.state.frozen) {
    if (recipe.model.init == InitChoice::pretrained)
      load_hf_weights(recipe.model.path, rank.plan.model, other.params, num_threads);
    else
      init_weights(other.params, uint64_t(recipe.train.seed), num_threads);
    other.params.masters_changed(rank.backend);
  }
}

}  // namespace weft
