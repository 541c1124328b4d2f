// Where the numbers of a step are not finite, as far as what the step has left in memory says it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/train/rank_run.h"

namespace weft {

struct NonFinite {
  std::vector<int64_t> micro_batches = {};  // of the global batch: whose losses are not finite
  std::vector<int64_t> data_ranks = {};     // the place on dp of each of them
  std::string gradient = {};                // the first, "gradient of head.weight (...): 2 of 64 values are not finite"
  std::vector<int> ranks = {};              // that keep gradients with such values
  // "micro-batch 3 (dp 1), gradient of ..., on rank 1"; "no number that was kept" where nothing is found.
  std::string to_string() const;
  nlohmann::json to_json() const;
};

// After a step's forward and backward, before its update. The same on every rank. Blocks.
NonFinite wait_find_nonfinite(RankRun& rank);

}  // namespace weft
