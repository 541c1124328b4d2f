#include <cmath>
#include <numbers>

#include "weft/ops/cpu/attention_kernels.h"
#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/attention_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/attention_dropout-inl.h"
#include "weft/ops/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr float kLn2 = float(std::numbers::ln2);
constexpr float kLeast = -1e30f;  // the maximum of no scores: finite, so that differences of it are numbers

// One block's running softmax. Scores are in units of ln 2 and lie transposed, [keys, rows]: a vector holds the same
// key of many rows, and sums and maxima over keys need no exchange within vectors.
struct ForwardBlock {
  float* q;                    // [dim, kBlockRows] scaled queries
  float* score;                // [kStripKeys, kBlockRows], then probabilities
  float *k, *v;                // [kStripKeys, padded dim]
  float* o;                    // [kBlockRows, padded dim]
  float *most, *sum, *shrink;  // [kBlockRows] of the scores so far; what the last strip scales earlier sums by
  float* kept;                 // [kStripKeys, kBlockRows] factors of dropout
  int64_t width;
  ForwardBlock(int64_t dim, float* memory) : width(padded(dim)) {
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    q = take(dim * kBlockRows), score = take(kStripKeys * kBlockRows);
    k = take(kStripKeys * width), v = take(kStripKeys * width), o = take(kBlockRows * width);
    most = take(kBlockRows), sum = take(kBlockRows), shrink = take(kBlockRows);
    kept = take(kStripKeys * kBlockRows);
  }
};

// Scores become probabilities relative to the maximum so far.
void softmax_strip(const ForwardBlock& f, const Strip& s) {
  const Lanes d;
  for (int64_t r = first_lane(s); r < s.end; r += kLanes) {
    float* column = f.score + r;
    const auto before = hn::LoadU(d, f.most + r);
    auto m0 = before, m1 = before;
    int64_t i = 0;
    for (; i + 2 <= s.keys; i += 2) {
      m0 = hn::Max(m0, hn::LoadU(d, column + i * kBlockRows));
      m1 = hn::Max(m1, hn::LoadU(d, column + (i + 1) * kBlockRows));
    }
    if (i < s.keys) m0 = hn::Max(m0, hn::LoadU(d, column + i * kBlockRows));
    const auto most = hn::Max(m0, m1), shrink = exp2_of_negative(hn::Sub(before, most));
    auto sum = hn::Zero(d);
    for (i = 0; i < s.keys; ++i) {
      const auto x = hn::LoadU(d, column + i * kBlockRows);
      auto p = exp2_of_negative(hn::Sub(x, most));
      if (s.partly) p = hn::IfThenZeroElse(hn::Eq(x, hn::Set(d, -INFINITY)), p);
      sum = hn::Add(sum, p);
      hn::StoreU(p, d, column + i * kBlockRows);
    }
    hn::StoreU(most, d, f.most + r);
    hn::StoreU(shrink, d, f.shrink + r);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, f.sum + r), shrink, sum), d, f.sum + r);
  }
}

template <class T>
void add_strip(const Attention& op, const QueryBlock& block, const Strip& s, const BlockDropout& dropout,
               const ForwardBlock& f) {
  const int64_t e = op.heads.dim, first = first_lane(s), n = end_lane(s) - first;
  copy_keys(rows_of<const T>(op.k), block, s, e, f.k);
  multiply<true>({.m = s.keys,
                  .n = n,
                  .k = e,
                  .a = f.k,
                  .a_stride = f.width,
                  .b = f.q + first,
                  .b_stride = kBlockRows,
                  .c = f.score + first,
                  .c_stride = kBlockRows});
  if (s.partly)
    for_hidden(block, op.heads, s, [&](int64_t at, int64_t count) { std::fill_n(f.score + at, count, -INFINITY); });
  softmax_strip(f, s);
  if (dropout) {
    dropout.factors(s, f.kept);
    for_lanes(s, [&](Lanes d, int64_t at) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, f.score + at), hn::LoadU(d, f.kept + at)), d, f.score + at);
    });
  }
  copy_keys(rows_of<const T>(op.v), block, s, e, f.v);
  multiply<false>({.m = s.end - s.begin,
                   .n = f.width,
                   .k = s.keys,
                   .a = f.score + s.begin,
                   .a_stride = kBlockRows,
                   .b = f.v,
                   .b_stride = f.width,
                   .c = f.o + s.begin * f.width,
                   .c_stride = f.width,
                   .start = Start::scaled,
                   .factor = f.shrink + s.begin});
}

template <class T>
void write_rows(const Attention& op, const QueryBlock& block, const ForwardBlock& f) {
  const BlockRows<T> o(rows_of<T>(op.o), block, op.heads.dim);
  const auto lse = rows_of<float>(op.lse);
  for (int64_t r = 0; r < block.rows(); ++r) {
    const float inverse = 1 / f.sum[r];
    for_each(op.heads.dim, [from = f.o + r * f.width, to = o.at[r], inverse](auto t, int64_t j)
                               HWY_ATTR { store(hn::Mul(load(t, from + j), hn::Set(t, inverse)), t, to + j); });
    lse[block.first_row() + r / block.heads][block.head + r % block.heads] = kLn2 * (f.most[r] + std::log2(f.sum[r]));
  }
}

template <class T>
void forward_of(const Attention& op, const QueryBlock& block, float* memory) {
  const int64_t e = op.heads.dim;
  const ForwardBlock f(e, memory);
  const BlockDropout dropout(op.dropout, op.heads, block);
  copy_transposed(BlockRows<const T>(rows_of<const T>(op.q), block, e), block.rows(), e, float(op.heads.scale) * kLog2E,
                  f.q);
  std::fill_n(f.o, block.rows() * f.width, 0.0f);
  std::fill_n(f.most, kBlockRows, kLeast);
  std::fill_n(f.sum, kBlockRows, 0.0f);
  const Strips strips(op.heads, block);
  const Range keys = strips.keys();
  for (int64_t key = keys.begin; key < keys.end;) {
    const Strip s = strips.at(key, keys.end);
    add_strip<T>(op, block, s, dropout, f);
    key += s.keys;
  }
  write_rows<T>(op, block, f);
}
void forward_block(const Attention& op, const QueryBlock& block, float* memory) {
  is_bf16(op.q) ? forward_of<bf16>(op, block, memory) : forward_of<float>(op, block, memory);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(forward_block);
int64_t forward_block_floats(int64_t dim) {
  return dim * kBlockRows + 2 * kStripKeys * kBlockRows + (2 * kStripKeys + kBlockRows) * padded(dim) + 3 * kBlockRows;
}
void forward_block(const Attention& op, const QueryBlock& block, float* memory) {
  HWY_DYNAMIC_DISPATCH(forward_block)(op, block, memory);
}
}  // namespace weft::cpu
#endif
