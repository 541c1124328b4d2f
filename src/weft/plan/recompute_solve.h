// The least that blocks can compute again, so that what they keep fits: a pure function of numbers.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "weft/models/transformer.h"

namespace weft {

// Blocks that are alike: of one kind, in one chunk of a rank's model.
struct RecomputeGroup {
  int64_t count = 0;
  std::array<int64_t, kBlockRecomputes> bytes = {};  // that each takes, beside what it takes where it keeps all
  std::array<double, kBlockRecomputes> flops = {};   // that each computes again
};
using RecomputeCounts = std::array<int64_t, kBlockRecomputes>;  // blocks of a group
using RecomputeLevels = std::array<bool, kBlockRecomputes>;     // which of them there may be

// How many blocks of each group compute what again: their bytes are at most `room` (which may be below 0), with the
// least flops; of several such the fewest blocks that compute anything again. None: there is no way. Exact. Time grows
// with blocks and with how many sums their bytes have, some milliseconds: with `kept`, the partial choices that it had
// to keep, all blocks together.
std::optional<std::vector<RecomputeCounts>> least_recompute(const std::vector<RecomputeGroup>& groups,
                                                            const RecomputeLevels& allowed, int64_t room,
                                                            size_t* kept = nullptr);

}  // namespace weft
