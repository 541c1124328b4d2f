// Reference kernels: attention, forward and backward, one query at a time.
#pragma once
#include <cmath>
#include <complex>
#include <span>
#include <vector>

#include "weft/base/rng.h"
#include "weft/ops/ops.h"
#include "weft/ops/ref/matrix.h"

namespace weft::ref {

inline double real_part(double x) { return x; }
inline double real_part(std::complex<double> x) { return x.real(); }

// A query at position p sees keys in (p - window, p].
inline bool sees(const AttentionHeads& h, int64_t query, int64_t key) {
  return key <= query && (h.window == 0 || key > query - h.window);
}

// 0 where probability (query, key) of a head is dropped, else 1 / (1 - p).
struct AttentionMask {
  DropoutSpec dropout;
  uint64_t key;
  AttentionMask(const DropoutSpec& d, const AttentionHeads& h, int64_t sample, int64_t head)
      : dropout(d), key(rng_key(d.key, uint64_t(sample * h.total + h.first + head))) {}
  double operator()(int64_t query, int64_t k) const {
    if (dropout.p == 0) return 1;
    const bool dropped = double(random_bits(key, uint64_t(query) << 32 | uint64_t(k))) < dropout.p * 0x1p32;
    return dropped ? 0 : 1 / (1 - dropout.p);
  }
};

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum(0);
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
struct AttentionArgs {
  Rows<const T> q, k, v;
  Rows<T> o, lse;
  std::span<const AttentionSpan> spans;
  AttentionHeads heads;
  DropoutSpec dropout;
};

template <class T>
void attend(const AttentionArgs<T>& a, const AttentionSpan& s, int64_t i, int64_t head) {
  const AttentionHeads& h = a.heads;
  const int64_t e = h.dim, kv = head / (h.q / h.kv) * e, row = s.q_row + i, at = s.q_position + i;
  const T* q = a.q[row] + head * e;
  const AttentionMask mask(a.dropout, h, s.sample, head);
  double most = -INFINITY;
  std::vector<T> score(size_t(s.k_count), T(0));
  for (int64_t j = 0; j < s.k_count; ++j) {
    if (!sees(h, at, s.k_position + j)) continue;
    score[size_t(j)] = h.scale * dot(q, a.k[s.k_row + j] + kv, e);
    most = std::max(most, real_part(score[size_t(j)]));
  }
  T sum(0);
  for (int64_t j = 0; j < s.k_count; ++j)
    if (sees(h, at, s.k_position + j)) sum += std::exp(score[size_t(j)] - most);
  a.lse[row][head] = most + std::log(sum);
  T* o = a.o[row] + head * e;
  for (int64_t c = 0; c < e; ++c) o[c] = T(0);
  for (int64_t j = 0; j < s.k_count; ++j) {
    if (!sees(h, at, s.k_position + j)) continue;
    const T p = std::exp(score[size_t(j)] - most) / sum * mask(at, s.k_position + j);
    for (int64_t c = 0; c < e; ++c) o[c] += p * a.v[s.k_row + j][kv + c];
  }
}

template <class T>
struct AttentionBackwardArgs {
  Rows<const T> q, k, v, o, lse, dout;
  Rows<T> dq, dk, dv;  // dk and dv begin at zero
  std::span<const AttentionSpan> spans;
  AttentionHeads heads;
  DropoutSpec dropout;
};

// Of one query head's row; adds to the rows of dk and dv that it sees.
template <class T>
void attend_backward(const AttentionBackwardArgs<T>& a, const AttentionSpan& s, int64_t i, int64_t head) {
  const AttentionHeads& h = a.heads;
  const int64_t e = h.dim, kv = head / (h.q / h.kv) * e, row = s.q_row + i, at = s.q_position + i;
  const T *q = a.q[row] + head * e, *dout = a.dout[row] + head * e;
  const AttentionMask mask(a.dropout, h, s.sample, head);
  const T delta = dot(a.o[row] + head * e, dout, e);
  T* dq = a.dq[row] + head * e;
  for (int64_t c = 0; c < e; ++c) dq[c] = T(0);
  for (int64_t j = 0; j < s.k_count; ++j) {
    if (!sees(h, at, s.k_position + j)) continue;
    const T *k = a.k[s.k_row + j] + kv, *v = a.v[s.k_row + j] + kv;
    T *dk = a.dk[s.k_row + j] + kv, *dv = a.dv[s.k_row + j] + kv;
    const double kept = mask(at, s.k_position + j);
    const T p = std::exp(h.scale * dot(q, k, e) - a.lse[row][head]);
    const T ds = p * (kept * dot(dout, v, e) - delta) * h.scale;
    for (int64_t c = 0; c < e; ++c) {
      dv[c] += kept * p * dout[c];
      dq[c] += ds * k[c];
      dk[c] += ds * q[c];
    }
  }
}

}  // namespace weft::ref
