// How long a run is: epochs as steps, more steps than it began with, how often it sees its data, and whether it is long
// enough to look for spikes.
#pragma once
#include <filesystem>
#include <string>

#include "weft/data/training_samples.h"
#include "weft/recipe/recipe.h"

namespace weft {

// The recipe with train.epochs as train.train_iters: so many steps that their samples are at least as many as that many
// times all training samples (of weighted sources too, which then are not each seen equally often). A recipe in steps
// stays as it is. Throws ConfigError where other settings do not fit that number, and where it is beyond all bounds.
Recipe with_known_length(Recipe recipe, const TrainingSamples& train);

// "the run sees its 617 samples 70.1 times", a warning where that is often; of weighted sources the one that it sees
// most often.
std::string epochs_note(const Recipe& recipe, const TrainingSamples& train);
// The same of a run with phases, which reads so many samples of these.
std::string epochs_note(const TrainingSamples& train, int64_t samples);

// A warning where train.on_spike cannot judge a single step, as the run is no longer than half a window, nor is any of
// its phases, which begin windows of their own; empty else. The recipe's number of steps is known.
std::string short_for_spikes_note(const Recipe& recipe);

// A run may get more steps than it began with, or fewer, if it has not trained them yet. Copies into `there`, the
// recipe it began with, what may differ in `here` for that: the number of steps, and the end of the learning rate's
// decay if that is the same step, or the run's last in both.
void allow_another_length(Recipe& there, const Recipe& here);
// Describes the change for a run that has done so many steps, and updates: its new number of steps, and the effect on
// the learning rate. Empty if nothing differs.
std::string length_note(const Recipe& there, const Recipe& here, int64_t step, int64_t updates);
// Throws ConfigError where the checkpoint of step `done` is beyond the recipe's last step, as far as that is known.
void require_steps_left(const Recipe& recipe, int64_t done, const std::filesystem::path& checkpoint);

}  // namespace weft
