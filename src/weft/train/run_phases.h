// The phases of a run and where each is in the data.
#pragma once
#include <cstdint>
#include <vector>

#include "weft/recipe/recipe_phases.h"

namespace weft {

// Steps that are alike. Those of one mix read the same order of samples, one span behind the other; another sequence
// length, other files or other weights, and of rows another batch or objective, begin another mix, in which each source
// goes on behind what earlier ones have read of it.
struct RunSpan : PhaseSpan {
  int64_t samples = 0;              // that the run has consumed before
  int64_t mix = 0;                  // from 0
  int64_t first_sample = 0;         // with which it begins, of its mix
  std::vector<int64_t> begun = {};  // of its mix: DataSpec's
  int64_t longest = 0;              // train.seq_length so far, at most

  // That the run has consumed after so many steps of its own, at most to the end of this span.
  int64_t samples_at(int64_t step) const { return samples + (step - first_step) * recipe.train.global_batch_size; }
};

// All of a run. Reads the manifests of datasets where the mix changes; throws as training_files_of.
std::vector<RunSpan> run_spans(const Recipe& recipe);

// How many samples the run reads of a mix.
int64_t samples_of_mix(const Recipe& recipe, int64_t mix);

// Which span has a step, from 0; beyond the run's end the last.
size_t span_of(const std::vector<RunSpan>& spans, int64_t step);

}  // namespace weft
