#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/ops/cpu/attention_kernels.h"
#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/attention_one_query.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

// The heads of a set for one query. Keys and values are read where they lie, once for up to kMostTogether heads.
constexpr int64_t kMostTogether = 4;
constexpr float kNone = -1e30f;  // the maximum of no scores: finite, so that differences of it are numbers

struct OneQuery {
  float *q, *o;       // [heads, padded dim] scaled, in units of ln 2; [heads, padded value_dim]
  float* score;       // [heads, kStripKeys] scores, then probabilities
  float *most, *sum;  // [heads]
  OneQuery(const AttentionHeads& h, float* memory) {
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    q = take(kMostHeads * padded(h.dim)), o = take(kMostHeads * padded(h.value_dim()));
    score = take(kMostHeads * kStripKeys), most = take(kMostHeads), sum = take(kMostHeads);
  }
};

// A vector of row[at ...] of n elements, with zeros behind them.
template <class T>
HWY_INLINE Floats load_part(const T* row, int64_t at, int64_t n) {
  if (at + kLanes <= n) return load(Lanes(), row + at);
  HWY_ALIGN T part[size_t(kLanes)] = {};
  std::copy(row + at, row + n, part);
  return load(Lanes(), part);
}

// Some rows of keys or values of a head: row i begins at `at` + i * stride.
template <class T>
struct HeadOfRows {
  const T* at;
  int64_t stride, dim;
  const T* operator[](int64_t i) const { return at + i * stride; }
};

// score[head][key] for kKeys keys from `key` on and kHeads heads.
template <int kHeads, int kKeys, class T>
HWY_INLINE void score_keys(const OneQuery& m, const HeadOfRows<T>& k, int64_t head, int64_t key) {
  const Lanes d;
  const float* q = m.q + head * padded(k.dim);
  Floats sums[size_t(kHeads * kKeys)];
#pragma GCC unroll 8
  for (int s = 0; s < kHeads * kKeys; ++s) sums[s] = hn::Zero(d);
  for (int64_t c = 0; c < k.dim; c += kLanes) {
    Floats of_q[size_t(kHeads)];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) of_q[h] = hn::LoadU(d, q + h * padded(k.dim) + c);
#pragma GCC unroll 8
    for (int j = 0; j < kKeys; ++j) {
      const Floats of_k = load_part(k[key + j], c, k.dim);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) sums[h * kKeys + j] = hn::MulAdd(of_q[h], of_k, sums[h * kKeys + j]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 8
    for (int j = 0; j < kKeys; ++j)
      m.score[(head + h) * kStripKeys + key + j] = hn::GetLane(hn::SumOfLanes(d, sums[h * kKeys + j]));
}
template <int kHeads, class T>
void score_strip(const OneQuery& m, const HeadOfRows<T>& k, int64_t head, int64_t keys) {
  constexpr int kKeys = 8 / kHeads;
  int64_t key = 0;
  for (; key + kKeys <= keys; key += kKeys) score_keys<kHeads, kKeys>(m, k, head, key);
  for (; key < keys; ++key) score_keys<kHeads, 1>(m, k, head, key);
}

// Scores of a head become probabilities relative to the maximum so far. Returns what earlier sums shrink by.
float softmax_of_strip(const OneQuery& m, int64_t head, int64_t keys, float softcap) {
  const Lanes d;
  float* score = m.score + head * kStripKeys;
  const int64_t end = (keys + kLanes - 1) / kLanes * kLanes;
  if (softcap > 0)
    for (int64_t i = 0; i < end; i += kLanes)
      hn::StoreU(hn::Mul(hn::Set(d, softcap), tanh(d, hn::Mul(hn::LoadU(d, score + i), hn::Set(d, 1 / softcap)))), d,
                 score + i);
  std::fill(score + keys, score + end, -INFINITY);
  auto most = hn::Set(d, m.most[head]);
  for (int64_t i = 0; i < end; i += kLanes) most = hn::Max(most, hn::LoadU(d, score + i));
  most = hn::MaxOfLanes(d, most);
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < end; i += kLanes) {
    const auto x = hn::LoadU(d, score + i);
    const auto p = hn::IfThenZeroElse(hn::Eq(x, hn::Set(d, -INFINITY)), exp2_of_negative(hn::Sub(x, most)));
    hn::StoreU(p, d, score + i);
    sum = hn::Add(sum, p);
  }
  const float shrink = hn::GetLane(exp2_of_negative(hn::Sub(hn::Set(d, m.most[head]), most)));
  m.most[head] = hn::GetLane(most);
  m.sum[head] = m.sum[head] * shrink + hn::GetLane(hn::SumOfLanes(d, sum));
  return shrink;
}

// o = shrink o + the sum over keys of probability times value, for kHeads heads and kVectors vectors from column c on.
template <int kHeads, int kVectors, class T>
HWY_INLINE void add_columns(const OneQuery& m, const HeadOfRows<T>& v, int64_t head, int64_t c, int64_t keys,
                            const float* shrink) {
  const Lanes d;
  Floats sums[size_t(kHeads * kVectors)];
  const auto o_at = [&](int h, int i) { return m.o + (head + h) * padded(v.dim) + c + i * kLanes; };
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i)
      sums[h * kVectors + i] = hn::Mul(hn::LoadU(d, o_at(h, i)), hn::Set(d, shrink[h]));
  const float* p = m.score + head * kStripKeys;
  for (int64_t key = 0; key < keys; ++key) {
    Floats of_v[size_t(kVectors)];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) of_v[i] = load_part(v[key], c + i * kLanes, v.dim);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const auto factor = hn::Set(d, p[h * kStripKeys + key]);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) sums[h * kVectors + i] = hn::MulAdd(factor, of_v[i], sums[h * kVectors + i]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) hn::StoreU(sums[h * kVectors + i], d, o_at(h, i));
}

template <int kHeads, class T>
void add_strip_for(const Attention& op, const OneQuery& m, const HeadOfRows<T>& k, const HeadOfRows<T>& v, int64_t head,
                   int64_t keys) {
  score_strip<kHeads>(m, k, head, keys);
  float shrink[size_t(kHeads)];
  for (int h = 0; h < kHeads; ++h) shrink[h] = softmax_of_strip(m, head + h, keys, float(op.heads.softcap) * kLog2E);
  int64_t c = 0;
  for (; c + 4 * kLanes <= v.dim; c += 4 * kLanes) add_columns<kHeads, 4>(m, v, head, c, keys, shrink);
  for (; c < v.dim; c += kLanes) add_columns<kHeads, 1>(m, v, head, c, keys, shrink);
}

template <class T>
void prefetch_rows(const HeadOfRows<T>& x, Range rows) {
  for (int64_t i = rows.begin; i < rows.end; ++i) prefetch(x[i], x.dim);
}

// Each head's sums are the same whichever heads are computed beside it.
template <class T>
void add_strip(const Attention& op, const OneQuery& m, const HeadOfRows<T>& k, const HeadOfRows<T>& v, int64_t heads,
               int64_t keys) {
  int64_t head = 0;
  for (; head + kMostTogether <= heads; head += kMostTogether) add_strip_for<kMostTogether>(op, m, k, v, head, keys);
  for (; head + 2 <= heads; head += 2) add_strip_for<2>(op, m, k, v, head, keys);
  if (head < heads) add_strip_for<1>(op, m, k, v, head, keys);
}

template <class T>
void begin_heads(const Attention& op, const QueryBlock& block, const OneQuery& m) {
  const int64_t e = op.heads.dim;
  const float scale = float(op.heads.scale) * kLog2E;
  const BlockRows<const T> q(rows_of<const T>(op.q), block, e);
  for (int64_t h = 0; h < block.heads; ++h) {
    float* to = m.q + h * padded(e);
    copy_row(q[h], e, padded(e), to);
    for (int64_t c = 0; c < e; ++c) to[c] *= scale;
  }
  std::fill_n(m.o, block.heads * padded(op.heads.value_dim()), 0.0f);
  std::fill_n(m.most, block.heads, kNone);
  std::fill_n(m.sum, block.heads, 0.0f);
}

template <class T>
void write_heads(const Attention& op, const QueryBlock& block, const OneQuery& m) {
  const int64_t u = op.heads.value_dim();
  const BlockRows<T> o(rows_of<T>(op.o), block, u);
  for (int64_t h = 0; h < block.heads; ++h) {
    const float inverse = 1 / m.sum[h];
    for_each(u, [from = m.o + h * padded(u), to = o[h], inverse](auto t, int64_t j)
                    HWY_ATTR { store(hn::Mul(load(t, from + j), hn::Set(t, inverse)), t, to + j); });
    rows_of<float>(op.lse)[block.first_row()][block.head + h] =
        float(std::numbers::ln2) * (m.most[h] + std::log2(m.sum[h]));
  }
}

template <class T>
void one_query_of(const Attention& op, const QueryBlock& block, float* memory) {
  const OneQuery m(op.heads, memory);
  begin_heads<T>(op, block, m);
  const Range keys = Strips(op.heads, block).keys();
  const int64_t first = block.span->k_row + keys.begin, n = keys.size();
  const auto rows = [&](const Tensor& x, int64_t dim, int64_t row) {
    const Rows<const T> all = rows_of<const T>(x);
    return HeadOfRows<T>{all[first + row] + block.kv * dim, all.stride, dim};
  };
  for (int64_t key = 0; key < n; key += kStripKeys) {
    const HeadOfRows<T> k = rows(op.k, op.heads.dim, key), v = rows(op.v, op.heads.value_dim(), key);
    const Range next{std::min(n - key, kStripKeys), std::min(n - key, 2 * kStripKeys)};
    prefetch_rows(k, next), prefetch_rows(v, next);
    add_strip(op, m, k, v, block.heads, next.begin);
  }
  write_heads<T>(op, block, m);
}
void one_query(const Attention& op, const QueryBlock& block, float* memory) {
  with_type_of(op.q, [&]<class T>() { one_query_of<T>(op, block, memory); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(one_query);
int64_t one_query_floats(const AttentionHeads& h) {
  return kMostHeads * (padded(h.dim) + padded(h.value_dim()) + kStripKeys + 2);
}
void one_query(const Attention& op, const QueryBlock& block, float* memory) {
  HWY_DYNAMIC_DISPATCH(one_query)(op, block, memory);
}
}  // namespace weft::cpu
#endif
