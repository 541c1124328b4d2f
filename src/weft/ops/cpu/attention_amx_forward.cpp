#include <cmath>
#include <utility>

#include "weft/ops/cpu/attention_amx.h"
#include "weft/ops/cpu/attention_amx_tile.h"

#if defined(__x86_64__)
namespace weft::cpu {
namespace amx {
namespace {

constexpr int64_t kKeys = 128;    // of a strip, at most
constexpr float kLeast = -1e30f;  // the maximum of no scores: finite, so that differences of it are numbers
constexpr int64_t kColumns = kBlockRows / kTile, kSteps = kKeys / kDepth;

struct RunningTiles {
  Word* q;            // turned
  float* o;           // [wide(value_dim) / 16, kColumns] sums of the transposed results
  float *most, *sum;  // [kBlockRows]
};
struct ForwardTiles {
  Word *k, *v;   // plain; across [wide(value_dim) / 16, kSteps]
  float* score;  // [kKeys, kHalf]
  Word* p;       // paired [kSteps, 2]
  float* kept;   // [kKeys, kBlockRows] factors of dropout
  RunningTiles running[size_t(kGroupBlocks)];
  int64_t k_width, v_width;
  ForwardTiles(const AttentionHeads& h, float* memory) : k_width(wide(h.dim)), v_width(wide(h.value_dim())) {
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    const auto words = [&](int64_t n) { return reinterpret_cast<Word*>(take(n / 2)); };
    k = words(kKeys * k_width), v = words(kKeys * v_width), p = words(kKeys * kHalf);
    score = take(kKeys * kHalf), kept = take(kKeys * kBlockRows);
    for (RunningTiles& r : running)
      r = {words(kBlockRows * k_width), take(kBlockRows * v_width), take(kBlockRows), take(kBlockRows)};
  }
};

// Keys of a strip whose first is `key`, for a half of a block.
struct HalfStrip {
  Sight sight;
  int64_t half, key, keys;
};

// Scores in units of `unit` ln 2; -infinity where hidden. Returns the unit.
WEFT_AMX float finish_scores(const Attention& op, const HalfStrip& s, const ForwardTiles& f) {
  const float scale = float(op.heads.scale), cap = float(op.heads.softcap);
  float unit = scale * kLog2E;
  if (cap > 0) tanh_of(f.score, s.keys * kHalf, scale / cap), unit = cap * kLog2E;
  if (unit <= 0) {  // the largest of numbers that are not the scores' multiples by a positive one says nothing
    for (int64_t i = 0; i < s.keys * kHalf; ++i) f.score[i] *= unit;
    unit = 1;
  }
  if (s.sight.whole(s.key, s.keys)) return unit;
  const __m512 hidden = _mm512_set1_ps(-INFINITY);
  for (int64_t i = 0; i < s.keys; ++i) {
    const uint32_t seen = s.sight.rows_that_see(s.key + i);
    _mm512_mask_storeu_ps(f.score + i * kHalf, __mmask16(~seen), hidden);
    _mm512_mask_storeu_ps(f.score + i * kHalf + 16, __mmask16(~seen >> 16), hidden);
  }
  return unit;
}

// Where some of 16 rows have seen a larger score, what they have summed shrinks.
WEFT_AMX __m512 raise(const HalfStrip& s, const ForwardTiles& f, const RunningTiles& r, int64_t column, float unit) {
  const float* score = f.score + column * kTile;
  __m512 m0 = _mm512_set1_ps(-INFINITY), m1 = m0, m2 = m0, m3 = m0;
  for (int64_t i = 0; i < s.keys; i += 4) {  // strips are of whole steps of 32
    m0 = _mm512_max_ps(m0, _mm512_loadu_ps(score + i * kHalf));
    m1 = _mm512_max_ps(m1, _mm512_loadu_ps(score + (i + 1) * kHalf));
    m2 = _mm512_max_ps(m2, _mm512_loadu_ps(score + (i + 2) * kHalf));
    m3 = _mm512_max_ps(m3, _mm512_loadu_ps(score + (i + 3) * kHalf));
  }
  m0 = _mm512_max_ps(_mm512_max_ps(m0, m1), _mm512_max_ps(m2, m3));
  const int64_t at = s.half * kHalf + column * kTile;
  const __m512 before = _mm512_loadu_ps(r.most + at);
  const __m512 most = _mm512_max_ps(before, _mm512_mul_ps(m0, _mm512_set1_ps(unit)));
  if (_mm512_cmp_ps_mask(most, before, _CMP_NEQ_UQ) == 0) return most;
  const __m512 shrink = exp2_of(_mm512_sub_ps(before, most));
  _mm512_storeu_ps(r.most + at, most);
  _mm512_storeu_ps(r.sum + at, _mm512_mul_ps(_mm512_loadu_ps(r.sum + at), shrink));
  for (int64_t i = 0; i < f.v_width; ++i) {
    float* o = r.o + (i / kTile * kColumns + at / kTile) * kTileFloats + i % kTile * kTile;
    _mm512_storeu_ps(o, _mm512_mul_ps(_mm512_loadu_ps(o), shrink));
  }
  return most;
}

// Scores of 16 rows become probabilities, in pairs of keys.
template <bool kDropout>
WEFT_AMX void softmax_column(const HalfStrip& s, const ForwardTiles& f, const RunningTiles& r, int64_t column,
                             float unit) {
  const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                              6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512 most = raise(s, f, r, column, unit), factor = _mm512_set1_ps(unit);
  const int64_t at = s.half * kHalf + column * kTile;
  const float *score = f.score + column * kTile, *kept = f.kept + at;
  __m512 even = _mm512_setzero_ps(), odd = even;
#pragma GCC unroll 2
  for (int64_t i = 0; i < s.keys; i += 2) {
    __m512 a = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(score + i * kHalf), factor, most));
    __m512 b = exp2_of(_mm512_fmsub_ps(_mm512_loadu_ps(score + (i + 1) * kHalf), factor, most));
    even = _mm512_add_ps(even, a), odd = _mm512_add_ps(odd, b);
    if (kDropout) {
      a = _mm512_mul_ps(a, _mm512_loadu_ps(kept + i * kBlockRows));
      b = _mm512_mul_ps(b, _mm512_loadu_ps(kept + (i + 1) * kBlockRows));
    }
    const __m512i pairs = _mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(b, a));
    _mm512_storeu_si512(f.p + (i / kDepth * 2 + column) * kTileWords + i % kDepth * kTile, pairs);
  }
  const __m512 sum = _mm512_add_ps(_mm512_loadu_ps(r.sum + at), _mm512_add_ps(even, odd));
  _mm512_storeu_ps(r.sum + at, sum);
}

// in_strip: the first of the keys, of those in f.k and f.v; a multiple of 32.
WEFT_AMX void add_keys(const Attention& op, const HalfStrip& s, const ForwardTiles& f, const RunningTiles& r,
                       int64_t in_strip) {
  const int64_t steps = f.k_width / kDepth, v_tiles = f.v_width / kTile;
  multiply({.rows = s.keys / kTile,
            .columns = 2,
            .steps = steps,
            .a = f.k + in_strip * f.k_width,
            .a_row = steps * kTileWords,
            .a_step = kTileWords,
            .b = r.q + s.half * 2 * kTileWords,
            .b_step = kColumns * kTileWords,
            .b_column = kTileWords,
            .c = f.score,
            .c_row = kTile * kHalf,
            .c_column = kTile,
            .c_stride = kHalf * 4,
            .add = false});
  const float unit = finish_scores(op, s, f);
  for (int64_t column = 0; column < 2; ++column)
    op.dropout.p > 0 ? softmax_column<true>(s, f, r, column, unit) : softmax_column<false>(s, f, r, column, unit);
  multiply({.rows = v_tiles,
            .columns = 2,
            .steps = s.keys / kDepth,
            .a = f.v + in_strip / kDepth * kTileWords,
            .a_row = kSteps * kTileWords,
            .a_step = kTileWords,
            .b = f.p,
            .b_step = 2 * kTileWords,
            .b_column = kTileWords,
            .c = r.o + s.half * 2 * kTileFloats,
            .c_row = kColumns * kTileFloats,
            .c_column = kTileFloats,
            .c_stride = 64,
            .add = true});
}

// Of the strip [begin, begin + kKeys), the steps of 32 keys that a half of the block sees.
void add_strip(const Attention& op, const QueryBlock& block, int64_t begin, const ForwardTiles& f,
               const RunningTiles& r) {
  bool dropped = false;
  for (int64_t half = 0; half < kHalves; ++half) {
    const Sight sight(op.heads, block, half);
    if (!sight.any(begin, kKeys)) continue;
    if (op.dropout.p > 0 && !std::exchange(dropped, true))
      dropout_factors(op.dropout, op.heads, block, {.key = begin, .keys = kKeys, .begin = 0, .end = kBlockRows},
                      f.kept);
    const int64_t first = std::max<int64_t>(0, sight.begin - begin) / kDepth * kDepth;
    const int64_t end = (std::min(kKeys, sight.end - begin) + kDepth - 1) / kDepth * kDepth;
    ForwardTiles part = f;
    part.kept += first * kBlockRows;
    add_keys(op, {sight, half, begin + first, end - first}, part, r, first);
  }
}

void begin_rows(const Attention& op, const QueryBlock& block, const ForwardTiles& f, const RunningTiles& r) {
  to_turned(rows_of_block(op.q, block, op.heads.dim), r.q);
  std::fill_n(r.o, kBlockRows * f.v_width, 0.0f);
  std::fill_n(r.most, kBlockRows, kLeast);
  std::fill_n(r.sum, kBlockRows, 0.0f);
}

WEFT_AMX void write_rows(const Attention& op, const QueryBlock& block, const RunningTiles& r) {
  const int64_t u = op.heads.value_dim();
  const HeadRows o = rows_of_block(op.o, block, u);
  __m512i t[16];
  for (int64_t tile = 0; tile * kTile < u; ++tile)
    for (int64_t column = 0; column * kTile < block.rows(); ++column) {
      const float* from = r.o + (tile * kColumns + column) * kTileFloats;
      const __m512 sum = _mm512_loadu_ps(r.sum + column * kTile);
      for (int i = 0; i < 16; ++i) t[i] = _mm512_castps_si512(_mm512_div_ps(_mm512_loadu_ps(from + i * kTile), sum));
      transpose(t);
      for (int64_t i = 0; i < std::min(kTile, block.rows() - column * kTile); ++i)
        _mm256_mask_storeu_epi16(const_cast<bf16*>(o[column * kTile + i]) + tile * kTile, first_of_16(u - tile * kTile),
                                 (__m256i)_mm512_cvtneps_pbh(_mm512_castsi512_ps(t[i])));
    }
  const auto lse = rows_of<float>(op.lse);
  for (int64_t i = 0; i < block.rows(); ++i)
    lse[block.first_row() + i / block.heads][block.head + i % block.heads] = kLn2 * (r.most[i] + std::log2(r.sum[i]));
}

}  // namespace

int64_t forward_floats(const AttentionHeads& h) {
  const int64_t e = wide(h.dim), u = wide(h.value_dim());
  return kKeys * (e + u + kHalf) / 2 + kKeys * (kHalf + kBlockRows) + kGroupBlocks * kBlockRows * (e / 2 + u + 2);
}

void forward_blocks(const Attention& op, std::span<const QueryBlock> blocks, float* memory) {
  const AttentionSpan& span = *blocks.front().span;
  const ForwardTiles f(op.heads, memory);
  const TilesInUse tiles;
  for (size_t i = 0; i < blocks.size(); ++i) begin_rows(op, blocks[i], f, f.running[i]);
  const int64_t first = Strips(op.heads, blocks.front()).keys().begin, end = Strips(op.heads, blocks.back()).keys().end;
  const int64_t start = (span.k_position + first) / kKeys * kKeys - span.k_position;
  for (int64_t key = start; key < end; key += kKeys) {
    const Range seen{std::max(key, first), std::min(end, key + kKeys)},
        rows{span.k_row + seen.begin, span.k_row + seen.end};
    const int64_t lead = seen.begin - key, filled = (seen.end - key + kDepth - 1) / kDepth * kDepth;
    to_plain(rows_of_keys(op.k, rows, blocks.front().kv, op.heads.dim), lead, filled, f.k);
    to_across(rows_of_keys(op.v, rows, blocks.front().kv, op.heads.value_dim()), lead, filled, kSteps, f.v);
    for (size_t i = 0; i < blocks.size(); ++i) add_strip(op, blocks[i], key, f, f.running[i]);
  }
  for (size_t i = 0; i < blocks.size(); ++i) write_rows(op, blocks[i], f.running[i]);
}

}  // namespace amx

const AttentionKernels* tile_kernels() {
  static constexpr AttentionKernels kKernels{amx::forward_floats, amx::forward_blocks, amx::backward_floats,
                                             amx::begin_keys,     amx::backward_block, amx::end_keys};
  return &kKernels;
}

}  // namespace weft::cpu
#else
namespace weft::cpu {
const AttentionKernels* tile_kernels() { return nullptr; }
}  // namespace weft::cpu
#endif
