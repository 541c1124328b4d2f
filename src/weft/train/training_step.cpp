#include "weft/train/training_step.h"

#include <algorithm>
#include <cmath>

#include "weft/base/fault_point.h"
#include "weft/base/rng.h"
#include "weft/train/planted_numbers.h"

namespace weft {

TrainingStep::Result TrainingStep::run(int64_t step, int64_t batch, const Watch& watch) const {
  const int64_t skipped = loss_scale_.state.skipped_steps + (spikes_ != nullptr ? spikes_->state.skipped_steps : 0);
  const int64_t updates = step - skipped;  // the optimizer knows no other steps
  const OpenSource::Counted counted = batches_.counted(batch);
  for (const char* point : {"weights", "moment"}) plant_number(rank_.state.params, point, step);
  const double loss = run_batch(batch, counted, watch), scale = loss_scale_.state.scale;
  plant_number(rank_.state.params, watch.again ? "gradient_again" : "gradient", step);
  Result result{.targets = counted.targets,
                .loss = loss,
                .grad_norm = rank_.state.norm->wait_measure(rank_.backend) / scale,
                .lr = lr_schedule_of(recipe_).at(lr_first_step_ > 0 ? step - lr_first_step_ : updates),
                .loss_scale = scale,
                .outcome = Outcome::updated};
  result.terms = objective_.terms(rank_.executor.sums());
  if (objective_.distillation()) {
    const double divisor = objective_.divisor(batches_.units(counted));
    result.terms =
        objective_.taught_terms(rank_.executor.divergence() / divisor, rank_.executor.cross_entropy() / divisor);
  }
  if (counted.further > 0) result.mtp_loss = rank_.executor.mtp_loss() / double(counted.further);
  if (const RouterRecords* routers = rank_.state.model.routers())
    result.routers = routers->report(rank_.plan.step.global_tokens(), rank_.plan.step.counts_experts);
  result.outcome = wait_outcome(result);
  if (result.outcome == Outcome::stuck) return result;
  if (watch.before_end) watch.before_end(result);
  if (result.outcome == Outcome::updated) update(step, updates, result, watch);
  if (result.outcome == Outcome::skipped) loss_scale_.count_overflow();
  return result;
}

// Loss and norm are the same on every rank, unless a fault has spoilt one rank's copy of them: all decide alike.
TrainingStep::Outcome TrainingStep::wait_outcome(const Result& r) const {
  const bool finite = std::isfinite(r.loss) && std::isfinite(r.grad_norm);
  const bool judges = spikes_ != nullptr && spikes_->rule && r.targets > 0;
  const bool spikes = finite && judges && spikes_->rule->find(spikes_->state, r.loss, r.grad_norm);
  double found[2] = {finite ? 0.0 : 1.0, spikes ? 1.0 : 0.0};  // how many ranks find so
  rank_.mesh.world->all_reduce({found, DType::f64, {judges ? 2 : 1}}).wait();
  if (found[0] > 0) return loss_scale_.may_skip() ? Outcome::skipped : Outcome::stuck;
  return found[1] > 0 ? Outcome::spike : Outcome::updated;
}

double TrainingStep::run_batch(int64_t batch, const Watch& watch) const {
  return run_batch(batch, batches_.counted(batch), watch);
}

double TrainingStep::run_batch(int64_t batch, const OpenSource::Counted& counted, const Watch& watch) const {
  const double divisor = objective_.divisor(batches_.units(counted));
  const LoadMicroBatch load = [&](MicroBatch& b) {
    watch.in_place_of ? batches_.load_other_ranks(batch, watch.in_place_of(b.index), b) : batches_.load(batch, b);
  };
  const LoadMicroBatch others = [&](MicroBatch& b) { batches_.load_others(batch, b); };
  const LoadMicroBatch global = [&](MicroBatch& b) { batches_.load_global(batch, b); };
  const uint64_t dropout_key = rng_key(rng_key(uint64_t(recipe_.train.seed), "dropout"), uint64_t(batch));
  const double weighted =
      rank_.executor.run_on(
          watch.backend != nullptr ? *watch.backend : rank_.backend,
          {.load = load,
           .loss_scale = loss_scale_.state.scale / divisor,
           .dropout_key = dropout_key,
           .scale = loss_scale_.state.scale,
           .mtp_scale = loss_scale_.state.scale / double(std::max<int64_t>(1, counted.further)),
           .objective = objective_,
           .batch = batch,
           .others = &others,
           .reference = reference_ != nullptr ? reference_->of_batch(batch) : ReadReference(),
           .reference_of_others = reference_ != nullptr ? reference_->of_others(batch) : ReadReference(),
           .global = &global,
           .begins = watch.begins,
           .ends = watch.ends}) /
      divisor;
  return objective_.loss(weighted, rank_.executor.sums());
}

void TrainingStep::update(int64_t step, int64_t updates, Result& result, const Watch& watch) const {
  if (is_planted("skip", "update", rank_.mesh.world->rank(), step)) return loss_scale_.count_good();
  const double scale = clip_scale(result.grad_norm, recipe_.optimizer.clip_grad) / result.loss_scale;
  Arena& scratch = rank_.executor.scratch();
  const auto change = [&] {
    update_all(rank_.backend, *rank_.plan.optimizer, rank_.state.params, scratch,
               {.lr = result.lr,
                .grad_scale = scale,
                .step = std::max<int64_t>(1, updates + 1 + older_),
                .step_here = step - first_step_ + 1});
  };
  if (const auto& norms = rank_.state.weight_norms)
    result.weights = norms->wait_update(rank_.backend, scratch, watch.measures_weights, change);
  else
    change();
  if (const RouterRecords* routers = rank_.state.model.routers())
    routers->wait_correct(rank_.state.params, recipe_.moe.bias_update_rate);
  rank_.check_used();
  loss_scale_.count_good();
  plant_number(rank_.state.params, "values", step);
}

}  // namespace weft
