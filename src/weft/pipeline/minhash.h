// Similarity of sets of words' sequences, without comparing every pair.     Broder 1997; Leskovec et al., chapter 3
#pragma once
#include <cstdint>
#include <vector>

#include "weft/base/hashing.h"

namespace weft {

// Immutable; any thread may use it.
class MinHash {
 public:
  MinHash(int64_t bands, int64_t rows);
  // One key for each band of a set that is not empty: two sets of Jaccard similarity s share the key of a band with
  // probability s^rows.
  std::vector<Hash128> band_keys(const std::vector<uint64_t>& shingles) const;

 private:
  int64_t bands_, rows_;
  std::vector<uint64_t> factors_, offsets_;  // of each hash function
};

// A set of shingles as it is kept for comparison: 32 bits of each, sorted, each once.
std::vector<uint32_t> shingle_set(const std::vector<uint64_t>& shingles);
// Size of the intersection over size of the union; 1 for two empty sets.
double jaccard(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b);

}  // namespace weft
