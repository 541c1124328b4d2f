// Steps whose forward and backward data parallel ranks do for each other too: at an interval, and when asked.
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/train/trainer.h"

namespace weft {

namespace fs = std::filesystem;

// Throws where the recipe replays steps and this run cannot. A run that was not told to goes on, and keeps the reason
// for whoever asks for a replay later.
void Trainer::begin_replays() {
  const int64_t interval = recipe_.train.replay_interval;
  no_replay_ = why_not_replayed(recipe_);  // check_supported refuses such a recipe where it replays steps
  if (!no_replay_.empty()) return;
  no_replay_ = wait_machines_differ(*rank_.mesh.world, machine_.description);
  if (no_replay_.empty())
    replay_ = std::make_unique<ReplayCheck>(rank_);
  else if (interval > 0 && rank_.plan.step.mesh.dp > 1)
    throw ConfigError(
        fmt::format("train.replay_interval = {} cannot run: {}; the nearest that works: hosts that are alike, with as "
                    "many threads each (run.threads), or train.replay_interval = 0",
                    interval, no_replay_));
}

// Whether the run is to stop before the next step. A signal reaches ranks at different times, and only the first rank
// looks for the file that asks for a replay: all ranks heed either as soon as one of them knows. Trials of settings are
// measured, so they leave the file to the steps behind them.
bool Trainer::wait_asked_to_stop() {
  std::error_code unknown;
  const bool replay = leads() && !is_trial() && fs::is_regular_file(replay_file(), unknown);
  double asked[2] = {stop_ ? 1.0 : 0.0, replay ? 1.0 : 0.0};
  rank_.mesh.world->all_reduce({asked, DType::f64, {2}}).wait();
  replay_asked_ = asked[1] > 0;
  return asked[0] > 0;
}

fs::path Trainer::replay_file() const { return fs::path(recipe_.run.dir) / "replay"; }

// How the next step is watched. Where it is to be replayed, each rank does its neighbour's work first; the step itself
// then overwrites what that leaves behind (gradients, sums, losses).
TrainingStep::Watch Trainer::wait_watch_of(int64_t batch) {
  const int64_t interval = recipe_.train.replay_interval;
  const bool asked = std::exchange(replay_asked_, false);
  const bool replays = replay_ && !is_trial() && (asked || (interval > 0 && (step_ + 1) % interval == 0));
  if (asked) take_request();
  if (replays)
    step_run_.run_batch(batch, {.begins = replay_->watch(ReplayCheck::Work::replayed, step_),
                                .in_place_of = [this](int64_t m) { return replay_->of_neighbour(m); }});
  TrainingStep::Watch watch{.before_end =
                                [this, replays, asked](const auto& so_far) {
                                  if (replays) wait_check_replay(asked);
                                  if (recipe_.train.log_grad_norms) log_grad_norms(so_far);
                                },
                            .measures_weights = measures_weights()};
  if (replays) watch.begins = replay_->watch(ReplayCheck::Work::own, step_);
  return watch;
}

// Removes the file before the step: if the replay ends the run, the run that goes on is not asked again.
void Trainer::take_request() {
  if (!leads()) return;
  records_->attempt("replay", [&] {
    std::error_code failed;
    fs::remove(replay_file(), failed);
    if (failed)
      throw FileError(fmt::format("{}: cannot be removed ({}), so that each step is replayed: remove it yourself",
                                  replay_file().string(), failed.message()));
  });
  if (replay_) return;
  records_->event("replayed", {{"step", step_ + 1}, {"done", false}, {"reason", no_replay_}});
  records_->note(
      fmt::format("step {}: {} asks for a replay, which cannot be: {}", step_ + 1, replay_file().string(), no_replay_));
}

// Before the gradients of a step that was replayed change any weight.
void Trainer::wait_check_replay(bool asked) {
  const std::optional<ReplayDifference> difference = replay_->wait_compare();
  if (difference) refuse_corrupted(step_ + 1, difference->to_string(), difference->to_json(), difference->ranks.size());
  if (!asked || !leads()) return;
  records_->event("replayed", {{"step", step_ + 1}, {"done", true}});
  records_->note(fmt::format("step {}: replayed, as {} asked: every rank's gradients have the same bits again",
                             step_ + 1, replay_file().string()));
}

}  // namespace weft
