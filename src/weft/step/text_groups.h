// How many texts that a run writes pass at once.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

namespace weft {

// How many of `texts` texts, each with one token left, the next pass takes, where `most` >= texts are written at once:
// up to 32, all of them; of more, the largest number that is planned: `most` itself, or one of eight from each power of
// two to the next. The texts left out, less than an eighth, take another pass.
inline int64_t texts_of_pass(int64_t texts, int64_t most) {
  constexpr int64_t kFewTexts = 32, kNumbersOfOctave = 8;
  if (texts <= kFewTexts || texts == most) return texts;
  return texts - texts % (int64_t(std::bit_floor(uint64_t(texts))) / kNumbersOfOctave);
}

// All that it may answer, the largest first. Each needs a dry pass of its own: a product of fewer rows may need a
// larger workspace.
inline std::vector<int64_t> planned_numbers_of_texts(int64_t most) {
  std::vector<int64_t> numbers;
  for (int64_t n = most; n > 0; n = texts_of_pass(n - 1, most)) numbers.push_back(n);
  return numbers;
}

}  // namespace weft
