// Where a run with phases is in its data.
#include "weft/train/trainer.h"

namespace weft {

// A span counts samples; of a pair, each sequence is one of the data's.
BatchPlace Trainer::batch_place() const {
  if (!span_) return {};
  return {.first_batch = span_->first_step, .first_sample = span_->first_sample * sequences_of_sample(recipe_)};
}

std::optional<MixPlace> Trainer::place_at(int64_t step) const {
  if (!span_) return {};
  return MixPlace{.phase = span_->phase,
                  .mix = span_->mix,
                  .next_sample = span_->first_sample + span_->samples_at(step) - span_->samples,
                  .begun = span_->begun};
}

// What the model has been trained to see by now.
Recipe Trainer::with_longest_samples() const {
  Recipe recipe = recipe_;
  if (span_) recipe.train.seq_length = span_->longest;
  return recipe;
}

}  // namespace weft
