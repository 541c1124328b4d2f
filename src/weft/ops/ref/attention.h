// Reference kernels: rotary positions; attention, forward and backward, one query and head at a time.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/ops/ref/dropout.h"
#include "weft/ops/ref/view.h"

namespace weft::ref {

template <class T>
void run(const Rope& op, int) {
  const auto x = rows<T>(op.x), table = rows<T>(op.table);
  const int64_t width = table.cols, half = width / 2;
  const double sign = op.inverse ? -1 : 1;
  for (int64_t i = 0; i < x.rows; ++i) {
    const T* angle = table[op.positions.as<int32_t>()[i]];
    for (T* v = x[i]; v < x[i] + x.cols; v += width) {
      for (int64_t j = 0; j < half; ++j) {
        const T c = angle[j], s = sign * angle[half + j], a = v[j], b = v[half + j];
        v[j] = a * c - b * s;
        v[half + j] = b * c + a * s;
      }
    }
  }
}

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum(0);
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// One query and head of a span, and the keys it sees.
struct Query {
  int64_t row;           // of q
  int64_t first, count;  // rows of k, consecutive
  int64_t position;      // of the query, in its document
  int64_t key_position;  // of the first key
  int64_t q_col, k_col;  // where the head begins
  uint64_t key;          // of its random numbers
};

template <class Op>
Query query_of(const Op& op, const AttentionSpan& s, int64_t i, int64_t head) {
  const AttentionHeads& h = op.heads;
  const int64_t at = s.q_position + i;
  const int64_t oldest = h.window > 0 ? std::max(s.k_position, at - h.window + 1) : s.k_position;
  return {.row = s.q_row + i,
          .first = s.k_row + oldest - s.k_position,
          .count = std::min(at, s.k_position + s.k_count - 1) - oldest + 1,
          .position = at,
          .key_position = oldest,
          .q_col = head * h.dim,
          .k_col = head / (h.q / h.kv) * h.dim,
          .key = rng_key(op.dropout.key, uint64_t(s.sample * h.total + h.first + head))};
}

// What the probability of the query's j-th key is multiplied by.
inline double kept(const Query& at, double p, int64_t j) {
  return kept(p, at.key, uint64_t(at.position) << 32 | uint64_t(at.key_position + j));
}

template <class T>
void attend(const Attention& op, const Query& at) {
  const int64_t e = op.heads.dim;
  const auto k = rows<T>(op.k), v = rows<T>(op.v);
  const T* q = rows<T>(op.q)[at.row] + at.q_col;
  std::vector<T> score(size_t(at.count));
  double most = -INFINITY;
  for (int64_t j = 0; j < at.count; ++j) {
    score[size_t(j)] = op.heads.scale * dot(q, k[at.first + j] + at.k_col, e);
    most = std::max(most, real_part(score[size_t(j)]));
  }
  T sum(0);
  for (T& s : score) sum += s = std::exp(s - most);
  rows<T>(op.lse)[at.row][at.q_col / e] = most + std::log(sum);
  T* o = rows<T>(op.o)[at.row] + at.q_col;
  std::fill_n(o, e, T(0));
  for (int64_t j = 0; j < at.count; ++j) {
    const T p = score[size_t(j)] / sum * kept(at, op.dropout.p, j);
    for (int64_t c = 0; c < e; ++c) o[c] += p * v[at.first + j][at.k_col + c];
  }
}

// Writes the query's dq; adds to the rows of dk and dv that it sees.
template <class T>
void attend_backward(const AttentionBackward& op, const Query& at) {
  const int64_t e = op.heads.dim;
  const T *q = rows<T>(op.q)[at.row] + at.q_col, *dout = rows<T>(op.dout)[at.row] + at.q_col;
  const T lse = rows<T>(op.lse)[at.row][at.q_col / e];
  const T delta = dot(rows<T>(op.o)[at.row] + at.q_col, dout, e);
  T* dq = rows<T>(op.dq)[at.row] + at.q_col;
  std::fill_n(dq, e, T(0));
  for (int64_t j = 0; j < at.count; ++j) {
    const T *k = rows<T>(op.k)[at.first + j] + at.k_col, *v = rows<T>(op.v)[at.first + j] + at.k_col;
    T *dk = rows<T>(op.dk)[at.first + j] + at.k_col, *dv = rows<T>(op.dv)[at.first + j] + at.k_col;
    const double keep = kept(at, op.dropout.p, j);
    const T p = std::exp(op.heads.scale * dot(q, k, e) - lse);
    const T ds = p * (keep * dot(dout, v, e) - delta) * op.heads.scale;
    for (int64_t c = 0; c < e; ++c) {
      dv[c] += keep * p * dout[c];
      dq[c] += ds * k[c];
      dk[c] += ds * q[c];
    }
  }
}

template <class T>
void run(const Attention& op, int threads) {
  spread(op.heads.q, threads, [&](int64_t head) {
    for (const AttentionSpan& s : op.spans)
      for (int64_t i = 0; i < s.q_count; ++i) attend<T>(op, query_of(op, s, i, head));
  });
}

// Threads take whole key heads: no two add to the same columns of dk.
template <class T>
void run(const AttentionBackward& op, int threads) {
  each<T>(op.dk, [](int64_t, int64_t) { return T(0); });
  each<T>(op.dv, [](int64_t, int64_t) { return T(0); });
  const int64_t group = op.heads.q / op.heads.kv;
  spread(op.heads.kv, threads, [&](int64_t kv) {
    for (const AttentionSpan& s : op.spans)
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head)
        for (int64_t i = 0; i < s.q_count; ++i) attend_backward<T>(op, query_of(op, s, i, head));
  });
}

template <class T>
void run(const AttentionMerge& op, int) {
  const auto o = rows<T>(op.o), lse = rows<T>(op.lse), sum = rows<T>(op.sum), sum_lse = rows<T>(op.sum_lse);
  const int64_t e = op.o.cols() / op.lse.cols();
  for (int64_t i = 0; i < o.rows; ++i)
    for (int64_t h = 0; h < lse.cols; ++h) {
      const T before = sum_lse[i][h], other = lse[i][h];
      const T most = real_part(before) > real_part(other) ? before : other;
      const T all = most + std::log(std::exp(before - most) + std::exp(other - most));
      const T keep = std::exp(before - all), add = std::exp(other - all);
      for (int64_t j = h * e; j < (h + 1) * e; ++j) sum[i][j] = keep * sum[i][j] + add * o[i][j];
      sum_lse[i][h] = all;
    }
}

}  // namespace weft::ref
