// Whether ranks that should hold the same bytes do: weights and optimizer state of data parallel ranks, and what tensor
// parallel ranks hold alike. What a fault of a machine has changed on one of them is found before it is saved.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/train/rank_run.h"

namespace weft {

struct ReplicaDifference {
  std::string tensor;           // the first, "exp_avg of blocks.3.mlp.up.weight"
  int64_t tensors = 0;          // that differ among these ranks
  std::vector<int> alike = {};  // ranks that more than half of them agree with; empty: there is no majority
  std::vector<int> others = {};
  std::string to_string() const;
  nlohmann::json to_json() const;
};

// Compares hashes of all that this rank holds and others hold too, between two steps. The same on every rank; none:
// all is well. What ZeRO keeps on one rank alone is not compared; nor, unless the same work `repeats` to the bit, what
// tensor parallel ranks do alike. Reads what the rank holds once; blocks.
std::optional<ReplicaDifference> wait_compare_replicas(RankRun& rank, bool repeats);

}  // namespace weft
