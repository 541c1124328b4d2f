// How a run saves itself.
#include "weft/comm/agree.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/room.h"
#include "weft/train/run_tokenizer.h"
#include "weft/train/trainer.h"

namespace weft {

// Whether this step was evaluated, and its checkpoint is one that checkpoint.keep_best keeps: what the first rank sees
// in the run's folder, on all of them.
bool Trainer::is_among_best() const {
  const int64_t most = recipe_.checkpoint.keep_best;
  if (most == 0 || evaluated_step_ != step_ || !held_out_) return false;
  bool is_one = false;
  if (leads()) {
    const auto best = best_checkpoints(recipe_.run.dir, most);
    is_one = int64_t(best.size()) < most || held_out_->loss < best.back().held_out.loss;
  }
  return any_rank(is_one);
}

// That a save failed is told, and does not stop the run.
void Trainer::go_on_saving(SaveWait wait) {
  if (!saving_) return;
  const int64_t step = saving_->step();
  try {
    if (wait == SaveWait::yes) {
      enter(RunSection::save);
      saving_->wait();
    } else {
      if (!saving_->advance()) return;
      enter(RunSection::save);
    }
    has_saved(*saving_);
  } catch (const FileError& e) { tell_not_saved(step, e); }
  saving_.reset();
}

void Trainer::tell_not_saved(int64_t step, const FileError& e) {
  if (leads()) records_->note(fmt::format("step {}: NOT SAVED, older checkpoints are kept: {}", step, e.what()));
}

void Trainer::has_saved(const CheckpointSave& save) {
  saved_step_ = save.step();
  end_older_copies(save.step());
  if (!leads()) return;
  prune_checkpoints(recipe_.run.dir, kept_checkpoints(whole_));
  records_->note(fmt::format("step {}: saved {}", save.step(), save.path().string()));
}

// A save that fails leaves the older checkpoints and does not end the run; the last one does.
void Trainer::save(bool last) {
  go_on_saving(SaveWait::yes);
  go_on_copying(SaveWait::yes);  // from the room that this one needs
  if (saved_step_ == step_ || step_ == 0) return;
  const bool waits = last || !recipe_.checkpoint.async_save;
  enter(waits ? RunSection::save : RunSection::snapshot);
  refuse_bad_weights();
  wait_check_replicas();
  try {
    refuse_unchanged_adapter();
    begin_save();
    if (waits) {
      saving_->wait();
      has_saved(*saving_);
      saving_.reset();
    }
  } catch (const FileError& e) {
    saving_.reset();
    if (last)
      throw NotSavedError(fmt::format(
          "step {}: the {} FAILED, {}: {}. When that is mended, the same command goes on from {}", step_,
          keeps_end_ && step_ == end_step() ? "save that the next phase begins with" : "last save of the run",
          saved_step_ > 0 ? fmt::format("what came after step {} is lost", saved_step_) : "nothing of it is saved",
          e.what(), saved_step_ > 0 ? "there" : "the start"));
    tell_not_saved(step_, e);
  }
}

void Trainer::begin_save() {
  const DType stat = rank_.plan.step.precision.stat;
  KeptCheckpoints kept;
  agree(*rank_.mesh.world, [&] {
    if (!leads()) return;
    records_->sync();  // the records of every step that the checkpoint holds
    kept = kept_checkpoints(whole_);
  });
  std::optional<SharedFile> outer;
  if (island_)
    outer = SharedFile{.layout = island_->state().file_layout(island_->member().age()),
                       .write = [this](SharedWriter& writer) { island_->state().write(writer); }};
  const int64_t bytes = checkpoint_bytes(rank_.plan.model, *rank_.plan.optimizer, stat).total +
                        (outer ? outer->layout.files()[0].bytes : 0);
  for (const std::string& note : make_room(recipe_.run.dir, kept, bytes, *rank_.mesh.world, machine_.threads))
    records_->note(fmt::format("step {}: {}", step_, note));
  saving_ = std::make_unique<CheckpointSave>(recipe_.run.dir, rank_.state, checkpoint_source(), std::move(outer));
}

// Of the step that is just done.
CheckpointSource Trainer::checkpoint_source() const {
  const bool scales = loss_scale_.kind != LossScale::Kind::none;
  const auto loss_scale = scales ? std::optional(loss_scale_.state) : std::nullopt;
  return {
      .model = rank_.plan.model,
      .optimizer = *rank_.plan.optimizer,
      .progressed = {.step = step_,
                     .samples = samples_at(step_),
                     .data = data_.train->fingerprint(),
                     .seed = uint64_t(recipe_.train.seed),
                     .loss_scale = loss_scale,
                     .sources = data_.sources,
                     .context = context_,
                     .held_out = evaluated_step_ == step_ ? held_out_ : std::nullopt,
                     .base = base_,
                     .teacher = teacher_,
                     .reference = reference_weights_,
                     .place = place_at(step_),
                     .spikes = spikes_.rule || !spikes_.state.is_empty() ? std::optional(spikes_.state) : std::nullopt},
      .model_folder = recipe_.model.path,
      .tokenizer = kept_tokenizer(recipe_.run.dir),
      .is_tokenizer_known = is_tokenizer_kept(recipe_),
      .config = config_of_checkpoint(),
      .adapter = rank_.plan.config.adapter,
      .recipe = to_toml(whole_) + to_toml(islands_),
      .num_threads = recipe_.checkpoint.async_save ? 1 : machine_.threads};
}

}  // namespace weft
