// Which probabilities of attention are dropped: random_bits of rng.h for many elements at once.
#if defined(WEFT_OPS_CPU_ATTENTION_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_CPU_ATTENTION_DROPOUT_INL_H_
#undef WEFT_OPS_CPU_ATTENTION_DROPOUT_INL_H_
#else
#define WEFT_OPS_CPU_ATTENTION_DROPOUT_INL_H_
#endif

#include <cmath>

#include "weft/base/rng.h"
#include "weft/ops/cpu/attention_tile-inl.h"
#include "weft/ops/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// Dropout of one block of queries.
class BlockDropout {
 public:
  BlockDropout(const DropoutSpec& spec, const AttentionHeads& h, const QueryBlock& b) : on_(spec.p > 0) {
    if (!on_) return;
    last_dropped_ = uint32_t(std::ceil(spec.p * 0x1p32) - 1);
    scale_ = float(1 / (1 - spec.p));
    position_ = b.span->k_position;
    for (int64_t r = 0; r < kBlockRows; ++r) {
      const int64_t row = std::min(r, b.rows() - 1), head = h.first + b.head + row % b.heads;
      const uint64_t key = rng_key(spec.key, uint64_t(b.span->sample * h.total + head));
      query_[r] = uint32_t(b.position() + row / b.heads);
      key_low_[r] = uint32_t(key);
      key_high_[r] = uint32_t(key >> 32);
    }
  }
  explicit operator bool() const { return on_; }

  // to[key of the strip, row] = 0 where dropped, else 1 / (1 - p), for rows in whole vectors around those of the strip.
  void factors(const Strip& s, float* to) const {
    for (int64_t r = first_lane(s); r < s.end; r += kLanes)
      for (int64_t four = (position_ + s.key) / 4; four * 4 < position_ + s.key + s.keys; ++four)
        factors_of_four(s, r, four, to);
  }

 private:
  // Element (a, b) is word b % 4 of block a << 30 | b / 4 of the sequence.
#if HWY_TARGET == HWY_SCALAR
  void factors_of_four(const Strip& s, int64_t r, int64_t four, float* to) const {
    const uint64_t key = uint64_t(key_high_[r]) << 32 | key_low_[r];
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t at = four * 4 + i - position_ - s.key;
      if (at < 0 || at >= s.keys) continue;
      const uint32_t bits = random_bits(key, uint64_t(query_[r]) << 32 | uint64_t(four * 4 + i));
      to[at * kBlockRows + r] = bits <= last_dropped_ ? 0 : scale_;
    }
  }
#else
  void factors_of_four(const Strip& s, int64_t r, int64_t four, float* to) const {
    const Lanes d;
    const Words w;
    const Pairs d64;
    const auto query = hn::LoadU(w, query_ + r);
    const auto low = hn::Or(hn::ShiftLeft<30>(query), hn::Set(w, uint32_t(four))), high = hn::ShiftRight<2>(query);
    const auto key_low = hn::LoadU(w, key_low_ + r), key_high = hn::LoadU(w, key_high_ + r);
    const auto even = [=](auto x) HWY_ATTR { return hn::BitCast(d64, x); };
    const auto odd = [=](auto x) HWY_ATTR { return hn::ShiftRight<32>(hn::BitCast(d64, x)); };
    const auto evens = philox_of(even(low), even(high), even(key_low), even(key_high));
    const auto odds = philox_of(odd(low), odd(high), odd(key_low), odd(key_high));
    const auto last = hn::Set(w, last_dropped_);
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t key = four * 4 + i - position_ - s.key;
      if (key < 0 || key >= s.keys) continue;
      const auto lower = hn::And(evens.word[i], hn::Set(d64, uint64_t(0xffffffffu)));
      const auto bits = hn::BitCast(w, hn::Or(lower, hn::ShiftLeft<32>(odds.word[i])));
      const auto dropped = hn::RebindMask(d, hn::Eq(hn::Min(bits, last), bits));
      hn::StoreU(hn::IfThenZeroElse(dropped, hn::Set(d, scale_)), d, to + key * kBlockRows + r);
    }
  }
#endif

  bool on_;
  uint32_t last_dropped_ = 0;
  float scale_ = 1;
  int64_t position_ = 0;
  uint32_t query_[size_t(kBlockRows)], key_low_[size_t(kBlockRows)], key_high_[size_t(kBlockRows)];
};

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif
