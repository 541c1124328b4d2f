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
  float *q_t, *dout_t;     // [dim, kBlockRows] scaled queries; gradients of o
  float *q, *dout, *dq;    // [kBlockRows, padded dim]
  float *p, *ds;           // [kStripKeys, kBlockRows] probabilities; gradients of scores
  float* kept;             // [kStripKeys, kBlockRows] factors of dropout
  float *lse, *delta;      // [kBlockRows] log-sum-exp; dout o
  float *k, *v, *dk, *dv;  // [rows of the chunk, padded dim]
  int64_t width;
  BackwardMemory(int64_t dim, int64_t chunk, float* memory) : width(padded(dim)) {
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    q_t = take(dim * kBlockRows), dout_t = take(dim * kBlockRows);
    q = take(kBlockRows * width), dout = take(kBlockRows * width), dq = take(kBlockRows * width);
    p = take(kStripKeys * kBlockRows), ds = take(kStripKeys * kBlockRows), kept = take(kStripKeys * kBlockRows);
    lse = take(kBlockRows), delta = take(kBlockRows);
    k = take(chunk * width), v = take(chunk * width), dk = take(chunk * width), dv = take(chunk * width);
  }
};

template <class T>
void begin_keys_of(const AttentionBackward& op, const KeyChunk& chunk, const BackwardMemory& f) {
  copy_keys(rows_of<const T>(op.k), chunk.rows, chunk.kv, op.heads.dim, f.k);
  copy_keys(rows_of<const T>(op.v), chunk.rows, chunk.kv, op.heads.dim, f.v);
  std::fill_n(f.dk, chunk.rows.size() * f.width, 0.0f);
  std::fill_n(f.dv, chunk.rows.size() * f.width, 0.0f);
}
void begin_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory) {
  const BackwardMemory f(op.heads.dim, chunk.rows.size(), memory);
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
  const int64_t e = op.heads.dim, rows = block.rows();
  const BlockRows<const T> q(rows_of<const T>(op.q), block, e), dout(rows_of<const T>(op.dout), block, e);
  const auto lse = rows_of<const float>(op.lse);
  std::fill_n(f.lse, kBlockRows, 0.0f);
  for (int64_t r = 0; r < rows; ++r) {
    copy_row(q[r], e, f.width, f.q + r * f.width);
    copy_row(dout[r], e, f.width, f.dout + r * f.width);
    f.lse[r] = lse[block.first_row() + r / block.heads][block.head + r % block.heads];
  }
  copy_transposed(Rows<float>{f.dout, rows, e, f.width}, rows, e, 1, f.dout_t);
  read_deltas(BlockRows<const T>(rows_of<const T>(op.o), block, e), rows, e, f);
  copy_transposed(Rows<float>{f.q, rows, e, f.width}, rows, e, float(op.heads.scale), f.q_t);
}

constexpr int64_t kFetchesPerStrip = 3;  // at least
// Prefetches, little by little, what read_rows will read for the next block.
template <class T>
class NextRows {
 public:
  NextRows(const AttentionBackward& op, const QueryBlock* next, int64_t times) : dim_(op.heads.dim) {
    if (next == nullptr || times == 0) return;
    q_ = BlockRows<const T>(rows_of<const T>(op.q), *next, dim_);
    o_ = BlockRows<const T>(rows_of<const T>(op.o), *next, dim_);
    dout_ = BlockRows<const T>(rows_of<const T>(op.dout), *next, dim_);
    rows_ = next->rows();
    step_ = (rows_ + times - 1) / times;
  }
  void fetch() {
    for (const int64_t end = std::min(rows_, row_ + step_); row_ < end; ++row_) {
      prefetch(q_[row_], dim_);
      prefetch(o_[row_], dim_);
      prefetch(dout_[row_], dim_);
    }
  }

 private:
  int64_t dim_, rows_ = 0, row_ = 0, step_ = 0;
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
  const int64_t w = f.width, first = first_lane(s), rows = s.end - s.begin;
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
  p.a = f.v + at * w, p.b = f.dout_t + first, p.c = f.ds + first;
  multiply<true>(p);
  next.fetch();
  differentiate(op, block, s, dropout, f);
  Product sum{.m = s.keys,
              .n = w,
              .k = rows,
              .a = f.p + s.begin,
              .a_stride = kBlockRows,
              .b = f.dout + s.begin * w,
              .b_stride = w,
              .c = f.dv + at * w,
              .c_stride = w,
              .start = Start::add};
  if (task.key_sums) {
    multiply<true>(sum);
    next.fetch();
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
    std::fill_n(f.dq, block.rows() * f.width, 0.0f);
    return;
  }
  const BlockRows<float> from(task.unfinished, block, dim);
  for (int64_t r = 0; r < block.rows(); ++r) copy_row(from[r], dim, f.width, f.dq + r * f.width);
}
template <class T>
void end_dq(const Rows<T>& to, const QueryBlock& block, int64_t dim, const BackwardMemory& f) {
  const BlockRows<T> dq(to, block, dim);
  for (int64_t r = 0; r < block.rows(); ++r)
    for_each(dim, [from = f.dq + r * f.width, to = dq[r]](auto t, int64_t j)
                      HWY_ATTR { store(load(t, from + j), t, to + j); });
}

template <class T>
void backward_of(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory) {
  const int64_t begin = task.chunk.rows.begin - block.span->k_row, end = task.chunk.rows.end - block.span->k_row;
  const Range seen = Strips(op.heads, block).keys();
  if (std::min(end, seen.end) <= std::max(begin, seen.begin)) return;
  const BackwardMemory f(op.heads.dim, task.chunk.rows.size(), memory);
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
  const auto dk = rows_of<T>(op.dk), dv = rows_of<T>(op.dv);
  for (int64_t i = 0, column = chunk.kv * op.heads.dim; i < chunk.rows.size(); ++i)
    for_each(op.heads.dim,
             [from_k = f.dk + i * f.width, from_v = f.dv + i * f.width, to_k = dk[chunk.rows.begin + i] + column,
              to_v = dv[chunk.rows.begin + i] + column](auto t, int64_t j) HWY_ATTR {
               store(load(t, from_k + j), t, to_k + j);
               store(load(t, from_v + j), t, to_v + j);
             });
}
void end_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory) {
  const BackwardMemory f(op.heads.dim, chunk.rows.size(), memory);
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
int64_t backward_floats(int64_t dim, int64_t most_rows) {
  return 2 * dim * kBlockRows + (3 * kBlockRows + 4 * most_rows) * padded(dim) + 3 * kStripKeys * kBlockRows +
         2 * kBlockRows;
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
