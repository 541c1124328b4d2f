#include "weft/ops/cpu/blockwise.h"

#include <bit>
#include <cmath>
#include <limits>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/blockwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE hn::Vec<D> level_of(D d, const uint8_t* codes, const LevelTable& levels) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  return hn::GatherIndex(d, levels.data(), hn::PromoteTo(d32, hn::LoadU(d8, codes)));
}

template <class D>
HWY_INLINE void store_codes(D d, hn::Vec<D> x, const CodeFinder& finder, uint8_t* codes) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const auto upper = hn::ShiftRight<CodeFinder::kShift>(hn::BitCast(d32, hn::Abs(x)));
  const auto known = hn::Min(hn::Max(upper, hn::Set(d32, CodeFinder::kFirst - 1)),
                             hn::Set(d32, CodeFinder::kFirst + CodeFinder::kBuckets - 2));
  const auto bucket = hn::Sub(known, hn::Set(d32, CodeFinder::kFirst - 1));
  const auto below_zero = hn::Lt(hn::BitCast(d32, x), hn::Zero(d32));
  const auto place = hn::IfThenElse(below_zero, hn::Add(bucket, hn::Set(d32, CodeFinder::kBuckets)), bucket);
  const auto first = hn::GatherIndex(d32, finder.first_code.data(), place);
  const auto above = hn::Gt(x, hn::GatherIndex(d, finder.midpoint.data(), first));
  const auto code = hn::Add(first, hn::IfThenElseZero(hn::RebindMask(d32, above), hn::Set(d32, 1)));
  hn::StoreU(hn::DemoteTo(d8, code), d8, codes);
}

template <class V>
struct NewMoments {
  V m, v;
};

// What both ops read of a block, and the new moments of its elements: the same arithmetic, so the same bits.
struct MomentsOfBlock {
  const float* grad;
  const uint8_t *m, *v;
  float m_absmax, v_absmax, scale, beta1, beta2, new1, new2;
  template <class Op>
  MomentsOfBlock(const Op& op, int64_t b)
      : grad(flat<float>(op.grad)),
        m(flat<uint8_t>(op.m)),
        v(flat<uint8_t>(op.v)),
        m_absmax(flat<float>(op.m_absmax)[b]),
        v_absmax(flat<float>(op.v_absmax)[b]),
        scale(float(op.grad_scale)),
        beta1(float(op.beta1)),
        beta2(float(op.beta2)),
        new1(float(1 - op.beta1)),
        new2(float(1 - op.beta2)) {}
  template <class D>
  HWY_INLINE NewMoments<hn::Vec<D>> next(D d, int64_t i) const {
    const auto g = hn::Mul(hn::Set(d, scale), load(d, grad + i));
    const auto m_now = hn::Mul(level_of(d, m + i, kLevelsWithSign), hn::Set(d, m_absmax));
    const auto v_now = hn::Mul(level_of(d, v + i, kLevelsWithoutSign), hn::Set(d, v_absmax));
    return {hn::MulAdd(hn::Set(d, beta1), m_now, hn::Mul(hn::Set(d, new1), g)),
            hn::MulAdd(hn::Set(d, beta2), v_now, hn::Mul(hn::Mul(hn::Set(d, new2), g), g))};
  }
};

void adamw8_max(const AdamW8Max& op, Range blocks) {
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const MomentsOfBlock block(op, b);
    const Lanes lanes;
    const OneLane one;
    Floats m = hn::Zero(lanes), v = m;
    auto m_rest = hn::Zero(one), v_rest = m_rest;
    op.at.for_runs_of(b, op.grad.elements(), [&](int64_t begin, int64_t end) HWY_ATTR {
      int64_t i = begin;
      for (; i + kLanes <= end; i += kLanes) {
        const auto next = block.next(lanes, i);
        m = hn::Max(m, hn::Abs(next.m)), v = hn::Max(v, hn::Abs(next.v));
      }
      for (; i < end; ++i) {
        const auto next = block.next(one, i);
        m_rest = hn::Max(m_rest, hn::Abs(next.m)), v_rest = hn::Max(v_rest, hn::Abs(next.v));
      }
    });
    flat<float>(op.m_max)[b] = std::max(hn::GetLane(hn::MaxOfLanes(lanes, m)), hn::GetLane(m_rest));
    flat<float>(op.v_max)[b] = std::max(hn::GetLane(hn::MaxOfLanes(lanes, v)), hn::GetLane(v_rest));
  }
}

// In a block of zeros, every element gets the code of 0.
HWY_INLINE float divisor_of(float most) { return most > 0 ? most : 1.0f; }

template <class T>
void adamw8_of(const AdamW8& op, Range blocks) {
  const float keep = float(1 - op.lr * op.weight_decay), eps = float(op.eps);
  const float step = float(op.lr / (1 - std::pow(op.beta1, double(op.step))));
  const float root = float(1 / std::sqrt(1 - std::pow(op.beta2, double(op.step))));
  const CodeFinder &m_codes = code_finder(Levels::with_sign), &v_codes = code_finder(Levels::without_sign);
  float* w = flat<float>(op.w);
  uint8_t *m = flat<uint8_t>(op.m), *v = flat<uint8_t>(op.v);
  T* value = flat<T>(op.value);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const MomentsOfBlock block(op, b);
    const float m_max = flat<float>(op.m_max)[b], v_max = flat<float>(op.v_max)[b];
    op.at.for_runs_of(b, op.w.elements(), [&](int64_t begin, int64_t end) HWY_ATTR {
      for_each(end - begin, [&](auto d, int64_t j) HWY_ATTR {
        const int64_t i = begin + j;
        const auto next = block.next(d, i);
        const auto size = hn::MulAdd(hn::Sqrt(next.v), hn::Set(d, root), hn::Set(d, eps));
        const auto moved = hn::Div(hn::Mul(hn::Set(d, step), next.m), size);
        const auto wi = hn::MulSub(load(d, w + i), hn::Set(d, keep), moved);
        store(wi, d, w + i);
        if (value) store(wi, d, value + i);
        store_codes(d, hn::Div(next.m, hn::Set(d, divisor_of(m_max))), m_codes, m + i);
        store_codes(d, hn::Div(next.v, hn::Set(d, divisor_of(v_max))), v_codes, v + i);
      });
    });
    flat<float>(op.m_absmax)[b] = m_max, flat<float>(op.v_absmax)[b] = v_max;
  }
}
void adamw8(const AdamW8& op, Range blocks) {
  with_type_of(op.value, [&]<class T>() { adamw8_of<T>(op, blocks); });
}

void max_rows(const MaxRows& op, Range elements) {
  const auto x = rows_of<float>(op.x);
  float* out = flat<float>(op.out) + elements.begin;
  for_each(elements.size(), [=](auto d, int64_t j) HWY_ATTR {
    auto most = load(d, x[0] + elements.begin + j);
    for (int64_t r = 1; r < x.rows; ++r) most = hn::Max(most, load(d, x[r] + elements.begin + j));
    store(most, d, out + j);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
namespace {

// The first float of a bucket of numbers >= 0.
constexpr float lowest_of(int32_t bucket) {
  return bucket == 0 ? 0 : std::bit_cast<float>((CodeFinder::kFirst - 1 + bucket) << CodeFinder::kShift);
}

constexpr CodeFinder make_finder(Levels which) {
  const LevelTable& levels = levels_of(which);
  CodeFinder finder;
  for (size_t i = 0; i + 1 < levels.size(); ++i) finder.midpoint[i] = (levels[i] + levels[i + 1]) / 2;
  finder.midpoint.back() = std::numeric_limits<float>::infinity();
  size_t up = 0, down = finder.midpoint.size();  // midpoints below x; at most -x
  for (int32_t b = 0; b < CodeFinder::kBuckets; ++b) {
    while (finder.midpoint[up] < lowest_of(b)) ++up;
    while (down > 0 && finder.midpoint[down - 1] > -lowest_of(b + 1)) --down;
    finder.first_code[size_t(b)] = int32_t(up);
    finder.first_code[size_t(CodeFinder::kBuckets + b)] = int32_t(down);
  }
  return finder;
}

constexpr CodeFinder kFinderWithSign = make_finder(Levels::with_sign),
                     kFinderWithoutSign = make_finder(Levels::without_sign);

}  // namespace

const CodeFinder& code_finder(Levels which) {
  return which == Levels::with_sign ? kFinderWithSign : kFinderWithoutSign;
}

HWY_EXPORT(adamw8_max);
HWY_EXPORT(adamw8);
HWY_EXPORT(max_rows);
void adamw8_max(const AdamW8Max& op, Range blocks) { HWY_DYNAMIC_DISPATCH(adamw8_max)(op, blocks); }
void adamw8(const AdamW8& op, Range blocks) { HWY_DYNAMIC_DISPATCH(adamw8)(op, blocks); }
void max_rows(const MaxRows& op, Range elements) { HWY_DYNAMIC_DISPATCH(max_rows)(op, elements); }
}  // namespace weft::cpu
#endif
