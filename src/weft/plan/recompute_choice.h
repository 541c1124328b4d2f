// What parallel.recompute = "budget" has each block of a model compute again.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "weft/models/transformer.h"

namespace weft {

struct RecomputeChoice {
  struct Stage {
    std::array<int64_t, kBlockRecomputes> counts = {};  // [BlockRecompute] blocks of the stage
    int64_t bytes = 0;                                  // planned on its fullest rank, with this
    double flops = 0, again = 0;  // a micro-batch's forward and backward, once; what is computed again beside it
    bool operator==(const Stage&) const = default;
  };
  int64_t budget = 0;                       // bytes of a rank
  std::vector<BlockRecompute> blocks = {};  // of the whole model; none: nothing was to be chosen
  std::vector<Stage> stages = {};
  bool operator==(const RecomputeChoice&) const = default;
};

// "stage 0: 3 blocks keep all, 5 selective, 24 full; peak 59.20 of 60.00 GiB, +11.0 % arithmetic", a line a stage.
std::string to_string(const RecomputeChoice& choice);
// As parallel.recompute names them: "none", "activations", "selective", "full".
std::string_view name_of(BlockRecompute again);

}  // namespace weft
