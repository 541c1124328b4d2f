// How many texts that a run writes pass at once.
#pragma once
#include <bit>
#include <cstdint>

namespace weft {

// How many of `texts` texts, of which a token each is left, the next pass takes (TextPasses), where at most `most`
// texts are written: up to 32, all of them; of more, the largest of the numbers that are planned: `most` itself, and
// eight from each power of two to the next. (A product of fewer rows may need a larger workspace, so that each number
// needs a dry pass of its own.) The texts left out, less than an eighth, take another pass.
inline int64_t texts_of_pass(int64_t texts, int64_t most) {
  constexpr int64_t kFewTexts = 32, kNumbersOfOctave = 8;
  if (texts <= kFewTexts || texts == most) return texts;
  return texts - texts % (int64_t(std::bit_floor(uint64_t(texts))) / kNumbersOfOctave);
}

}  // namespace weft
