#include "weft/ops/cpu/attention_kernels.h"
#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/attention_dropout-inl.h"
#include "weft/ops/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

struct BackwardBlock {
  float *q_t, *dout_t;   // [dim, kBlockRows] scaled queries; gradients of o
  float *q, *dout, *dq;  // [kBlockRows, padded dim]
  float *k, *v;          // [kStripKeys, padded dim]
  float *p, *ds;         // [kStripKeys, kBlockRows] probabilities; gradients of scores
  float* kept;           // [kStripKeys, kBlockRows] factors of dropout
  float *lse, *delta;    // [kBlockRows] log-sum-exp; dout o
  int64_t width;
  BackwardBlock(int64_t dim, float* memory) : width(padded(dim)) {
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    q_t = take(dim * kBlockRows), dout_t = take(dim * kBlockRows);
    q = take(kBlockRows * width), dout = take(kBlockRows * width), dq = take(kBlockRows * width);
    k = take(kStripKeys * width), v = take(kStripKeys * width);
    p = take(kStripKeys * kBlockRows), ds = take(kStripKeys * kBlockRows), kept = take(kStripKeys * kBlockRows);
    lse = take(kBlockRows), delta = take(kBlockRows);
  }
};

// Sums over a head in the order of the products, so that where a row sees one key, dout v - delta is zero.
template <class T>
void read_deltas(const BlockRows<const T>& o, int64_t rows, int64_t dim, const BackwardBlock& f) {
  const Lanes d;
  float* o_t = f.q_t;  // for now
  copy_transposed(o, rows, dim, 1, o_t);
  for (int64_t r = 0; r < rows; r += kLanes) {
    Floats sum = hn::Zero(d);
    for (int64_t at = r; at < dim * kBlockRows; at += kBlockRows)
      sum = hn::MulAdd(hn::LoadU(d, o_t + at), hn::LoadU(d, f.dout_t + at), sum);
    hn::StoreU(sum, d, f.delta + r);
  }
}

template <class T>
void read_rows(const AttentionBackward& op, const QueryBlock& block, const BackwardBlock& f) {
  const int64_t e = op.heads.dim, rows = block.rows();
  const BlockRows<const T> q(rows_of<const T>(op.q), block, e), dout(rows_of<const T>(op.dout), block, e);
  const auto lse = rows_of<const float>(op.lse);
  std::fill_n(f.lse, kBlockRows, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    copy_row(q.at[r], e, f.width, f.q + r * f.width);
    copy_row(dout.at[r], e, f.width, f.dout + r * f.width);
    f.lse[r] = lse[block.first_row() + r / block.heads][block.head + r % block.heads];
  }
  copy_transposed(dout, rows, e, 1, f.dout_t);
  read_deltas(BlockRows<const T>(rows_of<const T>(op.o), block, e), rows, e, f);
  copy_transposed(q, rows, e, float(op.heads.scale), f.q_t);
}

// p becomes what multiplied v; ds, which holds dout v, the gradient of q k.
void differentiate(const AttentionBackward& op, const QueryBlock& block, const Strip& s, const BlockDropout& dropout,
                   const BackwardBlock& f) {
  const Lanes d;
  for_lanes(s, [&](Lanes, int64_t at) HWY_ATTR {
    const auto x = hn::Sub(hn::LoadU(d, f.p + at), hn::LoadU(d, f.lse + at % kBlockRows));
    hn::StoreU(exp2_of_negative(hn::Mul(x, hn::Set(d, kLog2E))), d, f.p + at);
  });
  if (s.partly) for_hidden(block, op.heads, s, [&](int64_t at, int64_t n) { std::fill_n(f.p + at, n, 0.0f); });
  const auto scale = hn::Set(d, float(op.heads.scale));
  if (dropout) dropout.factors(s, f.kept);
  for_lanes(s, [&](Lanes, int64_t at) HWY_ATTR {
    const auto delta = hn::LoadU(d, f.delta + at % kBlockRows), p = hn::LoadU(d, f.p + at);
    auto dp = hn::LoadU(d, f.ds + at);
    if (dropout) {
      const auto kept = hn::LoadU(d, f.kept + at);
      dp = hn::Mul(dp, kept);
      hn::StoreU(hn::Mul(p, kept), d, f.p + at);
    }
    hn::StoreU(hn::Mul(hn::Mul(p, scale), hn::Sub(dp, delta)), d, f.ds + at);
  });
}

template <class T>
void visit_strip(const AttentionBackward& op, const QueryBlock& block, const Strip& s, const BlockDropout& dropout,
                 const BackwardTask& task, const BackwardBlock& f) {
  const int64_t e = op.heads.dim, w = f.width, first = first_lane(s), rows = s.end - s.begin;
  copy_keys(rows_of<const T>(op.k), block, s, e, f.k);
  copy_keys(rows_of<const T>(op.v), block, s, e, f.v);
  Product p{.m = s.keys,
            .n = end_lane(s) - first,
            .k = e,
            .a = f.k,
            .a_stride = w,
            .b = f.q_t + first,
            .b_stride = kBlockRows,
            .c = f.p + first,
            .c_stride = kBlockRows};
  multiply<true>(p);
  p.a = f.v, p.b = f.dout_t + first, p.c = f.ds + first;
  multiply<true>(p);
  differentiate(op, block, s, dropout, f);
  if (task.sums.dk) {
    Product sum{.m = s.keys,
                .n = w,
                .k = rows,
                .a = f.p + s.begin,
                .a_stride = kBlockRows,
                .b = f.dout + s.begin * w,
                .b_stride = w,
                .c = task.sums.dv + s.key * task.sums.dv_stride,
                .c_stride = task.sums.dv_stride,
                .start = Start::add};
    multiply<true>(sum);
    sum.a = f.ds + s.begin, sum.b = f.q + s.begin * w, sum.c = task.sums.dk + s.key * task.sums.dk_stride,
    sum.c_stride = task.sums.dk_stride;
    multiply<true>(sum);
  }
  if (task.dq)
    multiply<false>({.m = rows,
                     .n = w,
                     .k = s.keys,
                     .a = f.ds + s.begin,
                     .a_stride = kBlockRows,
                     .b = f.k,
                     .b_stride = w,
                     .c = f.dq + s.begin * w,
                     .c_stride = w,
                     .start = Start::add});
}

template <class T>
void backward_of(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory) {
  const Range seen = Strips(op.heads, block).keys();
  const Range keys{std::max(seen.begin, task.keys.begin), std::min(seen.end, task.keys.end)};
  if (keys.size() <= 0 && !task.dq) return;
  const BackwardBlock f(op.heads.dim, memory);
  const BlockDropout dropout(op.dropout, op.heads, block);
  read_rows<T>(op, block, f);
  std::fill_n(f.dq, block.rows() * f.width, 0.0f);
  for (int64_t key = keys.begin; key < keys.end;) {
    const Strip s = Strips(op.heads, block).at(key, keys.end);
    visit_strip<T>(op, block, s, dropout, task, f);
    key += s.keys;
  }
  if (!task.dq) return;
  const BlockRows<T> dq(rows_of<T>(op.dq), block, op.heads.dim);
  for (int64_t r = 0; r < block.rows(); ++r)
    for_each(op.heads.dim, [from = f.dq + r * f.width, to = dq.at[r]](auto t, int64_t j)
                               HWY_ATTR { store(load(t, from + j), t, to + j); });
}
void backward_block(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory) {
  is_bf16(op.q) ? backward_of<bf16>(op, block, task, memory) : backward_of<float>(op, block, task, memory);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(backward_block);
int64_t backward_block_floats(int64_t dim) {
  return 2 * dim * kBlockRows + (3 * kBlockRows + 2 * kStripKeys) * padded(dim) + 3 * kStripKeys * kBlockRows +
         2 * kBlockRows;
}
void backward_block(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory) {
  HWY_DYNAMIC_DISPATCH(backward_block)(op, block, task, memory);
}
}  // namespace weft::cpu
#endif
