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

struct BackwardMemory {
  float *q_t, *dout_t;     // [dim, kBlockRows] scaled queries; [value_dim, kBlockRows] gradients of o
  float *q, *dq, *dout;    // [kBlockRows, padded dim], but dout: padded value_dim
  float *p, *ds;           // [kStripKeys, kBlockRows] probabilities; gradients of scores
  float* kept;             // [kStripKeys, kBlockRows] factors of dropout
  float *lse, *delta;      // [kBlockRows] log-sum-exp; dout o
  float *k, *v, *dk, *dv;  // [rows of the chunk, padded dim or value_dim]
  int64_t k_width, v_width;
  BackwardMemory(const AttentionHeads& h, int64_t chunk, float* memory)
      : k_width(padded(h.dim)), v_width(padded(h.value_dim())) {
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    q_t = take(std::max(h.dim, h.value_dim()) * kBlockRows);  // o first
    dout_t = take(h.value_dim() * kBlockRows);
    q = take(kBlockRows * k_width), dq = take(kBlockRows * k_width), dout = take(kBlockRows * v_width);
    p = take(kStripKeys * kBlockRows), ds = take(kStripKeys * kBlockRows), kept = take(kStripKeys * kBlockRows);
    lse = take(kBlockRows), delta = take(kBlockRows);
    k = take(chunk * k_width), v = take(chunk * v_width), dk = take(chunk * k_width), dv = take(chunk * v_width);
  }
};

template <class T>
void begin_keys_of(const AttentionBackward& op, const KeyChunk& chunk, const BackwardMemory& f) {
  copy_keys(rows_of<const T>(op.k), chunk.rows, chunk.kv, op.heads.dim, f.k);
  copy_keys(rows_of<const T>(op.v), chunk.rows, chunk.kv, op.heads.value_dim(), f.v);
  std::fill_n(f.dk, chunk.rows.size() * f.k_width, 0.0f);
  std::fill_n(f.dv, chunk.rows.size() * f.v_width, 0.0f);
}
void begin_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory) {
  const BackwardMemory f(op.heads, chunk.rows.size(), memory);
  with_type_of(op.k, [&]<class T>() { begin_keys_of<T>(op, chunk, f); });
}

// Sums over a head in the order of the products, so that where a row sees one key, dout v - delta is zero.
template <class T>
void read_deltas(const BlockRows<const T>& o, int64_t rows, int64_t dim, const BackwardMemory& f) {
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
void read_rows(const AttentionBackward& op, const QueryBlock& block, const BackwardMemory& f) {
  const int64_t e = op.heads.dim, u = op.heads.value_dim(), rows = block.rows();
  const BlockRows<const T> q(rows_of<const T>(op.q), block, e), dout(rows_of<const T>(op.dout), block, u);
  const auto lse = rows_of<const float>(op.lse);
  std::fill_n(f.lse, kBlockRows, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    copy_row(q[r], e, f.k_width, f.q + r * f.k_width);
    copy_row(dout[r], u, f.v_width, f.dout + r * f.v_width);
    f.lse[r] = lse[block.first_row() + r / block.heads][block.head + r % block.heads];
  }
  copy_transposed(Rows<float>{f.dout, rows, u, f.v_width}, rows, u, 1, f.dout_t);
  read_deltas(BlockRows<const T>(rows_of<const T>(op.o), block, u), rows, u, f);
  copy_transposed(Rows<float>{f.q, rows, e, f.k_width}, rows, e, float(op.heads.scale), f.q_t);
}

constexpr int64_t kFetchesPerStrip = 3;  // at least
// Prefetches, little by little, what read_rows will read for the next block.
template <class T>
class NextRows {
 public:
  NextRows(const AttentionBackward& op, const QueryBlock* next, int64_t times)
      : dim_(op.heads.dim), v_dim_(op.heads.value_dim()) {
    if (next == nullptr || times == 0) return;
    q_ = BlockRows<const T>(rows_of<const T>(op.q), *next, dim_);
    o_ = BlockRows<const T>(rows_of<const T>(op.o), *next, v_dim_);
    dout_ = BlockRows<const T>(rows_of<const T>(op.dout), *next, v_dim_);
    rows_ = next->rows();
    step_ = (rows_ + times - 1) / times;
  }
  void fetch() {
    for (const int64_t end = std::min(rows_, row_ + step_); row_ < end; ++row_) {
      prefetch(q_[row_], dim_);
      prefetch(o_[row_], v_dim_);
      prefetch(dout_[row_], v_dim_);
    }
  }

 private:
  int64_t dim_, v_dim_, rows_ = 0, row_ = 0, step_ = 0;
  BlockRows<const T> q_, o_, dout_;
};

// p becomes what multiplied v; ds, which holds dout v, the gradient of q k.
void differentiate(const AttentionBackward& op, const QueryBlock& block, const Strip& s, const BlockDropout& dropout,
                   const BackwardMemory& f) {
  const Lanes d;
  const float cap = float(op.heads.softcap);
  const auto scale = hn::Set(d, float(op.heads.scale)), inverse_cap = hn::Set(d, cap > 0 ? 1 / cap : 0);
  if (dropout) dropout.factors(s, f.kept);
  for_lanes(s, [&](Lanes, int64_t at) HWY_ATTR {
    auto score = hn::LoadU(d, f.p + at), slope = scale, dp = hn::LoadU(d, f.ds + at);
    if (cap > 0) {
      const auto t = tanh(d, hn::Mul(score, inverse_cap));
      score = hn::Mul(hn::Set(d, cap), t);
      slope = hn::Mul(scale, hn::NegMulAdd(t, t, hn::Set(d, 1.0f)));
    }
    const auto delta = hn::LoadU(d, f.delta + at % kBlockRows), lse = hn::LoadU(d, f.lse + at % kBlockRows);
    const auto p = exp2_of_negative(hn::Mul(hn::Sub(score, lse), hn::Set(d, kLog2E)));
    auto kept = p;
    if (dropout) {
      const auto factor = hn::LoadU(d, f.kept + at);
      dp = hn::Mul(dp, factor);
      kept = hn::Mul(p, factor);
    }
    hn::StoreU(kept, d, f.p + at);
    hn::StoreU(hn::Mul(hn::Mul(p, slope), hn::Sub(dp, delta)), d, f.ds + at);
  });
  if (!s.partly) return;
  for_hidden(block, op.heads, s, [&](int64_t at, int64_t n) {
    std::fill_n(f.p + at, n, 0.0f);
    std::fill_n(f.ds + at, n, 0.0f);
  });
}

// at: the strip's first key in the chunk.
template <class T>
void visit_strip(const AttentionBackward& op, const QueryBlock& block, const Strip& s, const BlockDropout& dropout,
                 const BackwardTask& task, const BackwardMemory& f, int64_t at, NextRows<T>& next) {
  const int64_t w = f.k_width, u = f.v_width, first = first_lane(s), rows = s.end - s.begin;
  Product p{.m = s.keys,
            .n = end_lane(s) - first,
            .k = op.heads.dim,
            .a = f.k + at * w,
            .a_stride = w,
            .b = f.q_t + first,
            .b_stride = kBlockRows,
            .c = f.p + first,
            .c_stride = kBlockRows};
  multiply<true>(p);
  next.fetch();
  p.k = op.heads.value_dim(), p.a = f.v + at * u, p.a_stride = u, p.b = f.dout_t + first, p.c = f.ds + first;
  multiply<true>(p);
  next.fetch();
  differentiate(op, block, s, dropout, f);
  Product sum{.m = s.keys,
              .n = u,
              .k = rows,
              .a = f.p + s.begin,
              .a_stride = kBlockRows,
              .b = f.dout + s.begin * u,
              .b_stride = u,
              .c = f.dv + at * u,
              .c_stride = u,
              .start = Start::add};
  if (task.key_sums) {
    multiply<true>(sum);
    next.fetch();
  }
  sum.n = sum.b_stride = sum.c_stride = w;
  if (task.key_sums) {
    sum.a = f.ds + s.begin, sum.b = f.q + s.begin * w, sum.c = f.dk + at * w;
    multiply<true>(sum);
  }
  sum.m = rows, sum.k = s.keys, sum.a = f.ds + s.begin, sum.b = f.k + at * w, sum.c = f.dq + s.begin * w;
  next.fetch();
  if (task.dq) multiply<false>(sum);
}

// dq of a block so far, from where it waits, and back or, with the last of its keys, out.
void begin_dq(const QueryBlock& block, const BackwardTask& task, bool first, int64_t dim, const BackwardMemory& f) {
  if (first) {
    std::fill_n(f.dq, block.rows() * f.k_width, 0.0f);
    return;
  }
  const BlockRows<float> from(task.unfinished, block, dim);
  for (int64_t r = 0; r < block.rows(); ++r) copy_row(from[r], dim, f.k_width, f.dq + r * f.k_width);
}
template <class T>
void end_dq(const Rows<T>& to, const QueryBlock& block, int64_t dim, const BackwardMemory& f) {
  const BlockRows<T> dq(to, block, dim);
  for (int64_t r = 0; r < block.rows(); ++r)
    for_each(dim, [from = f.dq + r * f.k_width, to = dq[r]](auto t, int64_t j)
                      HWY_ATTR { store(load(t, from + j), t, to + j); });
}

template <class T>
void backward_of(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory) {
  const int64_t begin = task.chunk.rows.begin - block.span->k_row, end = task.chunk.rows.end - block.span->k_row;
  const Range seen = Strips(op.heads, block).keys();
  if (std::min(end, seen.end) <= std::max(begin, seen.begin)) return;
  const BackwardMemory f(op.heads, task.chunk.rows.size(), memory);
  const BlockDropout dropout(op.dropout, op.heads, block);
  read_rows<T>(op, block, f);
  if (task.dq) begin_dq(block, task, begin <= seen.begin, op.heads.dim, f);
  int64_t strips = 0;
  for_strips(op.heads, block, {begin, end}, [&](const Strip&) { ++strips; });
  NextRows<T> next(op, task.next, strips * kFetchesPerStrip);
  for_strips(op.heads, block, {begin, end},
             [&](const Strip& s) { visit_strip<T>(op, block, s, dropout, task, f, s.key - begin, next); });
  if (!task.dq) return;
  if (end < seen.end)
    end_dq(task.unfinished, block, op.heads.dim, f);
  else
    end_dq(rows_of<T>(op.dq), block, op.heads.dim, f);
}
void backward_block(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory) {
  with_type_of(op.q, [&]<class T>() { backward_of<T>(op, block, task, memory); });
}

template <class T>
void end_keys_of(const AttentionBackward& op, const KeyChunk& chunk, const BackwardMemory& f) {
  const auto write = [&](const Tensor& x, int64_t dim, const float* from) {
    const auto to = rows_of<T>(x);
    for (int64_t i = chunk.rows.begin; i < chunk.rows.end; ++i, from += padded(dim))
      for_each(dim, [from, to = to[i] + chunk.kv * dim](auto t, int64_t j)
                        HWY_ATTR { store(load(t, from + j), t, to + j); });
  };
  write(op.dk, op.heads.dim, f.dk);
  write(op.dv, op.heads.value_dim(), f.dv);
}
void end_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory) {
  const BackwardMemory f(op.heads, chunk.rows.size(), memory);
  with_type_of(op.k, [&]<class T>() { end_keys_of<T>(op, chunk, f); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(begin_keys);
HWY_EXPORT(backward_block);
HWY_EXPORT(end_keys);
int64_t backward_floats(const AttentionHeads& h, int64_t most_rows) {
  const int64_t e = h.dim, u = h.value_dim();
  return (std::max(e, u) + u) * kBlockRows + (2 * kBlockRows + 2 * most_rows) * padded(e) +
         (kBlockRows + 2 * most_rows) * padded(u) + 3 * kStripKeys * kBlockRows + 2 * kBlockRows;
}
void begin_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory) {
  HWY_DYNAMIC_DISPATCH(begin_keys)(op, chunk, memory);
}
void backward_block(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory) {
  HWY_DYNAMIC_DISPATCH(backward_block)(op, block, task, memory);
}
void end_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory) {
  HWY_DYNAMIC_DISPATCH(end_keys)(op, chunk, memory);
}
}  // namespace weft::cpu
#endif
