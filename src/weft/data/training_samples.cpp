#include "weft/data/training_samples.h"

#include "weft/base/error.h"

namespace weft {

void TrainingSamples::read_other(int64_t global_sample, const SampleRows&) const {
  WEFT_CHECK(false, "sample {} has no other sequence", global_sample);
}

void TrainingSamples::read_top(int64_t global_sample, const TopRows&) const {
  WEFT_CHECK(false, "no logits of a teacher are stored for sample {}", global_sample);
}

}  // namespace weft
