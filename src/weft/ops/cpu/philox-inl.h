// Philox4x32-10 (base/rng.h) in vectors: the same words as weft::philox, several blocks at once.
#if defined(WEFT_OPS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_CPU_PHILOX_INL_H_
#undef WEFT_OPS_CPU_PHILOX_INL_H_
#else
#define WEFT_OPS_CPU_PHILOX_INL_H_
#endif

#include <algorithm>

#include "weft/base/rng.h"
#include "weft/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// Blocks that one vector computes: a lane of 64 bits for each.
using Blocks = hn::ScalableTag<uint64_t>;
inline constexpr int64_t kBlocks = int64_t(HWY_LANES(uint64_t));

#if HWY_TARGET == HWY_SCALAR
inline void philox_blocks(uint64_t key, const uint64_t* counters, uint32_t* words) {
  const auto block = weft::philox(key, counters[0]);
  std::copy(block.begin(), block.end(), words);
}
#else
// The four words of blocks counters[0..kBlocks), block by block.
HWY_INLINE void philox_blocks(uint64_t key, const uint64_t* HWY_RESTRICT counters, uint32_t* HWY_RESTRICT words) {
  const Blocks d;
  const hn::Repartition<uint32_t, Blocks> d32;
  const auto low = hn::Set(d, 0xffffffffu);
  const auto product = [=](auto x, uint64_t factor)
                           HWY_ATTR { return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, hn::Set(d, factor))); };
  const auto counter = hn::LoadU(d, counters);
  auto c0 = hn::And(counter, low), c1 = hn::ShiftRight<32>(counter), c2 = hn::Zero(d), c3 = c2;
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto a = product(c0, 0xD2511F53u), b = product(c2, 0xCD9E8D57u);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(b), c1), hn::Set(d, k0));
    c1 = hn::And(b, low);
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(a), c3), hn::Set(d, k1));
    c3 = hn::And(a, low);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const auto first = hn::Or(c0, hn::ShiftLeft<32>(c1)), second = hn::Or(c2, hn::ShiftLeft<32>(c3));
  hn::StoreInterleaved2(first, second, d, reinterpret_cast<uint64_t*>(words));
}
#endif

// random_bits(key, first + i) for i in [0, n). May write up to 4 kBlocks + 3 words more.
// Returns where the first one lies in `words`.
inline const uint32_t* random_words(uint64_t key, uint64_t first, int64_t n, uint32_t* words) {
  const uint64_t last = first + uint64_t(n);
  HWY_ALIGN uint64_t counters[size_t(kBlocks)];
  uint32_t* to = words;
  for (uint64_t block = first / 4; block * 4 < last; block += uint64_t(kBlocks), to += 4 * kBlocks) {
    for (int64_t i = 0; i < kBlocks; ++i) counters[i] = block + uint64_t(i);
    philox_blocks(key, counters, to);
  }
  return words + first % 4;
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif
