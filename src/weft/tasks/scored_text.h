#pragma once
#include <cstdint>
#include <vector>

namespace weft {

// A text of which the last `scored` tokens are an answer.
struct ScoredText {
  std::vector<int32_t> ids;
  int64_t scored = 0;
};

// What a model makes of texts.
struct TextScores {
  std::vector<double> log_probs;  // of the scored tokens of each
  std::vector<bool> likeliest;    // whether each of these is the likeliest in its place; empty: not asked
};

}  // namespace weft
