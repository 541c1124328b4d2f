// How a run copies its state to the disks of its ranks' own hosts.
#include "weft/base/json.h"
#include "weft/train/trainer.h"

namespace weft {

// Now that the run has the state that it goes on from.
void Trainer::begin_local_copies() {
  if (recipe_.checkpoint.local_interval == 0) return;
  local_ = std::make_unique<LocalCopies>(recipe_, *rank_.mesh.world, step_);
  if (!local_->neighbours_note().empty()) notes_.push_back(local_->neighbours_note());
}

// The run has a checkpoint of this step. That older copies count still, where this fails, does not end it.
void Trainer::end_older_copies(int64_t step) {
  if (!local_) return;
  try {
    local_->has_saved(step, *rank_.mesh.world);
  } catch (const FileError& e) {
    if (leads()) records_->note(fmt::format("WARNING: local copies of before the run began still count: {}", e.what()));
  }
}

// Not while another save is written: a copy is to cost no step, and the next one is not far.
void Trainer::copy_locally() {
  if (!local_ || step_ >= recipe_.train.train_iters) return;
  if (saving_ || local_->is_writing()) {
    ++local_->skipped;
    return;
  }
  enter(RunSection::snapshot);
  refuse_bad_weights();
  wait_check_replicas();
  try {
    refuse_unchanged_adapter();
    local_->begin(rank_.state, checkpoint_source());
  } catch (const FileError& e) { tell_not_copied(step_, e); }
}

void Trainer::go_on_copying(SaveWait wait) {
  if (!local_ || !local_->is_writing()) return;
  const int64_t step = local_->step();
  if (wait == SaveWait::yes) enter(RunSection::save);  // it may be the disk's turn
  try {
    const auto written = wait == SaveWait::yes ? local_->wait() : local_->advance();
    if (!written) return;
    if (leads())
      records_->event("local_saved", {{"step", written->step},
                                      {"bytes", written->bytes},
                                      {"neighbour_bytes", written->neighbour_bytes},
                                      {"seconds", written->seconds},
                                      {"skipped", local_->skipped}});
    if (!written->unheld.empty()) tell_unheld(step, written->unheld);
  } catch (const FileError& e) { tell_not_copied(step, e); }
}

// The first is told; all are counted, and have an event.
void Trainer::tell_not_copied(int64_t step, const FileError& e) {
  const int64_t failed = ++local_->failed;
  if (!leads()) return;
  records_->event("local_save_failed", {{"step", step}, {"reason", e.what()}, {"failed", failed}});
  if (failed == 1)
    records_->note(
        fmt::format("step {}: NO LOCAL COPY, the run goes on: {}; further ones that fail are counted", step, e.what()));
}

// Likewise: a host that is lost costs more now.
void Trainer::tell_unheld(int64_t step, const std::string& why) {
  const int64_t unheld = ++local_->unheld;
  if (!leads()) return;
  records_->event("local_unheld", {{"step", step}, {"reason", why}, {"unheld", unheld}});
  if (unheld == 1)
    records_->note(
        fmt::format("WARNING: no other host holds all of the local copy of step {}, which is on its own "
                    "hosts: {}; further ones are counted",
                    step, why));
}

// The run has gone back: what was copied behind that is not its state.
void Trainer::begin_local_copies_again() {
  if (!local_) return;
  go_on_copying(SaveWait::yes);
  try {
    local_->begin_again(*rank_.mesh.world);
  } catch (const FileError& e) {
    if (leads()) records_->note(fmt::format("WARNING: no further local copies are made: {}", e.what()));
    local_.reset();
  }
}

// The run is saved, and needs them no more.
void Trainer::end_local_copies() {
  if (!local_) return;
  local_->remove_all();
  if (leads() && local_->failed > 0)
    records_->note(fmt::format("{} local copies could not be written (RUN/events.jsonl)", local_->failed));
  if (leads() && local_->unheld > 0)
    records_->note(fmt::format("{} local copies were on their own hosts alone (RUN/events.jsonl)", local_->unheld));
}

}  // namespace weft
