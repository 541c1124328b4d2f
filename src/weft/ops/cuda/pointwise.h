// Kernels of one element at a time, or of one row.
#pragma once
#include <cmath>

#include "weft/ops/cuda/elements.h"
#include "weft/ops/cuda/philox.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

// A block has so many elements of a tensor without rows, or one row.
inline constexpr int64_t kRun = kAtOnce * kThreads;

// Whether f.at<N>(i, j) gives the numbers of N neighbours, of which (i, j) is the first.
template <class F>
concept GivesPacks = requires(const F& f) {
  f.template at<1>(int64_t{}, int64_t{});
};

// Which packs of a matrix a block has: a run of them, part of a row or several rows.
struct PackPlaces {
  static constexpr int kRunOfPacks = 4 * kThreads;
  static constexpr int kHeld = 2;  // packs that a thread reads before it writes
  int64_t packs_of_row, total;
  struct Place {
    int64_t row, pack;
  };
  WEFT_BOTH int64_t blocks() const { return (total + kRunOfPacks - 1) / kRunOfPacks; }
  // f(k-th place of the block) and so on, for `map`.
  template <class Block, class From, class To>
  WEFT_GPU void map(const Block& block, const From& from, const To& to) const {
    const int64_t first = block.index() * kRunOfPacks, n = total - first < kRunOfPacks ? total - first : kRunOfPacks;
    const int64_t row = first / packs_of_row;
    const auto start = unsigned(first % packs_of_row), width = unsigned(packs_of_row);
    const auto place = [=](int64_t k) {
      const unsigned at = start + unsigned(k);
      return Place{row + at / width, at % width};
    };
    block.template map<kHeld>(
        n, [&](int64_t k) { return from(place(k)); }, [&](int64_t k, const auto& held) { to(place(k), held); });
  }
};
inline PackPlaces packs_of(int64_t rows, int64_t packs_of_row) {
  WEFT_CHECK(packs_of_row < int64_t{1} << 31, "rows of {} packs", packs_of_row);
  return {packs_of_row, rows * packs_of_row};
}

template <class T, class F>
struct EachPack {
  Rows<T> out;
  F f;
  PackPlaces places;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    using Place = PackPlaces::Place;
    places.map(
        block, [&](Place p) { return f.template at<kPack>(p.row, p.pack * kPack); },
        [&](Place p, const Pack<kPack>& x) { store_pack(out[p.row] + p.pack * kPack, x); });
  }
};

// out[i][j] = f(i, j), a block for each run of a row.
template <class T, class F>
struct EachElement {
  Rows<T> out;
  F f;
  WEFT_BOTH int64_t runs_of_row() const { return (out.cols + kRun - 1) / kRun; }
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index() / runs_of_row(), first = block.index() % runs_of_row() * kRun;
    const int64_t n = out.cols - first < kRun ? out.cols - first : kRun;
    block.map(
        n, [&](int64_t j) { return element(i, first + j); }, [&](int64_t j, float x) { store(out[i] + first + j, x); });
  }
  WEFT_GPU float element(int64_t i, int64_t j) const {
    if constexpr (GivesPacks<F>)
      return f.template at<1>(i, j).v[0];
    else
      return f(i, j);
  }
};

template <class T>
struct Sums {  // a x + b y
  Rows<const T> x, y;
  float a, b;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t i, int64_t j) const {
    const Pack<N> xs = load_pack<N>(x[i] + j);
    if (!y) return each_of([&](float u) { return a * u; }, xs);
    return each_of([&](float u, float v) { return a * u + b * v; }, xs, load_pack<N>(y[i] + j));
  }
};
template <class T, class B>
struct RowAdded {
  Rows<T> y;
  const B* b;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t i, int64_t j) const {
    return each_of(AddUp(), load_pack<N>(y[i] + j), load_pack<N>(b + j));
  }
};
template <class T>
struct ColumnScaled {
  Rows<const T> x;
  const float *w, *squares;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const float y = w != nullptr ? load(x[i] + j) * w[j] : load(x[i] + j);
    return squares != nullptr ? y / sqrtf(squares[j]) : y;
  }
};
template <class From>
struct Copied {
  Rows<const From> from;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t i, int64_t j) const {
    return load_pack<N>(from[i] + j);
  }
};

// log(e^a + e^b): the log-sum-exp of two sets of keys together, from that of each.
WEFT_GPU inline float log_add_exp(float a, float b) {
  const float most = a > b ? a : b;
  return most + logf(expf(a - most) + expf(b - most));
}
template <class T>
struct AttentionMerged {
  Rows<const T> o;
  Rows<const float> lse, sum, sum_lse;
  int64_t dim;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const float before = sum_lse[i][j / dim], other = lse[i][j / dim], all = log_add_exp(before, other);
    return expf(before - all) * sum[i][j] + expf(other - all) * load(o[i] + j);
  }
};
struct LogAddExp {
  Rows<const float> a, b;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return log_add_exp(a[i][j], b[i][j]); }
};

WEFT_GPU inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

constexpr float kTanhCubic = 0.044715f, kTanhScale = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kInverseSqrt2 = 0.7071067811865476f, kInverseSqrt2Pi = 0.3989422804014327f;

WEFT_GPU inline float gelu(float x, bool exact) {
  if (exact) return 0.5f * x * (1.0f + erff(x * kInverseSqrt2));
  return 0.5f * x * (1.0f + tanhf(kTanhScale * (x + kTanhCubic * x * x * x)));
}
WEFT_GPU inline float gelu_slope(float x, bool exact) {
  if (exact) return 0.5f * (1.0f + erff(x * kInverseSqrt2)) + x * expf(-0.5f * x * x) * kInverseSqrt2Pi;
  const float s =
      sigmoid(2.0f * kTanhScale * (x + kTanhCubic * x * x * x));  // (1 + tanh) / 2: 1 - tanh^2 = 4 s (1 - s)
  const float rest = sigmoid(-2.0f * kTanhScale * (x + kTanhCubic * x * x * x));
  return s + 2.0f * x * s * rest * kTanhScale * (1.0f + 3.0f * kTanhCubic * x * x);
}
template <class T>
struct GeluOf {
  Rows<const T> x;
  bool exact;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t i, int64_t j) const {
    return each_of([&](float u) { return gelu(u, exact); }, load_pack<N>(x[i] + j));
  }
};
template <class T>
struct GeluSlope {
  Rows<const T> x, dy;
  bool exact;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t i, int64_t j) const {
    return each_of([&](float u, float d) { return d * gelu_slope(u, exact); }, load_pack<N>(x[i] + j),
                   load_pack<N>(dy[i] + j));
  }
};

// The function of a gate, and its slope.
WEFT_GPU inline float gate_of(float x, GateKind kind) {
  return kind == GateKind::silu ? x * sigmoid(x) : gelu(x, false);
}
WEFT_GPU inline float gate_slope(float x, GateKind kind) {
  if (kind == GateKind::gelu_tanh) return gelu_slope(x, false);
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}
// A clamped unit: its two factors, and their slopes by gate and up.
struct Clamped {
  float f, up, f_slope, up_slope;
};
WEFT_GPU inline Clamped clamped(float gate, float up, float limit) {
  const bool above = gate > limit, outside = fabsf(up) > limit;
  const float g = above ? limit : gate, u = outside ? (up > 0 ? limit : -limit) : up;
  const float s = sigmoid(float(kClampedSlope) * g);
  return {g * s, u + 1, above ? 0 : s * (1 + float(kClampedSlope) * g * (1 - s)), outside ? 0.0f : 1.0f};
}
template <class T>
struct ClampedOf {
  Rows<const T> u;
  float limit;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const Clamped c = clamped(load(u[i] + 2 * j), load(u[i] + 2 * j + 1), limit);
    return c.f * c.up;
  }
};
// A block for each run of a row of da.
template <class T>
struct ClampedSlopes {
  Rows<const T> u, da;
  Rows<T> du;
  float limit;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t f = da.cols, runs = (f + kRun - 1) / kRun, i = block.index() / runs;
    const int64_t first = block.index() % runs * kRun, n = f - first < kRun ? f - first : kRun;
    struct Slopes {
      float gate, up;
    };
    const auto slopes = [&](int64_t j) {
      const Clamped c = clamped(load(u[i] + 2 * j), load(u[i] + 2 * j + 1), limit);
      const float d = load(da[i] + j);
      return Slopes{d * c.up * c.f_slope, d * c.f * c.up_slope};
    };
    block.map(
        n, [&](int64_t k) { return slopes(first + k); },
        [&](int64_t k, Slopes d) {
          store(du[i] + 2 * (first + k), d.gate);
          store(du[i] + 2 * (first + k) + 1, d.up);
        });
  }
};
struct One {
  WEFT_GPU float operator()(int64_t, int64_t) const { return 1; }
};
template <class T>
struct GatedOf {
  Rows<const T> u;
  int64_t f;
  GateKind kind;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t i, int64_t j) const {
    return each_of([&](float gate, float up) { return gate_of(gate, kind) * up; }, load_pack<N>(u[i] + j),
                   load_pack<N>(u[i] + f + j));
  }
};
template <class T, int N>
struct GatedSlopes {
  Rows<const T> u, da;
  Rows<T> du;
  GateKind kind;
  PackPlaces places;  // of da
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    using Place = PackPlaces::Place;
    const int64_t f = da.cols;
    struct Slopes {
      Pack<N> gate, up;
    };
    places.map(
        block,
        [&](Place p) {
          const int64_t j = p.pack * N;
          const Pack<N> gate = load_pack<N>(u[p.row] + j), up = load_pack<N>(u[p.row] + f + j);
          const Pack<N> d = load_pack<N>(da[p.row] + j);
          const auto of_gate = [&](float g, float v, float slope) { return slope * v * gate_slope(g, kind); };
          const auto of_up = [&](float g, float slope) { return slope * gate_of(g, kind); };
          return Slopes{each_of(of_gate, gate, up, d), each_of(of_up, gate, d)};
        },
        [&](Place p, const Slopes& d) {
          const int64_t j = p.pack * N;
          store_pack(du[p.row] + j, d.gate);
          store_pack(du[p.row] + f + j, d.up);
        });
  }
};

struct Capped {
  Rows<const float> x;
  float cap;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return cap * tanhf(x[i][j] / cap); }
};
template <class T>
struct CapSlope {
  Rows<const float> y;
  Rows<const T> dy;
  float cap;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const float part = y[i][j] / cap;
    return load(dy[i] + j) * (1.0f - part * part);
  }
};

// What a dropped element is multiplied by, or a kept one.
struct Kept {
  uint64_t key;
  double dropped;  // p 2^32: random bits below it drop
  float scale;     // 1 / (1 - p)
  WEFT_GPU float operator()(uint64_t element) const {
    return double(random_bits(key, element)) < dropped ? 0.0f : scale;
  }
};
inline Kept kept(const DropoutSpec& d) { return {d.key, d.p * 0x1p32, float(1 / (1 - d.p))}; }

template <class T>
struct DroppedOut {
  Rows<const T> x;
  const int64_t* tokens;
  int64_t first, total;
  Kept kept;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    return load(x[i] + j) * kept(uint64_t(tokens[i] * total + first + j));
  }
};

// Rows of a table by ids, or zero.
template <class T>
struct Embedded {
  const int32_t* ids;
  Rows<const T> table, before;  // before: what is added to, or none
  int64_t first, count;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t i, int64_t j) const {
    const int64_t row = ids[i] - first;
    const Pack<N> x = row >= 0 && row < count ? load_pack<N>(table[row] + j) : Pack<N>{};
    return before ? each_of(AddUp(), x, load_pack<N>(before[i] + j)) : x;
  }
};

// Turns pairs of columns of each head of a token.
template <class T, int N>
struct Rotated {
  Rows<T> x;
  const int32_t* positions;
  Rows<const float> table;
  bool inverse;
  int64_t dim, first_turned;
  bool interleaved;   // then N is 1
  PackPlaces places;  // of a row's pairs
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    using Place = PackPlaces::Place;
    const auto half = unsigned(table.cols / 2), packs_of_head = half / N;
    const int64_t apart = interleaved ? 1 : half;
    struct Pairs {
      Pack<N> a, b;
    };
    const auto pairs_at = [&](Place p) {
      const unsigned head = unsigned(p.pack) / packs_of_head, j = unsigned(p.pack) % packs_of_head * N;
      return x[p.row] + int64_t(head) * dim + first_turned + (interleaved ? 2 * j : j);
    };
    places.map(
        block,
        [&](Place p) {
          const T* pairs = pairs_at(p);
          const float* turn = table[positions[p.row]] + unsigned(p.pack) % packs_of_head * N;
          const Pack<N> c = load_pack<N>(turn), s = load_pack<N>(turn + half);
          const Pack<N> a = load_pack<N>(pairs), b = load_pack<N>(pairs + apart);
          const float way = inverse ? -1.0f : 1.0f;
          const auto turned_a = [&](float u, float v, float cos, float sin) { return u * cos - v * (way * sin); };
          const auto turned_b = [&](float u, float v, float cos, float sin) { return v * cos + u * (way * sin); };
          return Pairs{each_of(turned_a, a, b, c, s), each_of(turned_b, a, b, c, s)};
        },
        [&](Place p, const Pairs& turned) {
          T* pairs = pairs_at(p);
          store_pack(pairs, turned.a);
          store_pack(pairs + apart, turned.b);
        });
  }
};

}  // namespace weft::gpu
