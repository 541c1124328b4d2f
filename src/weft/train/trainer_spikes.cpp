// What a run does about a step whose loss or gradient norm stands out of those before it (optim/spike_rule.h).
#include <algorithm>
#include <cmath>

#include "weft/base/json.h"
#include "weft/checkpoint/disk_space.h"
#include "weft/comm/agree.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/trainer.h"

namespace weft {

std::optional<SpikeRule> Trainer::spike_rule_of(const Recipe& recipe) {
  if (recipe.train.on_spike == SpikeAction::none) return {};
  return SpikeRule{.sigma_factor = recipe.train.spike_sigma_factor, .window = recipe.train.spike_window};
}

// With the losses of other data, or of another batch, the steps to come cannot be compared.
void Trainer::take_spikes(SpikeState state) {
  spikes_.state = std::move(state);
  spikes_.state.losses.clear();
  spikes_.state.grad_norms.clear();
}

// The step has changed nothing. It leaves its update out, or the run goes back, and on behind its batch.
Trainer::AfterSpike Trainer::heed_spike(const TrainingStep::Result& result) {
  const bool rolls_back = recipe_.train.on_spike == SpikeAction::rollback;
  const int64_t batch = spikes_.state.batch_of(step_);
  // None: another rank has found it, of numbers that a fault has spoilt.
  const Spike found = spikes_.rule->find(spikes_.state, result.loss, result.grad_norm).value_or(Spike{});
  const std::string what = fmt::format(
      "step {}: {} {:.6g} is a spike: the median of the last {} steps is {:.6g}, the limit {:.6g}", step_ + 1,
      found.is_of_loss ? "loss" : "gradient norm", found.is_of_loss ? result.loss : result.grad_norm,
      spikes_.state.losses.size(), found.median, found.limit);
  spikes_.state.batches.push_back(batch);
  const auto way_back = rolls_back ? wait_find_way_back() : std::nullopt;
  const int64_t back = way_back ? step_of(*way_back) : 0;
  int64_t window = spikes_.rule->window;
  if (way_back) window = std::max(window, batch - spikes_.state.batch_of(back - 1));  // since that checkpoint
  const bool ends = spikes_.state.recent(batch, window) > recipe_.train.max_spikes;
  if (leads()) {
    nlohmann::json event{{"step", step_ + 1},
                         {"batch", batch},
                         {"loss", result.loss},
                         {"grad_norm", result.grad_norm},
                         {"of", found.is_of_loss ? "loss" : "grad_norm"},
                         {"median", found.median},
                         {"limit", found.limit},
                         {"spikes", spikes_.state.batches.size()},
                         {"action", ends       ? "ended"
                                    : way_back ? "rolled_back"
                                               : "skipped"}};
    if (way_back && !ends) event["to_step"] = back;
    records_->event("spike", std::move(event));
  }
  if (ends) refuse_more_spikes(what, window);
  if (!way_back) {
    ++spikes_.state.skipped_steps;
    if (leads())
      records_->note(fmt::format("WARNING: {}. Its update is left out{}", what,
                                 rolls_back ? ": there is no checkpoint yet to go back to" : ""));
    return AfterSpike::goes_on;
  }
  const int64_t first = spikes_.state.batch_of(back);
  if (leads())
    records_->note(fmt::format("WARNING: {}. The run goes back to {}, and from there on past {} batches ({} to {})",
                               what, way_back->string(), batch + 1 - first, first, batch));
  go_back(*way_back);
  spikes_.state.go_past(back, batch);
  return AfterSpike::went_back;
}

void Trainer::refuse_more_spikes(const std::string& what, int64_t window) {
  go_on_saving(SaveWait::yes);
  let_first_rank_tell();
  const int64_t batch = spikes_.state.batches.back();  // this one's
  throw SpikesError(fmt::format(
      "{}. These are more than train.max_spikes = {} among the last {} batches: the run does not recover "
      "by itself{}. Lower optimizer.lr, look at the data of batch {} (`weft data why {} --batch {}`), or allow more",
      what, recipe_.train.max_spikes, window,
      saved_step_ > 0 ? fmt::format("; its newest checkpoint is of step {}", saved_step_) : "", batch, recipe_.run.dir,
      batch));
}

// The newest that is whole of those that the run would have made if it had never been stopped, so that it goes the same
// way wherever it was. None: there is none yet. The same on every rank.
std::optional<std::filesystem::path> Trainer::wait_find_way_back() {
  go_on_saving(SaveWait::yes);
  enter(RunSection::setup);  // from here on it waits for disks, which no step does
  Communicator& world = *rank_.mesh.world;
  std::vector<std::filesystem::path> left;
  if (leads()) left = checkpoint_folders(recipe_.run.dir);
  std::erase_if(left, [&](const auto& one) { return step_of(one) > step_ || !is_regular(recipe_, step_of(one)); });
  for (;;) {
    const std::string name = first_text(world, left.empty() ? "" : left.back().filename().string());
    if (name.empty()) return {};
    if (!left.empty()) left.pop_back();
    const auto path = std::filesystem::path(recipe_.run.dir) / "checkpoints" / name;
    const CheckOutcome checked = check_checkpoint(path, CheckpointPart::all, world, machine_.threads);
    if (checked.damage.empty() && (!checked.has_manifest || checked.step == step_of(path))) return path;
    if (leads())
      records_->note(fmt::format("WARNING: {} is damaged, the run does not go back to it: {}", path.string(),
                                 checked.damage.empty() ? "it was saved as that of another step" : checked.damage));
  }
}

// What the run was when it wrote that checkpoint, but for the spikes that it has had since. What it has written behind
// it goes: a run that is stopped now goes on from there, and finds them again.
void Trainer::go_back(const std::filesystem::path& checkpoint) {
  rank_.backend.wait_all();  // the last update
  const Progressed at =
      load_checkpoint(checkpoint, rank_.plan.model, rank_.state, *rank_.plan.optimizer, machine_.threads);
  rank_.state.params.masters_changed(rank_.backend);
  agree(*rank_.mesh.world, [&] {  // only now that every rank has read what it goes back to
    if (!leads()) return;
    for (const auto& later : checkpoint_folders(recipe_.run.dir))
      if (step_of(later) > step_of(checkpoint)) remove_folder(later);
  });
  begin_local_copies_again();
  step_ = saved_step_ = at.step;
  evaluated_step_ = -1;
  held_out_.reset();
  if (results_ && results_->step > step_) results_.reset();
  weight_rule_ = {};
  gradient_rule_ = {};
  if (at.loss_scale) loss_scale_.state = *at.loss_scale;
  const SpikeState then = at.spikes.value_or(SpikeState());
  spikes_.state.losses = then.losses;
  spikes_.state.grad_norms = then.grad_norms;
  spikes_.state.skipped_steps = then.skipped_steps;
  if (leads()) records_->go_back(step_);
}

}  // namespace weft
