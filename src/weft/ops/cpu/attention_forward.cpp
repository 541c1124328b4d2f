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

// The running softmax of a block's rows.
struct Running {
  float* q;           // [dim, kBlockRows] scaled queries
  float* o;           // [kBlockRows, padded value_dim]
  float *most, *sum;  // [kBlockRows] of the scores so far
};
struct ForwardMemory {
  float *k, *v;         // [kStripKeys, padded dim], [kStripKeys, padded value_dim]
  float *score, *kept;  // [kStripKeys, kBlockRows] scores in units of ln 2, then probabilities; factors of dropout
  float* shrink;        // [kBlockRows] what the last strip scales earlier sums by
  Running running[size_t(kGroupBlocks)];
  int64_t k_width, v_width;
  ForwardMemory(const AttentionHeads& h, float* memory) : k_width(padded(h.dim)), v_width(padded(h.value_dim())) {
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    k = take(kStripKeys * k_width), v = take(kStripKeys * v_width);
    score = take(kStripKeys * kBlockRows), kept = take(kStripKeys * kBlockRows), shrink = take(kBlockRows);
    for (Running& r : running)
      r = {take(h.dim * kBlockRows), take(kBlockRows * v_width), take(kBlockRows), take(kBlockRows)};
  }
};

// Scores become probabilities relative to the maximum so far.
void softmax_strip(const ForwardMemory& f, const Running& r, const Strip& s) {
  const Lanes d;
  for (int64_t row = first_lane(s); row < s.end; row += kLanes) {
    float* column = f.score + row;
    const auto before = hn::LoadU(d, r.most + row);
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
    hn::StoreU(most, d, r.most + row);
    hn::StoreU(shrink, d, f.shrink + row);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, r.sum + row), shrink, sum), d, r.sum + row);
  }
}

// The strip begins with the key `in_tile` of f.k and f.v.
void add_strip(const Attention& op, const QueryBlock& block, const Strip& s, const BlockDropout& dropout,
               const ForwardMemory& f, const Running& r, int64_t in_tile) {
  const int64_t first = first_lane(s);
  multiply<true>({.m = s.keys,
                  .n = end_lane(s) - first,
                  .k = op.heads.dim,
                  .a = f.k + in_tile * f.k_width,
                  .a_stride = f.k_width,
                  .b = r.q + first,
                  .b_stride = kBlockRows,
                  .c = f.score + first,
                  .c_stride = kBlockRows});
  if (op.heads.softcap > 0) cap_scores(s, float(op.heads.softcap) * kLog2E, f.score);
  if (s.partly)
    for_hidden(block, op.heads, s, [&](int64_t at, int64_t count) { std::fill_n(f.score + at, count, -INFINITY); });
  softmax_strip(f, r, s);
  if (dropout) {
    dropout.factors(s, f.kept);
    for_lanes(s, [&](Lanes d, int64_t at) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, f.score + at), hn::LoadU(d, f.kept + at)), d, f.score + at);
    });
  }
  multiply<false>({.m = s.end - s.begin,
                   .n = f.v_width,
                   .k = s.keys,
                   .a = f.score + s.begin,
                   .a_stride = kBlockRows,
                   .b = f.v + in_tile * f.v_width,
                   .b_stride = f.v_width,
                   .c = r.o + s.begin * f.v_width,
                   .c_stride = f.v_width,
                   .start = Start::scaled,
                   .factor = f.shrink + s.begin});
}

template <class T>
void begin_rows(const Attention& op, const QueryBlock& block, const Running& r) {
  const int64_t e = op.heads.dim;
  copy_transposed(BlockRows<const T>(rows_of<const T>(op.q), block, e), block.rows(), e, float(op.heads.scale) * kLog2E,
                  r.q);
  std::fill_n(r.o, block.rows() * padded(op.heads.value_dim()), 0.0f);
  std::fill_n(r.most, kBlockRows, kLeast);
  std::fill_n(r.sum, kBlockRows, 0.0f);
}

template <class T>
void write_rows(const Attention& op, const QueryBlock& block, const Running& running) {
  const int64_t u = op.heads.value_dim();
  const BlockRows<T> o(rows_of<T>(op.o), block, u);
  const auto lse = rows_of<float>(op.lse);
  for (int64_t r = 0; r < block.rows(); ++r) {
    const float inverse = 1 / running.sum[r];
    for_each(u, [from = running.o + r * padded(u), to = o[r], inverse](auto t, int64_t j)
                    HWY_ATTR { store(hn::Mul(load(t, from + j), hn::Set(t, inverse)), t, to + j); });
    lse[block.first_row() + r / block.heads][block.head + r % block.heads] =
        kLn2 * (running.most[r] + std::log2(running.sum[r]));
  }
}

// Keys that any of the blocks sees.
Range keys_of(const AttentionHeads& h, std::span<const QueryBlock> blocks) {
  return {Strips(h, blocks.front()).keys().begin, Strips(h, blocks.back()).keys().end};
}

template <class T>
void forward_of(const Attention& op, std::span<const QueryBlock> blocks, float* memory) {
  const AttentionSpan& span = *blocks.front().span;
  const ForwardMemory f(op.heads, memory);
  for (size_t i = 0; i < blocks.size(); ++i) begin_rows<T>(op, blocks[i], f.running[i]);
  const Range keys = keys_of(op.heads, blocks);
  for (Range tile{keys.begin, keys.begin}; tile.begin < keys.end; tile.begin = tile.end) {
    tile.end = std::min(keys.end, tile_end(span, tile.begin));
    const Range rows{span.k_row + tile.begin, span.k_row + tile.end};
    copy_keys(rows_of<const T>(op.k), rows, blocks.front().kv, op.heads.dim, f.k);
    copy_keys(rows_of<const T>(op.v), rows, blocks.front().kv, op.heads.value_dim(), f.v);
    for (size_t i = 0; i < blocks.size(); ++i)
      for_strips(op.heads, blocks[i], tile, [&](const Strip& s) {
        add_strip(op, blocks[i], s, BlockDropout(op.dropout, op.heads, blocks[i]), f, f.running[i], s.key - tile.begin);
      });
  }
  for (size_t i = 0; i < blocks.size(); ++i) write_rows<T>(op, blocks[i], f.running[i]);
}
void forward_blocks(const Attention& op, std::span<const QueryBlock> blocks, float* memory) {
  with_type_of(op.q, [&]<class T>() { forward_of<T>(op, blocks, memory); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(forward_blocks);
int64_t forward_floats(const AttentionHeads& h) {
  const int64_t running = h.dim * kBlockRows + kBlockRows * padded(h.value_dim()) + 2 * kBlockRows;
  return kStripKeys * (padded(h.dim) + padded(h.value_dim())) + 2 * kStripKeys * kBlockRows + kBlockRows +
         kGroupBlocks * running;
}
void forward_blocks(const Attention& op, std::span<const QueryBlock> blocks, float* memory) {
  HWY_DYNAMIC_DISPATCH(forward_blocks)(op, blocks, memory);
}
}  // namespace weft::cpu
#endif
