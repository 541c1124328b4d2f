#include "weft/ops/cpu/attention.h"

#include <cmath>

#include "weft/base/rng.h"
#include "weft/ops/cpu/team.h"

namespace weft::cpu {
namespace {

struct Keys {
  int64_t begin, end;
};
Keys seen(const AttentionHeads& h, const AttentionSpan& s, int64_t i) {
  const int64_t at = s.q_position + i - s.k_position;
  return {h.window ? std::max<int64_t>(0, at - h.window + 1) : 0, std::min(s.k_count, at + 1)};
}

struct Mask {
  uint64_t key, threshold;
  float scale;
  Mask(const DropoutSpec& d, const AttentionHeads& h, int64_t sample, int64_t head)
      : key(rng_key(d.key, uint64_t(sample * h.total + h.first + head))),
        threshold(uint64_t(std::ceil(d.p * 0x1p32))),
        scale(float(1 / (1 - d.p))) {}
  float operator()(int64_t a, int64_t b) const {
    if (threshold == 0) return 1;
    return random_bits(key, uint64_t(a) << 32 | uint64_t(b)) < threshold ? 0 : scale;
  }
};

template <class T, class U>
float dot(const T* a, const U* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += float(a[i]) * float(b[i]);
  return sum;
}

template <class T>
void forward_row(const Attention& op, const AttentionSpan& s, int64_t i, int64_t head, float* acc) {
  const AttentionHeads& h = op.heads;
  const int64_t e = h.dim, kv = head / (h.q / h.kv) * e, row = s.q_row + i;
  const T* q = rows_of<const T>(op.q)[row] + head * e;
  const auto k = rows_of<const T>(op.k), v = rows_of<const T>(op.v);
  const Mask mask(op.dropout, h, s.sample, head);
  float most = -INFINITY, sum = 0;
  std::fill_n(acc, e, 0.0f);
  const Keys keys = seen(h, s, i);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const float score = float(h.scale) * dot(q, k[s.k_row + j] + kv, e);
    if (score > most) {
      const float shrink = std::exp(most - score);
      sum *= shrink;
      for (int64_t c = 0; c < e; ++c) acc[c] *= shrink;
      most = score;
    }
    const float p = std::exp(score - most), kept = p * mask(s.q_position + i, s.k_position + j);
    sum += p;
    for (int64_t c = 0; c < e; ++c) acc[c] += kept * float(v[s.k_row + j][kv + c]);
  }
  rows_of<float>(op.lse)[row][head] = most + std::log(sum);
  T* o = rows_of<T>(op.o)[row] + head * e;
  for (int64_t c = 0; c < e; ++c) o[c] = T(acc[c] / sum);
}

struct KeyGrads {
  float *dk, *dv, *dq;
};
template <class T>
void backward_row(const AttentionBackward& op, const AttentionSpan& s, int64_t i, int64_t head, const KeyGrads& g) {
  const AttentionHeads& h = op.heads;
  const int64_t e = h.dim, kv = head / (h.q / h.kv) * e, row = s.q_row + i;
  const T *q = rows_of<const T>(op.q)[row] + head * e, *dout = rows_of<const T>(op.dout)[row] + head * e;
  const auto k = rows_of<const T>(op.k), v = rows_of<const T>(op.v);
  const Mask mask(op.dropout, h, s.sample, head);
  const float delta = dot(rows_of<const T>(op.o)[row] + head * e, dout, e);
  const float lse = rows_of<const float>(op.lse)[row][head];
  std::fill_n(g.dq, e, 0.0f);
  const Keys keys = seen(h, s, i);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const T *kj = k[s.k_row + j] + kv, *vj = v[s.k_row + j] + kv;
    const float kept = mask(s.q_position + i, s.k_position + j);
    const float p = std::exp(float(h.scale) * dot(q, kj, e) - lse);
    const float ds = p * (kept * dot(dout, vj, e) - delta) * float(h.scale);
    float *dk = g.dk + (s.k_row + j) * e, *dv = g.dv + (s.k_row + j) * e;
    for (int64_t c = 0; c < e; ++c) {
      dv[c] += kept * p * float(dout[c]);
      g.dq[c] += ds * float(kj[c]);
      dk[c] += ds * float(q[c]);
    }
  }
  T* dq = rows_of<T>(op.dq)[row] + head * e;
  for (int64_t c = 0; c < e; ++c) dq[c] = T(g.dq[c]);
}

template <class T>
void forward(const Attention& op, int threads, float* acc) {
  for (const AttentionSpan& s : op.spans)
    for_tasks(threads, op.heads.q * s.q_count, [&](int64_t task, int thread) {
      forward_row<T>(op, s, task / op.heads.q, task % op.heads.q, acc + thread * op.heads.dim);
    });
}

template <class T>
void backward(const AttentionBackward& op, int threads, float* memory) {
  const int64_t e = op.heads.dim, tk = op.k.rows(), group = op.heads.q / op.heads.kv;
  for_tasks(threads, op.heads.kv, [&](int64_t kv, int thread) {
    float* mine = memory + thread * (2 * tk + 1) * e;
    const KeyGrads g{mine, mine + tk * e, mine + 2 * tk * e};
    std::fill_n(mine, 2 * tk * e, 0.0f);
    for (const AttentionSpan& s : op.spans)
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head)
        for (int64_t i = 0; i < s.q_count; ++i) backward_row<T>(op, s, i, head, g);
    for (int64_t j = 0; j < tk; ++j)
      for (int64_t c = 0; c < e; ++c) {
        rows_of<T>(op.dk)[j][kv * e + c] = T(g.dk[j * e + c]);
        rows_of<T>(op.dv)[j][kv * e + c] = T(g.dv[j * e + c]);
      }
  });
}

}  // namespace

int64_t attention_bytes(const Attention& op, int threads) { return threads * op.heads.dim * 4; }
int64_t attention_bytes(const AttentionBackward& op, int threads) {
  return threads * (2 * op.k.rows() + 1) * op.heads.dim * 4;
}

void attention(const Attention& op, int threads, std::byte* workspace) {
  float* memory = reinterpret_cast<float*>(workspace);
  is_bf16(op.q) ? forward<bf16>(op, threads, memory) : forward<float>(op, threads, memory);
}
void attention_backward(const AttentionBackward& op, int threads, std::byte* workspace) {
  float* memory = reinterpret_cast<float*>(workspace);
  is_bf16(op.q) ? backward<bf16>(op, threads, memory) : backward<float>(op, threads, memory);
}

}  // namespace weft::cpu
