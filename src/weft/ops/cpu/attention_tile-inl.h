// Products of small matrices that lie in the caches, and what attention does with the elements between them.
#if defined(WEFT_OPS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_CPU_ATTENTION_TILE_INL_H_
#undef WEFT_OPS_CPU_ATTENTION_TILE_INL_H_
#else
#define WEFT_OPS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <utility>

#include "weft/ops/cpu/attention_kernels.h"
#include "weft/ops/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// c = a b, c + a b, or factor[i] c[i] + a b for each row i.   a [m, k], b [k, n], c [m, n]; n of whole vectors.
enum class Start { zero, add, scaled };
struct Product {
  int64_t m, n, k;
  const float* a;
  int64_t a_stride;  // from row to row, or from column to column: the other stride is 1
  const float* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  Start start = Start::zero;
  const float* factor = nullptr;
};

// So many rows fit the registers beside one vector of a and kTileVectors of b.
inline constexpr int kTileRows = 6;
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int kTileVectors = 4;  // of 32 registers
#else
inline constexpr int kTileVectors = 2;  // of 16 registers
#endif

template <bool kRowsOfA, int kRows, int kVectors>
void multiply_tile(const Product& p, int64_t i, int64_t j) {
  const Lanes d;
  Floats sum[size_t(kRows)][size_t(kVectors)];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const float* a = p.a + (kRowsOfA ? i * p.a_stride : i);
  const float* b = p.b + j;
  const int64_t row = kRowsOfA ? p.a_stride : 1, step = kRowsOfA ? 1 : p.a_stride;
  for (int64_t t = 0; t < p.k; ++t, a += step, b += p.b_stride) {
    Floats bt[size_t(kVectors)];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) bt[v] = hn::LoadU(d, b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats at = hn::Set(d, a[r * row]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(at, bt[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float* c = p.c + (i + r) * p.c_stride + j;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Floats s = sum[r][v];
      if (p.start == Start::add) s = hn::Add(hn::LoadU(d, c + v * kLanes), s);
      if (p.start == Start::scaled) s = hn::MulAdd(hn::LoadU(d, c + v * kLanes), hn::Set(d, p.factor[i + r]), s);
      hn::StoreU(s, d, c + v * kLanes);
    }
  }
}

template <bool kRowsOfA, int... kTiles>
void run_tile(int rows, int vectors, const Product& p, int64_t i, int64_t j, std::integer_sequence<int, kTiles...>) {
  using Function = void (*)(const Product&, int64_t, int64_t);
  static constexpr Function kFunctions[] = {
      multiply_tile<kRowsOfA, kTiles / kTileVectors + 1, kTiles % kTileVectors + 1>...};
  kFunctions[(rows - 1) * kTileVectors + vectors - 1](p, i, j);
}

// Every element is summed over k in order, in f32, whatever tile it falls in.
template <bool kRowsOfA>
void multiply(const Product& p) {
  const int64_t vectors = p.n / kLanes, chunks = (vectors + kTileVectors - 1) / kTileVectors;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t first = vectors * chunk / chunks, n = vectors * (chunk + 1) / chunks - first;
    for (int64_t i = 0; i < p.m; i += kTileRows)
      run_tile<kRowsOfA>(int(std::min<int64_t>(kTileRows, p.m - i)), int(n), p, i, first * kLanes,
                         std::make_integer_sequence<int, kTileRows * kTileVectors>());
  }
}

// 2^x for x <= 0; below 2^-100 that. NaN stays NaN. 2^0 = 1 exactly.
HWY_INLINE Floats exp2_of_negative(Floats x) {
  const Lanes d;
  const hn::RebindToSigned<Lanes> di;
  const auto magic = hn::Set(d, 12582912.0f);  // 1.5 2^23: adding it rounds, and leaves the integer in the low bits
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  x = hn::Max(hn::Set(d, -100.0f), x);
#else  // where Max may drop a NaN
  x = hn::IfThenElse(hn::Lt(x, hn::Set(d, -100.0f)), hn::Set(d, -100.0f), x);
#endif
  const auto whole = hn::Add(x, magic);
  const auto r = hn::Sub(x, hn::Sub(whole, magic));
  auto p = hn::MulAdd(hn::Set(d, 0.000154531629451f), r, hn::Set(d, 0.00133908633647f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.00961808255728f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0555035711422f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240226507606f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693147188026f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, whole))));
}

// to[i * kLanes + 4 b + r] = row r's element 4 b' ...: within each 4 lanes, the 4 x 4 numbers of four rows transposed.
HWY_INLINE void transpose_four(Floats r0, Floats r1, Floats r2, Floats r3, float* to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = hn::GetLane(r0), to[1] = hn::GetLane(r1), to[2] = hn::GetLane(r2), to[3] = hn::GetLane(r3);
#else
  const Lanes d;
  const hn::Repartition<double, Lanes> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1)),
             low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3)),
             high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1)),
             high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + kLanes);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * kLanes);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * kLanes);
#endif
}

// Scores and what follows from them lie transposed, [keys, rows]: a vector holds one key of many rows, so that sums and
// maxima over keys need no exchange within vectors. Whole vectors around the rows of a strip are computed.
HWY_INLINE int64_t first_lane(const Strip& s) { return s.begin / kLanes * kLanes; }
HWY_INLINE int64_t end_lane(const Strip& s) { return (s.end + kLanes - 1) / kLanes * kLanes; }
// f(d, index) for every vector of a strip.
template <class F>
HWY_INLINE void for_lanes(const Strip& s, const F& f) {
  for (int64_t key = 0; key < s.keys; ++key)
    for (int64_t r = first_lane(s); r < s.end; r += kLanes) f(Lanes(), key * kBlockRows + r);
}
// f(index, n) for every run of pairs in those vectors of which the row does not see the key.
template <class F>
HWY_INLINE void for_hidden(const QueryBlock& b, const AttentionHeads& h, const Strip& s, const F& f) {
  for (int64_t key = s.key; key < s.key + s.keys; ++key) {
    const int64_t at = (key - s.key) * kBlockRows, first = first_lane(s), end = end_lane(s);
    const int64_t seen = std::clamp((key - b.key_at()) * b.heads, first, end);
    const int64_t seen_end = h.window ? std::clamp((key + h.window - b.key_at()) * b.heads, seen, end) : end;
    f(at + first, seen - first);
    f(at + seen_end, end - seen_end);
  }
}

inline constexpr float kLog2E = 1.44269504088896341f;  // scores are kept in units of ln 2

// Scores become cap tanh(score / cap), all in one unit.
HWY_INLINE void cap_scores(const Strip& s, float cap, float* score) {
  for_lanes(s, [=](Lanes d, int64_t at) HWY_ATTR {
    const auto part = hn::Mul(hn::LoadU(d, score + at), hn::Set(d, 1 / cap));
    hn::StoreU(hn::Mul(hn::Set(d, cap), tanh(d, part)), d, score + at);
  });
}

// The rows of a block in a tensor of heads.
template <class T>
class BlockRows {
 public:
  BlockRows() = default;
  BlockRows(const Rows<T>& x, const QueryBlock& b, int64_t dim)
      : x_(x), first_(b.first_row()), head_(b.head), heads_(uint32_t(b.heads)), dim_(dim) {}
  T* operator[](int64_t r) const { return x_[first_ + uint32_t(r) / heads_] + (head_ + uint32_t(r) % heads_) * dim_; }

 private:
  Rows<T> x_;
  int64_t first_ = 0, head_ = 0;
  uint32_t heads_ = 1;
  int64_t dim_ = 0;
};

// Prefetches n elements into the L2 cache.
template <class T>
HWY_INLINE void prefetch(const T* at, int64_t n) {
  const char* end = reinterpret_cast<const char*>(at + n);
  for (const char* line = reinterpret_cast<const char*>(at); line < end; line += 64) __builtin_prefetch(line, 0, 2);
}

// to[r, c] = from[r][c], zeros up to `width`.
template <class T>
HWY_INLINE void copy_row(const T* from, int64_t dim, int64_t width, float* to) {
  for_each(dim, [=](auto t, int64_t j) HWY_ATTR { hn::StoreU(load(t, from + j), t, to + j); });
  std::fill(to + dim, to + width, 0.0f);
}

// A head's keys or values as f32 rows of whole vectors.
template <class T>
void copy_keys(const Rows<const T>& x, Range rows, int64_t kv, int64_t dim, float* to) {
  for (int64_t i = rows.begin; i < rows.end; ++i, to += padded(dim)) copy_row(x[i] + kv * dim, dim, padded(dim), to);
}

// to[c, r] = scale from[r][c], rows of kBlockRows; zeros where r is beyond `rows`.
template <class RowsOf>
void copy_transposed(const RowsOf& from, int64_t rows, int64_t dim, float scale, float* to) {
  const Lanes d;
  HWY_ALIGN float block[size_t(4 * kLanes)];
  const int64_t whole_rows = kLanes % 4 == 0 ? rows / 4 * 4 : 0, whole_cols = dim / kLanes * kLanes;
  for (int64_t r = 0; r < whole_rows; r += 4) {
    const auto *r0 = from[r], *r1 = from[r + 1], *r2 = from[r + 2], *r3 = from[r + 3];
    for (int64_t c = 0; c < whole_cols; c += kLanes) {
      transpose_four(hn::Mul(load(d, r0 + c), hn::Set(d, scale)), hn::Mul(load(d, r1 + c), hn::Set(d, scale)),
                     hn::Mul(load(d, r2 + c), hn::Set(d, scale)), hn::Mul(load(d, r3 + c), hn::Set(d, scale)), block);
      for (int64_t i = 0; i < kLanes; ++i)
        std::memcpy(to + (c + i) * kBlockRows + r, block + i % 4 * kLanes + i / 4 * 4, 16);
    }
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < whole_rows ? whole_cols : 0; c < dim; ++c) to[c * kBlockRows + r] = scale * float(from[r][c]);
  for (int64_t c = 0; c < dim && rows < kBlockRows; ++c)
    std::fill(to + c * kBlockRows + rows, to + (c + 1) * kBlockRows, 0.0f);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif
