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

inline constexpr int64_t kPhiloxBlocks = int64_t(HWY_LANES(uint64_t));  // of one vector

#if HWY_TARGET == HWY_SCALAR
inline void philox_blocks(uint64_t key, uint64_t counter, uint32_t* words) {
  const auto block = weft::philox(key, counter);
  std::copy(block.begin(), block.end(), words);
}
#else
using Words = hn::Repartition<uint32_t, Lanes>;
using Pairs = hn::Repartition<uint64_t, Lanes>;

// Four words of a block in the lower half of each 64-bit lane; upper halves are arbitrary.
template <class V = hn::Vec<Pairs> >
struct PhiloxWords {
  V word[4];
};
// counter and key: the lower and upper 32 bits of each, in the lower halves of 64-bit lanes.
template <class V>
HWY_INLINE PhiloxWords<V> philox_of(V counter_low, V counter_high, V key_low, V key_high) {
  const Pairs d;
  const Words w;
  const auto times = [=](V x, uint32_t m) HWY_ATTR { return hn::MulEven(hn::BitCast(w, x), hn::Set(w, m)); };
  V c0 = counter_low, c1 = counter_high, c2 = hn::Zero(d), c3 = hn::Zero(d);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const V a = times(c0, 0xD2511F53u), b = times(c2, 0xCD9E8D57u);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(b), c1), key_low);
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(a), c3), key_high);
    c1 = b;
    c3 = a;
    key_low = hn::Add(key_low, hn::Set(d, uint64_t(0x9E3779B9u)));
    key_high = hn::Add(key_high, hn::Set(d, uint64_t(0xBB67AE85u)));
  }
  return {{c0, c1, c2, c3}};
}

// The words of blocks counter, counter + 1, ..., block by block.
HWY_INLINE void philox_blocks(uint64_t key, uint64_t counter, uint32_t* words) {
  const Pairs d;
  const auto lower = hn::Set(d, uint64_t(0xffffffffu));
  const auto at = hn::Add(hn::Set(d, counter), hn::Iota(d, 0));
  const auto w = philox_of(at, hn::ShiftRight<32>(at), hn::Set(d, key), hn::Set(d, key >> 32));
  const auto first = hn::Or(hn::And(w.word[0], lower), hn::ShiftLeft<32>(w.word[1]));
  const auto second = hn::Or(hn::And(w.word[2], lower), hn::ShiftLeft<32>(w.word[3]));
  hn::StoreInterleaved2(first, second, d, reinterpret_cast<uint64_t*>(words));
}
#endif

// random_bits(key, first + i) for i in [0, n). May write up to 4 kPhiloxBlocks + 3 words more.
// Returns where the first one lies in `words`.
inline const uint32_t* random_words(uint64_t key, uint64_t first, int64_t n, uint32_t* words) {
  const uint64_t last = first + uint64_t(n);
  uint32_t* to = words;
  for (uint64_t block = first / 4; block * 4 < last; block += uint64_t(kPhiloxBlocks), to += 4 * kPhiloxBlocks)
    philox_blocks(key, block, to);
  return words + first % 4;
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif
