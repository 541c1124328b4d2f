#include <cmath>
#include <utility>

#include "weft/ops/cpu/attention_amx.h"
#include "weft/ops/cpu/attention_amx_tile.h"

#if defined(__x86_64__)
namespace weft::cpu::amx {
namespace {

constexpr int64_t kGroupKeys = 32, kMostGroups = 4;  // of keys whose scores are computed together; of a strip
constexpr int64_t kColumns = kBlockRows / kTile;
static_assert(kGroupKeys == kStripKeys / 2 && kBlockRows == 2 * kHalf);  // KeyChunk::lead; two halves of a block

// Keys of a chunk, with those before it up to a multiple of 32 positions.
int64_t chunk_groups(int64_t rows) { return (rows + kGroupKeys - 1 + kGroupKeys - 1) / kGroupKeys; }

struct GradientTiles {
  Word *k, *v, *k_across;                 // of the chunk: plain, plain; across [k_width / 16, groups]
  float *dk, *dv;                         // sums [2 groups, width / 16]
  Word *q, *q_pairs, *dout, *dout_pairs;  // turned, paired, turned, paired
  Word* o;                                // plain
  float* dq;                              // sums of the transposed gradients [k_width / 16, kColumns]
  float *lse2, *delta;                    // [kBlockRows] log-sum-exp in units of ln 2; dout o
  Word *p, *ds;                           // of a strip: plain [2 kMostGroups, kHalves]
  Word* ds_pairs;                         // paired [kMostGroups, kColumns], columns as row_of_column
  float *score, *dp;                      // [kGroupKeys, kHalf]
  float* kept;                            // [kGroupKeys, kBlockRows] factors of dropout
  int64_t groups, k_width, v_width;
  GradientTiles(const AttentionHeads& h, int64_t rows, float* memory)
      : groups(chunk_groups(rows)), k_width(wide(h.dim)), v_width(wide(h.value_dim())) {
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    const auto words = [&](int64_t n) { return reinterpret_cast<Word*>(take(n / 2)); };
    const int64_t keys = groups * kGroupKeys, strip = kMostGroups * kGroupKeys * kBlockRows;
    k = words(keys * k_width), v = words(keys * v_width), k_across = words(keys * k_width);
    dk = take(keys * k_width), dv = take(keys * v_width);
    q = words(kBlockRows * k_width), q_pairs = words(kBlockRows * k_width);
    dout = words(kBlockRows * v_width), dout_pairs = words(kBlockRows * v_width), o = words(kBlockRows * v_width);
    dq = take(kBlockRows * k_width), lse2 = take(kBlockRows), delta = take(kBlockRows);
    p = words(strip), ds = words(strip), ds_pairs = words(strip);
    score = take(kGroupKeys * kHalf), dp = take(kGroupKeys * kHalf), kept = take(kGroupKeys * kBlockRows);
  }
};

// Every row's dout o, in the order in which dout v is summed: they are equal where a row sees one key.
WEFT_AMX void read_deltas(const HeadRows& o, const GradientTiles& f) {
  const int64_t steps = f.v_width / kDepth;
  to_plain(o, 0, kBlockRows, f.o);
  for (int64_t half = 0; half < kHalves; ++half) {
    multiply({.rows = 2,
              .columns = 2,
              .steps = steps,
              .a = f.o + half * 2 * steps * kTileWords,
              .a_row = steps * kTileWords,
              .a_step = kTileWords,
              .b = f.dout + half * 2 * kTileWords,
              .b_step = kColumns * kTileWords,
              .b_column = kTileWords,
              .c = f.score,
              .c_row = kTile * kHalf,
              .c_column = kTile,
              .c_stride = kHalf * 4,
              .add = false});
    for (int64_t r = 0; r < kHalf; ++r) f.delta[half * kHalf + r] = f.score[r * kHalf + r];
  }
}

void read_block(const AttentionBackward& op, const QueryBlock& block, const GradientTiles& f) {
  const HeadRows q = rows_of_block(op.q, block, op.heads.dim),
                 dout = rows_of_block(op.dout, block, op.heads.value_dim());
  to_turned(q, f.q);
  to_paired(q, f.q_pairs);
  to_turned(dout, f.dout);
  to_paired(dout, f.dout_pairs);
  read_deltas(rows_of_block(op.o, block, op.heads.value_dim()), f);
  const auto lse = rows_of<const float>(op.lse);
  std::fill_n(f.lse2, kBlockRows, 0.0f);
  for (int64_t r = 0; r < block.rows(); ++r)
    f.lse2[r] = kLog2E * lse[block.first_row() + r / block.heads][block.head + r % block.heads];
}

// Rows of 16 columns of f32 from and to memory.
WEFT_AMX void begin_dq(const QueryBlock& block, const BackwardTask& task, bool first, int64_t dim,
                       const GradientTiles& f) {
  std::fill_n(f.dq, kBlockRows * f.k_width, 0.0f);
  if (first) return;
  __m512i t[16];
  for (int64_t column = 0; column < kColumns; ++column)
    for (int64_t tile = 0; tile * kTile < dim; ++tile) {
      for (int64_t i = 0; i < 16; ++i) {
        const int64_t r = column / 2 * kHalf + row_of_column(column % 2 * kTile + i);
        t[i] = _mm512_setzero_si512();
        if (r >= block.rows()) continue;
        const float* row = task.unfinished[block.first_row() + r / block.heads];
        t[i] = _mm512_castps_si512(_mm512_maskz_loadu_ps(first_of_16(dim - tile * kTile),
                                                         row + (block.head + r % block.heads) * dim + tile * kTile));
      }
      transpose(t);
      for (int i = 0; i < 16; ++i)
        _mm512_storeu_si512(f.dq + (tile * kColumns + column) * kTileFloats + i * kTile, t[i]);
    }
}
// With the last of its keys, dq is scaled and written; else it waits.
WEFT_AMX void end_dq(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, bool last,
                     const GradientTiles& f) {
  const int64_t dim = op.heads.dim;
  const HeadRows dq = rows_of_block(op.dq, block, dim);
  const __m512 scale = _mm512_set1_ps(float(op.heads.scale));
  __m512i t[16];
  for (int64_t column = 0; column < kColumns; ++column)
    for (int64_t tile = 0; tile * kTile < dim; ++tile) {
      for (int i = 0; i < 16; ++i)
        t[i] = _mm512_loadu_si512(f.dq + (tile * kColumns + column) * kTileFloats + i * kTile);
      transpose(t);
      const __mmask16 mask = first_of_16(dim - tile * kTile);
      for (int64_t i = 0; i < 16; ++i) {
        const int64_t r = column / 2 * kHalf + row_of_column(column % 2 * kTile + i);
        if (r >= block.rows()) continue;
        const __m512 x = _mm512_castsi512_ps(t[i]);
        if (last) {
          _mm256_mask_storeu_epi16(const_cast<bf16*>(dq[r]) + tile * kTile, mask,
                                   (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(x, scale)));
        } else {
          float* row = task.unfinished[block.first_row() + r / block.heads];
          _mm512_mask_storeu_ps(row + (block.head + r % block.heads) * dim + tile * kTile, mask, x);
        }
      }
    }
}

struct Masks {
  bool all = true;  // all rows see all keys
  uint32_t rows[size_t(kGroupKeys)];
};
// What elements are made of beside their scores.
struct Slopes {
  float unit, cap;  // scores are multiples of `unit` ln 2; cap tanh(score)
  bool dropout;
};

// 16 rows and one key: p becomes what multiplied v, ds the gradient of the score, but for the scale.
template <bool kPlain>
WEFT_AMX_INLINE void differentiate_16(const GradientTiles& f, const Slopes& s, int64_t at, const float* kept,
                                      __m512 lse2, __m512 delta, __mmask16 seen, __m512* p, __m512* ds) {
  const __m512 score = _mm512_loadu_ps(f.score + at);
  __m512 dp = _mm512_loadu_ps(f.dp + at);
  __m512 e = exp2_of(_mm512_fmsub_ps(score, _mm512_set1_ps(s.unit), lse2));
  *p = e;
  if (!kPlain) {
    if (s.dropout) {
      const __m512 factor = _mm512_loadu_ps(kept);
      dp = _mm512_mul_ps(dp, factor);
      *p = _mm512_mul_ps(e, factor);
    }
    if (s.cap > 0) e = _mm512_mul_ps(e, _mm512_fnmadd_ps(score, score, _mm512_set1_ps(1.0f)));
  }
  *ds = _mm512_mul_ps(e, _mm512_sub_ps(dp, delta));
  if (!kPlain) *p = _mm512_maskz_mov_ps(seen, *p), *ds = _mm512_maskz_mov_ps(seen, *ds);
}

// Writes the tiles of a group and half. `group` of the strip.
template <bool kPlain>
WEFT_AMX void differentiate(const GradientTiles& f, const Slopes& s, const Masks& masks, int64_t group, int64_t half) {
  const float *lse2 = f.lse2 + half * kHalf, *delta = f.delta + half * kHalf;
  const __m512 lse0 = _mm512_loadu_ps(lse2), lse1 = _mm512_loadu_ps(lse2 + 16);
  const __m512 delta0 = _mm512_loadu_ps(delta), delta1 = _mm512_loadu_ps(delta + 16);
  __m512i before = _mm512_setzero_si512();
  for (int64_t key = 0; key < kGroupKeys; ++key) {
    const uint32_t seen = kPlain || masks.all ? ~0u : masks.rows[key];
    const float* kept = f.kept + key * kBlockRows + half * kHalf;
    __m512 p0, p1, ds0, ds1;
    differentiate_16<kPlain>(f, s, key * kHalf, kept, lse0, delta0, __mmask16(seen), &p0, &ds0);
    differentiate_16<kPlain>(f, s, key * kHalf + 16, kept + 16, lse1, delta1, __mmask16(seen >> 16), &p1, &ds1);
    const int64_t row = ((group * 2 + key / kTile) * kHalves + half) * kTileWords + key % kTile * kDepth;
    const __m512i ds = (__m512i)_mm512_cvtne2ps_pbh(ds1, ds0);
    _mm512_storeu_si512(f.p + row, (__m512i)_mm512_cvtne2ps_pbh(p1, p0));
    _mm512_storeu_si512(f.ds + row, ds);
    if (key % 2 == 1) {
      Word* pairs = f.ds_pairs + (group * kColumns + half * 2) * kTileWords + key / 2 * kDepth;
      _mm512_storeu_si512(pairs, _mm512_unpacklo_epi16(before, ds));
      _mm512_storeu_si512(pairs + kTileWords, _mm512_unpackhi_epi16(before, ds));
    }
    before = ds;
  }
}

void clear_group(const GradientTiles& f, int64_t group, int64_t half) {
  for (int64_t tile = group * 2; tile < group * 2 + 2; ++tile) {
    std::fill_n(f.p + (tile * kHalves + half) * kTileWords, kTileWords, Word{0});
    std::fill_n(f.ds + (tile * kHalves + half) * kTileWords, kTileWords, Word{0});
  }
  std::fill_n(f.ds_pairs + (group * kColumns + half * 2) * kTileWords, 2 * kTileWords, Word{0});
}

// Scores [kGroupKeys, kHalf] of the chunk's group and a half of the block, from keys or values.
WEFT_AMX_INLINE void multiply_group(const Word* keys, const Word* rows, int64_t width, int64_t group, int64_t half,
                                    float* c) {
  const int64_t steps = width / kDepth;
  multiply({.rows = 2,
            .columns = 2,
            .steps = steps,
            .a = keys + group * kGroupKeys * width,
            .a_row = steps * kTileWords,
            .a_step = kTileWords,
            .b = rows + half * 2 * kTileWords,
            .b_step = kColumns * kTileWords,
            .b_column = kTileWords,
            .c = c,
            .c_row = kTile * kHalf,
            .c_column = kTile,
            .c_stride = kHalf * 4,
            .add = false});
}

// A block beside a chunk. Key i of the span is row i - first of the chunk's tiles.
struct Visit {
  const AttentionBackward& op;
  const QueryBlock& block;
  const BackwardTask& task;
  const GradientTiles& f;
  int64_t first;
  Range keys;  // that the block sees
};

// `group` of the chunk, `in_strip` of the strip.
WEFT_AMX void compute_group(const Visit& v, int64_t group, int64_t in_strip, int64_t half) {
  const GradientTiles& f = v.f;
  const int64_t key = v.first + group * kGroupKeys;
  const Sight sight(v.op.heads, v.block, half);
  if (!sight.any(key, kGroupKeys)) return clear_group(f, in_strip, half);
  multiply_group(f.k, f.q, f.k_width, group, half, f.score);
  multiply_group(f.v, f.dout, f.v_width, group, half, f.dp);
  const float scale = float(v.op.heads.scale), cap = float(v.op.heads.softcap);
  if (cap > 0) tanh_of(f.score, kGroupKeys * kHalf, scale / cap);
  const Slopes slopes{(cap > 0 ? cap : scale) * kLog2E, cap, v.op.dropout.p > 0};
  Masks masks;
  masks.all = sight.whole(key, kGroupKeys) && key >= v.keys.begin && key + kGroupKeys <= v.keys.end;
  if (masks.all && cap <= 0 && !slopes.dropout) return differentiate<true>(f, slopes, masks, in_strip, half);
  for (int64_t i = 0; i < kGroupKeys && !masks.all; ++i)
    masks.rows[i] = key + i >= v.keys.begin && key + i < v.keys.end ? sight.rows_that_see(key + i) : 0;
  differentiate<false>(f, slopes, masks, in_strip, half);
}

// dk or dv += the strip's elements times the block's rows.
WEFT_AMX void add_to_keys(const Word* elements, const Word* pairs, int64_t width, Range groups, int64_t halves,
                          float* sums) {
  const int64_t tiles = width / kTile;
  multiply({.rows = groups.size() * 2,
            .columns = tiles,
            .steps = halves,
            .a = elements,
            .a_row = kHalves * kTileWords,
            .a_step = kTileWords,
            .b = pairs,
            .b_step = tiles * kTileWords,
            .b_column = kTileWords,
            .c = sums + groups.begin * 2 * tiles * kTileFloats,
            .c_row = tiles * kTileFloats,
            .c_column = kTileFloats,
            .c_stride = 64,
            .add = true});
}

WEFT_AMX void visit_strip(const Visit& v, Range groups) {
  const GradientTiles& f = v.f;
  const int64_t halves = v.block.rows() > kHalf ? 2 : 1;
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    if (v.op.dropout.p > 0)
      dropout_factors(v.op.dropout, v.op.heads, v.block,
                      {.key = v.first + group * kGroupKeys, .keys = kGroupKeys, .begin = 0, .end = kBlockRows}, f.kept);
    for (int64_t half = 0; half < halves; ++half) compute_group(v, group, group - groups.begin, half);
  }
  if (v.task.key_sums) {
    add_to_keys(f.p, f.dout_pairs, f.v_width, groups, halves, f.dv);
    add_to_keys(f.ds, f.q_pairs, f.k_width, groups, halves, f.dk);
  }
  if (v.task.dq)
    multiply({.rows = f.k_width / kTile,
              .columns = halves * 2,
              .steps = groups.size(),
              .a = f.k_across + groups.begin * kTileWords,
              .a_row = f.groups * kTileWords,
              .a_step = kTileWords,
              .b = f.ds_pairs,
              .b_step = kColumns * kTileWords,
              .b_column = kTileWords,
              .c = f.dq,
              .c_row = kColumns * kTileFloats,
              .c_column = kTileFloats,
              .c_stride = 64,
              .add = true});
}

WEFT_AMX void write_keys(const Tensor& x, const KeyChunk& chunk, int64_t dim, int64_t width, float factor,
                         const float* sums) {
  for (int64_t i = 0; i < chunk.rows.size(); ++i) {
    bf16* to = x.as<bf16>() + (chunk.rows.begin + i) * x.row_stride + chunk.kv * dim;
    const int64_t row = i + chunk.lead;
    for (int64_t tile = 0; tile * kTile < dim; ++tile) {
      const float* from = sums + (row / kTile * (width / kTile) + tile) * kTileFloats + row % kTile * kTile;
      _mm256_mask_storeu_epi16(
          to + tile * kTile, first_of_16(dim - tile * kTile),
          (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_loadu_ps(from), _mm512_set1_ps(factor))));
    }
  }
}

}  // namespace

int64_t backward_floats(const AttentionHeads& h, int64_t most_rows) {
  const int64_t e = wide(h.dim), u = wide(h.value_dim()), keys = chunk_groups(most_rows) * kGroupKeys;
  return keys * (2 * e + u / 2 + u) + kBlockRows * (2 * e + u / 2 + u + 2) +
         kMostGroups * kGroupKeys * kBlockRows / 2 * 3 + kGroupKeys * (2 * kHalf + kBlockRows);
}

void begin_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory) {
  const GradientTiles f(op.heads, chunk.rows.size(), memory);
  const int64_t keys = f.groups * kGroupKeys;
  const HeadRows k = rows_of_keys(op.k, chunk.rows, chunk.kv, op.heads.dim);
  to_plain(k, chunk.lead, keys, f.k);
  to_across(k, chunk.lead, keys, f.groups, f.k_across);
  to_plain(rows_of_keys(op.v, chunk.rows, chunk.kv, op.heads.value_dim()), chunk.lead, keys, f.v);
  std::fill_n(f.dk, keys * f.k_width, 0.0f);
  std::fill_n(f.dv, keys * f.v_width, 0.0f);
}

void backward_block(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory) {
  const int64_t begin = task.chunk.rows.begin - block.span->k_row, end = task.chunk.rows.end - block.span->k_row;
  const Range seen = Strips(op.heads, block).keys(), keys{std::max(begin, seen.begin), std::min(end, seen.end)};
  if (keys.size() <= 0) return;
  const GradientTiles f(op.heads, task.chunk.rows.size(), memory);
  const TilesInUse tiles;
  const Visit visit{op, block, task, f, begin - task.chunk.lead, keys};
  read_block(op, block, f);
  if (task.dq) begin_dq(block, task, begin <= seen.begin, op.heads.dim, f);
  const int64_t last = (keys.end - visit.first + kGroupKeys - 1) / kGroupKeys;
  for (int64_t group = (keys.begin - visit.first) / kGroupKeys; group < last; group += kMostGroups)
    visit_strip(visit, {group, std::min(last, group + kMostGroups)});
  if (task.dq) end_dq(op, block, task, end >= seen.end, f);
}

void end_keys(const AttentionBackward& op, const KeyChunk& chunk, float* memory) {
  const GradientTiles f(op.heads, chunk.rows.size(), memory);
  write_keys(op.dk, chunk, op.heads.dim, f.k_width, float(op.heads.scale), f.dk);
  write_keys(op.dv, chunk, op.heads.value_dim(), f.v_width, 1, f.dv);
}

}  // namespace weft::cpu::amx
#endif
