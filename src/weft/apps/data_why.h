// weft data why of a batch of the data, whatever step has read it: one that was a loss spike has no step any more.
#pragma once
#include <cstdint>
#include <string>

namespace weft {

struct WhyBatchOptions {
  std::string run;
  int64_t batch = 0, sample = 0;  // both from 0, as the event `spike` has it; of the batch
  bool json = false;
};
int run_data_why(const WhyBatchOptions& options);

}  // namespace weft
