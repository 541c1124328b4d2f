#pragma once
#include <cstdint>
#include <vector>

namespace weft {

// A text of which the last `scored` tokens are an answer.
struct ScoredText {
  std::vector<int32_t> ids;
  int64_t scored = 0;
};

}  // namespace weft
