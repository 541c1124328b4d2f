#include "weft/pipeline/minhash.h"

#include <algorithm>

#include "weft/base/rng.h"

namespace weft {
namespace {
constexpr uint64_t kSeed = 0x77656674;  // part of the format: other functions find other pairs
}

MinHash::MinHash(int64_t bands, int64_t rows) : bands_(bands), rows_(rows) {
  for (int64_t i = 0; i < bands * rows; ++i) {
    factors_.push_back(rng_key(kSeed, uint64_t(2 * i)) | 1);
    offsets_.push_back(rng_key(kSeed, uint64_t(2 * i + 1)));
  }
}

std::vector<Hash128> MinHash::band_keys(const std::vector<uint64_t>& shingles) const {
  const size_t n = factors_.size();
  std::vector<uint64_t> least(n, UINT64_MAX);
  for (const uint64_t x : shingles)
    for (size_t i = 0; i < n; ++i) least[i] = std::min(least[i], x * factors_[i] + offsets_[i]);
  std::vector<Hash128> keys;
  std::vector<uint64_t> band(size_t(rows_) + 1);
  for (int64_t b = 0; b < bands_; ++b) {
    band[0] = uint64_t(b);
    std::copy_n(least.begin() + b * rows_, rows_, band.begin() + 1);
    keys.push_back(hash128({reinterpret_cast<const char*>(band.data()), band.size() * sizeof(uint64_t)}));
  }
  return keys;
}

std::vector<uint32_t> shingle_set(const std::vector<uint64_t>& shingles) {
  std::vector<uint32_t> set;
  set.reserve(shingles.size());
  for (const uint64_t x : shingles) set.push_back(uint32_t(x >> 32));
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  return set;
}

double jaccard(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  if (a.empty() && b.empty()) return 1;
  size_t i = 0, j = 0, shared = 0;
  while (i < a.size() && j < b.size()) {
    const uint32_t x = a[i], y = b[j];
    shared += x == y;
    i += x <= y;
    j += y <= x;
  }
  return double(shared) / double(a.size() + b.size() - shared);
}

}  // namespace weft
