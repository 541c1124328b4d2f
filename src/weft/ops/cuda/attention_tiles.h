// Kernels: attention by tiles on tensor cores, forward and backward, for 16-bit floats. A warp has 16 rows of scores in
// its registers, with the running maximum and sum of each; nothing of them goes to memory.
//   FlashAttention-2: Dao 2023. Two kernels go backward, of queries and of keys, so that each sum has one order.
#pragma once
#include <type_traits>

#include "weft/ops/cuda/attention.h"
#include "weft/ops/cuda/tile_block.h"

namespace weft::gpu {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
inline constexpr int kTileRows = 16 * kWarps;  // of queries, or of keys in the backward kernel of keys

// A score as the softmax has it, in powers of 2.
WEFT_GPU inline float score2_of(const AttentionHeads& heads, float product) {
  return heads.softcap > 0 ? score_of(heads, product) * kLog2E : product * (float(heads.scale) * kLog2E);
}

// Tiles of kTileRows rows of each span: those of span s have the numbers [first[s], first[s + 1]).
struct TileList {
  const int64_t* first;
  int64_t num_spans;
  WEFT_GPU int64_t span_of(int64_t tile) const {
    int64_t low = 0, high = num_spans;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (first[middle] <= tile ? low : high) = middle;
    }
    return low;
  }
};

// Row and column of the i-th number that a lane holds of a C [16, N].
WEFT_GPU inline int row_of(int lane, int i) { return lane / 4 + i % 4 / 2 * 8; }
WEFT_GPU inline int column_of(int lane, int i) { return i / 4 * 8 + 2 * (lane % 4) + i % 2; }

// The columns of the tile that this row attends to.
struct Columns {
  int64_t first, end;
  WEFT_GPU bool have(int column) const { return column >= int(first) && column < int(end); }
};
WEFT_GPU inline Columns within(int64_t first, int64_t end, int columns) {
  return {first > 0 ? (first < columns ? first : columns) : 0, end < columns ? (end > 0 ? end : 0) : columns};
}

// C [16, E] of a warp to rows of memory: `rows` of them exist, `width` columns.
template <class T, int E, class Warp, class Of, class Row>
WEFT_GPU void store_rows(const Warp& warp, const Of& of, int64_t rows, int width, const Row& row) {
  warp.lanes([&](int lane) {
    WEFT_UNROLL
    for (int i = 0; i < E / 2; ++i) {
      const int r = row_of(lane, i), j = column_of(lane, i);
      if (r < rows && j < width) store(row(r) + j, of(lane, i));
    }
  });
}

// The elements between rows of N in shared memory: eight rows lie in different banks.
WEFT_BOTH constexpr int stride_of(int n) { return n + 8; }

// A block for each tile of queries and each head, the tiles that see most keys first. Heads are up to E wide, their
// values and results up to V.
template <class T, int E, int V>
struct AttentionTile {
  static constexpr int kKeys = 64, kStride = stride_of(E), kValueStride = stride_of(V);
  static constexpr int kTile = kKeys * kStride, kBatch = kTile + kKeys * kValueStride;  // of keys; and their values
  static constexpr int64_t kSharedBytes = 2 * kBatch * int64_t(sizeof(T));
  static_assert(kTileRows * kStride <= 2 * kBatch, "queries go through the same memory");

  Rows<const T> q, k, v;
  Rows<T> o;
  Rows<float> lse;
  Sight sight;
  TileList tiles;
  int64_t num_tiles;

  template <class Warp>
  struct State {
    typename Warp::template Registers<uint32_t, E / 4> q;
    typename Warp::template Registers<float, V / 2> o;
    typename Warp::template Registers<float, 2> most, total;  // of rows g and g + 8; of scores in powers of 2
  };

  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    using Warp = typename Block::Warp;
    const AttentionHeads& heads = sight.heads;
    const int64_t tile = num_tiles - 1 - block.index() / heads.q, h = block.index() % heads.q, e = heads.dim;
    const int64_t u = sight.value_dim(), g = h / (heads.q / heads.kv);
    const int64_t number = tiles.span_of(tile);
    const AttentionSpan& s = sight.spans[number];
    const int64_t first = (tile - tiles.first[number]) * kTileRows;  // query of the span
    const int64_t rows = s.q_count - first < kTileRows ? s.q_count - first : kTileRows;
    const int64_t position = s.q_position + first;
    const int copies = int(e / 8), value_copies = int(u / 8);
    T* const shared = static_cast<T*>(block.shared());
    typename Block::template PerWarp<State<Warp>> states;

    block.template fetch<E / 8>(shared, kStride, kTileRows, copies,
                                [&](int r) { return r < rows ? q[s.q_row + first + r] + h * e : nullptr; });
    block.end_of_batch();
    block.template fetched<0>();
    block.warps([&](const Warp& warp) {
      State<Warp>& state = states[warp];
      WEFT_UNROLL
      for (int p = 0; p < E / 16; ++p) {
        typename Warp::template Registers<uint32_t, 4> fragment;
        load_fragment(warp, fragment, shared + 16 * warp.index() * kStride, kStride, p);
        warp.lanes([&](int lane) {
          WEFT_UNROLL
          for (int w = 0; w < 4; ++w) state.q[lane][4 * p + w] = fragment[lane][w];
        });
      }
      warp.lanes([&](int lane) {
        for (int r = 0; r < 2; ++r) state.most[lane][r] = -INFINITY, state.total[lane][r] = 0;
      });
    });

    const int64_t begin = sight.first_key(s, position) / kKeys * kKeys, end = sight.end_key(s, position + rows - 1);
    const auto fetch = [&](int64_t key, int64_t batch) {
      T* to = shared + batch * kBatch;
      const auto row = [&](const Rows<const T>& x, int64_t column, int r) {
        return key + r < s.k_count ? x[s.k_row + key + r] + column : nullptr;
      };
      block.template fetch<E / 8>(to, kStride, kKeys, copies, [&](int r) { return row(k, g * e, r); });
      block.template fetch<V / 8>(to + kTile, kValueStride, kKeys, value_copies,
                                  [&](int r) { return row(v, g * u, r); });
      block.end_of_batch();
    };
    if (begin < end) fetch(begin, 0);
    for (int64_t key = begin, batch = 0; key < end; key += kKeys, batch ^= 1) {
      if (key + kKeys < end) {
        fetch(key + kKeys, batch ^ 1);
        block.template fetched<1>();
      } else {
        block.template fetched<0>();
      }
      block.warps([&](const Warp& warp) {
        step(warp, states[warp], s, h, position + 16 * warp.index(), key, shared + batch * kBatch);
      });
    }
    block.warps([&](const Warp& warp) {
      const int64_t mine = 16 * warp.index();
      finish(warp, states[warp], s.q_row + first + mine, rows - mine, h);
    });
  }

 private:
  // Adds the tile of keys from `key` of the span on, for a warp whose first query is at `position`.
  template <class Warp>
  WEFT_GPU void step(const Warp& warp, State<Warp>& state, const AttentionSpan& s, int64_t h, int64_t position,
                     int64_t key, const T* tile) const {
    typename Warp::template Registers<float, kKeys / 2> scores;
    multiply_rows<T, kKeys, E>(
        warp, scores,
        [&](int p, auto& fragment) {
          warp.lanes([&](int lane) {
            WEFT_UNROLL
            for (int w = 0; w < 4; ++w) fragment[lane][w] = state.q[lane][4 * p + w];
          });
        },
        tile, kStride);
    typename Warp::template Registers<float, 2> most = state.most;
    warp.lanes([&](int lane) {
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int64_t at = position + lane / 4 + 8 * half;
        const Columns seen = within(sight.first_key(s, at) - key, sight.end_key(s, at) - key, kKeys);
        WEFT_UNROLL
        for (int i = 0; i < kKeys / 2; ++i) {
          if (i % 4 / 2 != half) continue;
          const float score = seen.have(column_of(lane, i)) ? score2_of(sight.heads, scores[lane][i]) : -INFINITY;
          scores[lane][i] = score;
          most[lane][half] = score > most[lane][half] ? score : most[lane][half];
        }
      }
    });
    warp.across(most, Larger());
    warp.lanes([&](int lane) {
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float m = most[lane][half], from = m > -INFINITY ? m : 0.0f;  // a row that has seen nothing yet
        const float fades = exp2f(state.most[lane][half] - from);
        state.most[lane][half] = m;
        state.total[lane][half] *= fades;
        WEFT_UNROLL
        for (int i = 0; i < V / 2; ++i)
          if (i % 4 / 2 == half) state.o[lane][i] *= fades;
        WEFT_UNROLL
        for (int i = 0; i < kKeys / 2; ++i) {
          if (i % 4 / 2 != half) continue;
          const float p = exp2f(scores[lane][i] - from);
          state.total[lane][half] += p;
          scores[lane][i] = p;
        }
      }
      if (sight.dropped == 0) return;
      WEFT_UNROLL
      for (int i = 0; i < kKeys / 2; ++i)
        scores[lane][i] *= sight.kept(s, h, position + row_of(lane, i), s.k_position + key + column_of(lane, i));
    });
    multiply_columns<T, V, kKeys>(warp, state.o, scores, tile + kTile, kValueStride);
  }

  template <class Warp>
  WEFT_GPU void finish(const Warp& warp, State<Warp>& state, int64_t row, int64_t rows, int64_t h) const {
    warp.across(state.total, AddUp());
    warp.lanes([&](int lane) {
      for (int half = 0; half < 2; ++half) {
        const int64_t r = lane / 4 + 8 * half;
        if (lane % 4 == 0 && r < rows)
          lse[row + r][h] = (state.most[lane][half] + log2f(state.total[lane][half])) * kLn2;
      }
    });
    const int64_t u = sight.value_dim();
    store_rows<T, V>(
        warp, [&](int lane, int i) { return state.o[lane][i] / state.total[lane][i % 4 / 2]; }, rows, int(u),
        [&](int r) { return o[row + r] + h * u; });
  }
};

// What both backward kernels read.
template <class T>
struct TileGradient {
  Rows<const T> q, k, v, o, dout;
  Rows<const float> lse;
  Rows<float> weighted;  // [tq, h]: dout . o, which the kernel of queries leaves for that of keys
  Sight sight;
  TileList tiles;
  struct Pair {
    float weight, ds;
  };
  // For one query and key: the weight after dropout, and the gradient of the scaled score.
  WEFT_GPU Pair pair(const AttentionSpan& s, int64_t h, int64_t query, int64_t key, bool seen, float score, float dp,
                     float lse2, float weighted_output) const {
    const float p = seen ? exp2f(score2_of(sight.heads, score) - lse2) : 0.0f;
    const float kept = sight.kept(s, h, s.q_position + query, s.k_position + key);
    return {p * kept, p * (dp * kept - weighted_output) * slope_of(sight.heads, score)};
  }
};

// A block for each tile of queries and each head.
template <class T, int E, int V>
struct AttentionTileQueries {
  static_assert(V <= E, "what is as wide as values goes through the memory of queries");
  static constexpr int kKeys = 32, kStride = stride_of(E), kValueStride = stride_of(V);
  static constexpr int kTile = kKeys * kStride, kBatch = kTile + kKeys * kValueStride;
  static constexpr int64_t kSharedBytes =
      (2 * kBatch > kTileRows * kStride ? 2 * kBatch : kTileRows * kStride) * int64_t(sizeof(T));

  TileGradient<T> of;
  Rows<T> dq;
  int64_t num_tiles;

  template <class Warp>
  struct State {
    typename Warp::template Registers<uint32_t, E / 4> q;
    typename Warp::template Registers<uint32_t, V / 4> dout;
    typename Warp::template Registers<float, E / 2> dq;
    typename Warp::template Registers<float, 2> lse2, weighted;  // of rows g and g + 8
  };

  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    using Warp = typename Block::Warp;
    const AttentionHeads& heads = of.sight.heads;
    const int64_t tile = num_tiles - 1 - block.index() / heads.q, h = block.index() % heads.q, e = heads.dim;
    const int64_t u = of.sight.value_dim(), g = h / (heads.q / heads.kv);
    const int64_t number = of.tiles.span_of(tile);
    const AttentionSpan& s = of.sight.spans[number];
    const int64_t first = (tile - of.tiles.first[number]) * kTileRows;
    const int64_t rows = s.q_count - first < kTileRows ? s.q_count - first : kTileRows;
    const int64_t position = s.q_position + first;
    const int copies = int(e / 8), value_copies = int(u / 8);
    T* const shared = static_cast<T*>(block.shared());
    typename Block::template PerWarp<State<Warp>> states;

    // use(warp, lane, i, word) for the words of this tile's rows of x, whose heads are `dim` wide, at most `width`.
    const auto read = [&](auto width, const Rows<const T>& x, int64_t dim, const auto& use) {
      constexpr int N = decltype(width)::value;
      block.template fetch<N / 8>(shared, stride_of(N), kTileRows, int(dim / 8),
                                  [&](int r) { return r < rows ? x[s.q_row + first + r] + h * dim : nullptr; });
      block.end_of_batch();
      block.template fetched<0>();
      block.warps([&](const Warp& warp) {
        WEFT_UNROLL
        for (int p = 0; p < N / 16; ++p) {
          typename Warp::template Registers<uint32_t, 4> fragment;
          load_fragment(warp, fragment, shared + 16 * warp.index() * stride_of(N), stride_of(N), p);
          warp.lanes([&](int lane) {
            WEFT_UNROLL
            for (int w = 0; w < 4; ++w) use(warp, lane, 4 * p + w, fragment[lane][w]);
          });
        }
      });
    };
    using Width = std::integral_constant<int, E>;
    using ValueWidth = std::integral_constant<int, V>;
    read(Width(), of.q, e, [&](const Warp& warp, int lane, int i, uint32_t word) { states[warp].q[lane][i] = word; });
    read(ValueWidth(), of.dout, u,
         [&](const Warp& warp, int lane, int i, uint32_t word) { states[warp].dout[lane][i] = word; });
    read(ValueWidth(), of.o, u, [&](const Warp& warp, int lane, int i, uint32_t word) {
      State<Warp>& state = states[warp];
      const uint32_t other = state.dout[lane][i];
      state.weighted[lane][i % 2] += low_of<T>(word) * low_of<T>(other) + high_of<T>(word) * high_of<T>(other);
    });
    block.warps([&](const Warp& warp) {
      State<Warp>& state = states[warp];
      warp.across(state.weighted, AddUp());
      warp.lanes([&](int lane) {
        WEFT_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int64_t r = 16 * warp.index() + lane / 4 + 8 * half, row = s.q_row + first + r;
          state.lse2[lane][half] = r < rows ? of.lse[row][h] * kLog2E : INFINITY;
          if (lane % 4 == 0 && r < rows) of.weighted[row][h] = state.weighted[lane][half];
        }
      });
    });

    const int64_t begin = of.sight.first_key(s, position) / kKeys * kKeys;
    const int64_t end = of.sight.end_key(s, position + rows - 1);
    const auto fetch = [&](int64_t key, int64_t batch) {
      T* to = shared + batch * kBatch;
      const auto row = [&](const Rows<const T>& x, int64_t column, int r) {
        return key + r < s.k_count ? x[s.k_row + key + r] + column : nullptr;
      };
      block.template fetch<E / 8>(to, kStride, kKeys, copies, [&](int r) { return row(of.k, g * e, r); });
      block.template fetch<V / 8>(to + kTile, kValueStride, kKeys, value_copies,
                                  [&](int r) { return row(of.v, g * u, r); });
      block.end_of_batch();
    };
    if (begin < end) fetch(begin, 0);
    for (int64_t key = begin, batch = 0; key < end; key += kKeys, batch ^= 1) {
      if (key + kKeys < end) {
        fetch(key + kKeys, batch ^ 1);
        block.template fetched<1>();
      } else {
        block.template fetched<0>();
      }
      block.warps([&](const Warp& warp) {
        step(warp, states[warp], s, h, first + 16 * warp.index(), key, shared + batch * kBatch);
      });
    }
    block.warps([&](const Warp& warp) {
      const State<Warp>& state = states[warp];
      const int64_t mine = 16 * warp.index(), row = s.q_row + first + mine;
      store_rows<T, E>(
          warp, [&](int lane, int i) { return float(heads.scale) * state.dq[lane][i]; }, rows - mine, int(e),
          [&](int r) { return dq[row + r] + h * e; });
    });
  }

 private:
  template <class Warp>
  WEFT_GPU void step(const Warp& warp, State<Warp>& state, const AttentionSpan& s, int64_t h, int64_t query,
                     int64_t key, const T* tile) const {
    typename Warp::template Registers<float, kKeys / 2> scores, dp;
    const auto fragment_of = [&](const auto& words) {
      return [&warp, &words](int p, auto& fragment) {
        warp.lanes([&](int lane) {
          WEFT_UNROLL
          for (int w = 0; w < 4; ++w) fragment[lane][w] = words[lane][4 * p + w];
        });
      };
    };
    multiply_rows<T, kKeys, E>(warp, scores, fragment_of(state.q), tile, kStride);
    multiply_rows<T, kKeys, V>(warp, dp, fragment_of(state.dout), tile + kTile, kValueStride);
    warp.lanes([&](int lane) {
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int64_t mine = query + lane / 4 + 8 * half, at = s.q_position + mine;
        const Columns seen = within(of.sight.first_key(s, at) - key, of.sight.end_key(s, at) - key, kKeys);
        WEFT_UNROLL
        for (int i = 0; i < kKeys / 2; ++i) {
          if (i % 4 / 2 != half) continue;
          const int column = column_of(lane, i);
          const auto pair = of.pair(s, h, mine, key + column, seen.have(column), scores[lane][i], dp[lane][i],
                                    state.lse2[lane][half], state.weighted[lane][half]);
          scores[lane][i] = pair.ds;
        }
      }
    });
    multiply_columns<T, E, kKeys>(warp, state.dq, scores, tile, kStride);
  }
};

// A block for each tile of keys and each key head: sums over its heads and their queries, in that order. No row of keys
// is in two spans. Scores are transposed here: a row is a key.
template <class T, int E, int V>
struct AttentionTileKeys {
  static constexpr int kQueries = 32, kStride = stride_of(E), kValueStride = stride_of(V);
  static constexpr int kKeyTile = kTileRows * kStride, kValueTile = kTileRows * kValueStride;
  static constexpr int kTile = kQueries * kStride, kBatch = kTile + kQueries * kValueStride;  // of q; and of dout
  static constexpr int64_t kNumberBytes = 4 * kQueries * int64_t(sizeof(float));  // two stages of lse and weighted
  static constexpr int64_t kSharedBytes = (kKeyTile + kValueTile + 2 * kBatch) * int64_t(sizeof(T)) + kNumberBytes;

  TileGradient<T> of;
  Rows<T> dk, dv;
  int64_t num_tiles;

  template <class Warp>
  struct State {
    typename Warp::template Registers<float, E / 2> dk;
    typename Warp::template Registers<float, V / 2> dv;
  };
  struct Batch {
    const T *q, *dout;
    const float *lse2, *weighted;
  };

  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    using Warp = typename Block::Warp;
    const AttentionHeads& heads = of.sight.heads;
    const int64_t tile = block.index() / heads.kv, g = block.index() % heads.kv, e = heads.dim;
    const int64_t u = of.sight.value_dim(), number = of.tiles.span_of(tile), group = heads.q / heads.kv;
    const AttentionSpan& s = of.sight.spans[number];
    const int64_t first = (tile - of.tiles.first[number]) * kTileRows;  // key of the span
    const int64_t rows = s.k_count - first < kTileRows ? s.k_count - first : kTileRows;
    const int copies = int(e / 8), value_copies = int(u / 8);
    T *const keys = static_cast<T*>(block.shared()), *const values = keys + kKeyTile,
             *const queries = values + kValueTile;
    float* const numbers = reinterpret_cast<float*>(queries + 2 * kBatch);
    typename Block::template PerWarp<State<Warp>> states;

    block.template fetch<E / 8>(keys, kStride, kTileRows, copies,
                                [&](int r) { return r < rows ? of.k[s.k_row + first + r] + g * e : nullptr; });
    block.template fetch<V / 8>(values, kValueStride, kTileRows, value_copies,
                                [&](int r) { return r < rows ? of.v[s.k_row + first + r] + g * u : nullptr; });
    block.end_of_batch();
    // Queries see a key from its position on, while the window reaches.
    const int64_t from = s.k_position + first - s.q_position, last = from + rows - 1;
    const int64_t begin = (from > 0 ? from : 0) / kQueries * kQueries;
    const int64_t reach = heads.window > 0 ? last + heads.window : s.q_count;
    const int64_t end = reach < s.q_count ? reach : s.q_count;
    const int64_t steps = end > begin ? (end - begin + kQueries - 1) / kQueries : 0;
    const auto fetch = [&](int64_t n) {
      const int64_t h = g * group + n / steps, query = begin + n % steps * kQueries, batch = n % 2;
      T* to = queries + batch * kBatch;
      const auto row = [&](const Rows<const T>& x, int64_t column, int r) {
        return query + r < s.q_count ? x[s.q_row + query + r] + column : nullptr;
      };
      block.template fetch<E / 8>(to, kStride, kQueries, copies, [&](int r) { return row(of.q, h * e, r); });
      block.template fetch<V / 8>(to + kTile, kValueStride, kQueries, value_copies,
                                  [&](int r) { return row(of.dout, h * u, r); });
      block.end_of_batch();
      float* lse2 = numbers + batch * 2 * kQueries;
      block.each(kQueries, [&](int r) {
        const bool is = query + r < s.q_count;
        lse2[r] = is ? of.lse[s.q_row + query + r][h] * kLog2E : INFINITY;
        lse2[kQueries + r] = is ? of.weighted[s.q_row + query + r][h] : 0.0f;
      });
    };
    const int64_t all = group * steps;
    if (all > 0) fetch(0);
    for (int64_t n = 0; n < all; ++n) {
      if (n + 1 < all) {
        fetch(n + 1);
        block.template fetched<1>();
      } else {
        block.template fetched<0>();
      }
      const T* q = queries + n % 2 * kBatch;
      const float* lse2 = numbers + n % 2 * 2 * kQueries;
      const Batch batch{q, q + kTile, lse2, lse2 + kQueries};
      block.warps([&](const Warp& warp) {
        const int64_t mine = 16 * warp.index();
        step(warp, states[warp], s, g * group + n / steps, begin + n % steps * kQueries, first + mine,
             keys + mine * kStride, values + mine * kValueStride, batch);
      });
    }
    block.template fetched<0>();  // where no query sees the tile
    block.warps([&](const Warp& warp) {
      const State<Warp>& state = states[warp];
      const int64_t mine = 16 * warp.index(), row = s.k_row + first + mine;
      store_rows<T, E>(
          warp, [&](int lane, int i) { return float(heads.scale) * state.dk[lane][i]; }, rows - mine, int(e),
          [&](int r) { return dk[row + r] + g * e; });
      store_rows<T, V>(
          warp, [&](int lane, int i) { return state.dv[lane][i]; }, rows - mine, int(u),
          [&](int r) { return dv[row + r] + g * u; });
    });
  }

 private:
  template <class Warp>
  WEFT_GPU void step(const Warp& warp, State<Warp>& state, const AttentionSpan& s, int64_t h, int64_t query,
                     int64_t key, const T* keys, const T* values, const Batch& batch) const {
    typename Warp::template Registers<float, kQueries / 2> scores, dp;
    const auto fragment_of = [&](const T* rows, int stride) {
      return [&warp, rows, stride](int p, auto& fragment) { load_fragment(warp, fragment, rows, stride, p); };
    };
    multiply_rows<T, kQueries, E>(warp, scores, fragment_of(keys, kStride), batch.q, kStride);
    multiply_rows<T, kQueries, V>(warp, dp, fragment_of(values, kValueStride), batch.dout, kValueStride);
    warp.lanes([&](int lane) {
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int64_t mine = key + lane / 4 + 8 * half,
                      from = s.k_position + mine - s.q_position;  // seen from there on
        const int64_t till = of.sight.heads.window > 0 ? from + of.sight.heads.window : s.q_count;
        const Columns seen = within(from - query, (till < s.q_count ? till : s.q_count) - query, kQueries);
        WEFT_UNROLL
        for (int i = 0; i < kQueries / 2; ++i) {
          if (i % 4 / 2 != half) continue;
          const int column = column_of(lane, i);
          const auto pair = of.pair(s, h, query + column, mine, seen.have(column), scores[lane][i], dp[lane][i],
                                    batch.lse2[column], batch.weighted[column]);
          scores[lane][i] = pair.weight;
          dp[lane][i] = pair.ds;
        }
      }
    });
    multiply_columns<T, V, kQueries>(warp, state.dv, scores, batch.dout, kValueStride);
    multiply_columns<T, E, kQueries>(warp, state.dk, dp, batch.q, kStride);
  }
};

// The two that go backward, of which one leaves `weighted` for the other.
template <class T, int E, int V>
struct AttentionTilesBackward {
  using Queries = AttentionTileQueries<T, E, V>;
  using Keys = AttentionTileKeys<T, E, V>;
  static constexpr int64_t kSharedBytes =
      Queries::kSharedBytes > Keys::kSharedBytes ? Queries::kSharedBytes : Keys::kSharedBytes;
};

}  // namespace weft::gpu
