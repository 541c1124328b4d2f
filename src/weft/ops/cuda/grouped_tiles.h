// Kernels: products of rows of experts by tiles on tensor cores, for 16-bit floats.
#pragma once
#include "weft/ops/cuda/tile_block.h"

namespace weft::gpu {

// C [kSide, kSide] of a block = A B^T, summed in f32 in the order of k. A and B [kSide, depth] come from memory with
// rows of depth, or turned: with depth rows of kSide. kDepth of depth are in shared memory while the next are fetched.
template <class T, bool kTurnA, bool kTurnB>
struct TileProduct {
  static constexpr int kSide = 128, kDepth = 64;
  static constexpr int kWarpRows = 32, kWarpCols = 64;  // of C, of each warp
  static constexpr int kWarpsOfRow = kSide / kWarpCols;
  static_assert(kSide / kWarpRows * kWarpsOfRow == kWarps);
  template <bool kTurn>
  struct Operand {
    static constexpr int kRows = kTurn ? kDepth : kSide, kCols = kTurn ? kSide : kDepth;
    static constexpr int kStride = kCols + 8, kBatch = kRows * kStride;  // rows that follow lie in different banks
  };
  using A = Operand<kTurnA>;
  using B = Operand<kTurnB>;
  static constexpr int kBatch = A::kBatch + B::kBatch;
  static constexpr int64_t kSharedBytes = 2 * kBatch * int64_t(sizeof(T));
  static constexpr int kNumbers = kWarpRows * kWarpCols / kLanes;  // of C, of a lane

  template <class Warp>
  using Sums = typename Warp::template Registers<float, kNumbers>;

  // Of the kSide rows (turned: columns) of an operand, `count` exist; its rows of memory are `stride` elements apart.
  struct Extent {
    int64_t count, stride;
  };
  // `sums` must be zeros. Ends when all warps have theirs.
  template <class Block>
  WEFT_GPU static void run(const Block& block, typename Block::template PerWarp<Sums<typename Block::Warp>>& sums,
                           int64_t depth, const T* a, Extent of_a, const T* b, Extent of_b) {
    T* const shared = static_cast<T*>(block.shared());
    const auto begin = [&](int64_t k, int batch) {
      T* const to = shared + batch * kBatch;
      fetch<kTurnA>(block, to, a, of_a, k, depth);
      fetch<kTurnB>(block, to + A::kBatch, b, of_b, k, depth);
      block.end_of_batch();
    };
    if (depth > 0) begin(0, 0);
    for (int64_t k = 0, batch = 0; k < depth; k += kDepth, batch ^= 1) {
      if (k + kDepth < depth) {
        begin(k + kDepth, int(batch ^ 1));
        block.template fetched<1>();
      } else {
        block.template fetched<0>();
      }
      const T* const of_batch = shared + batch * kBatch;
      block.warps([&](const auto& warp) { multiply(warp, sums[warp], of_batch, of_batch + A::kBatch); });
    }
  }

  // f(row, column, number) for each number of C that a warp has.
  template <class Warp, class F>
  WEFT_GPU static void each(const Warp& warp, const Sums<Warp>& sums, const F& f) {
    const int row = warp.index() / kWarpsOfRow * kWarpRows, col = warp.index() % kWarpsOfRow * kWarpCols;
    warp.lanes([&](int lane) {
      WEFT_UNROLL
      for (int i = 0; i < kNumbers; ++i) {
        const int of_rows = i / (kNumbers / 2), in = i % (kNumbers / 2);  // C [16, 64] twice
        f(row + 16 * of_rows + lane / 4 + in % 4 / 2 * 8, col + in / 4 * 8 + 2 * (lane % 4) + in % 2, sums[lane][i]);
      }
    });
  }

 private:
  template <bool kTurn, class Block>
  WEFT_GPU static void fetch(const Block& block, T* to, const T* from, Extent of, int64_t k, int64_t depth) {
    using O = Operand<kTurn>;
    const int64_t left = depth - k < kDepth ? depth - k : kDepth;
    const int64_t rows = kTurn ? left : of.count, cols = kTurn ? of.count : left;
    const T* const first = from + (kTurn ? k * of.stride : k);
    block.template fetch<O::kCols / 8>(to, O::kStride, O::kRows, int(cols / 8),
                                       [&](int r) { return r < rows ? first + r * of.stride : nullptr; });
  }

  template <class Warp>
  WEFT_GPU static void multiply(const Warp& warp, Sums<Warp>& sums, const T* a, const T* b) {
    const int row = warp.index() / kWarpsOfRow * kWarpRows, col = warp.index() % kWarpsOfRow * kWarpCols;
    using Words = typename Warp::template Registers<uint32_t, 4>;
    WEFT_UNROLL
    for (int k = 0; k < kDepth; k += 16) {
      Words of_a[2];
      WEFT_UNROLL
      for (int m = 0; m < 2; ++m) {
        const int first = row + 16 * m;
        warp.template load<kTurnA>(of_a[m], [&](int lane) {
          if constexpr (kTurnA) return a + (k + lane / 16 * 8 + lane % 8) * A::kStride + first + lane / 8 % 2 * 8;
          return a + (first + lane % 16) * A::kStride + k + lane / 16 * 8;
        });
      }
      WEFT_UNROLL
      for (int n = 0; n < kWarpCols / 16; ++n) {
        const int first = col + 16 * n;
        Words of_b;
        warp.template load<kTurnB>(of_b, [&](int lane) {
          if constexpr (kTurnB) return b + (k + lane % 16) * B::kStride + first + lane / 16 * 8;
          return b + (first + lane % 8 + lane / 16 * 8) * B::kStride + k + lane / 8 % 2 * 8;
        });
        WEFT_UNROLL
        for (int m = 0; m < 2; ++m) {
          const int at = m * (kNumbers / 2) + 8 * n;
          warp.template multiply<T>(sums, at, of_a[m], 0, of_b, 0);
          warp.template multiply<T>(sums, at + 4, of_a[m], 0, of_b, 2);
        }
      }
    }
  }
};

// Which rows a tile has: those of one group, or behind the last one, of none.
struct GroupTile {
  int64_t group, first, rows;  // group is `groups` where it is none
};
WEFT_GPU inline GroupTile group_tile(const int32_t* offsets, int64_t groups, int64_t num_rows, int64_t tile,
                                     int64_t side) {
  for (int64_t g = 0; g <= groups; ++g) {
    const int64_t begin = offsets[g], end = g < groups ? offsets[g + 1] : num_rows,
                  tiles = (end - begin + side - 1) / side;
    if (tile < tiles) {
      const int64_t first = begin + tile * side;
      return {g, first, end - first < side ? end - first : side};
    }
    tile -= tiles;
  }
  return {groups, num_rows, 0};
}

// Blocks: tiles of rows, each with all tiles of columns.
template <class T, bool kTurned>
struct GroupedProductTile {
  using Product = TileProduct<T, false, kTurned>;
  static constexpr int64_t kSharedBytes = Product::kSharedBytes;
  static constexpr int kLeastBlocks = 2;
  Rows<const T> x, w;
  Rows<T> out;
  const int32_t* offsets;
  int64_t num_rows, groups, wide;  // rows of w of a group
  WEFT_BOTH int64_t tiles_of_row() const { return (out.cols + Product::kSide - 1) / Product::kSide; }
  WEFT_BOTH int64_t blocks() const {  // as many as there can be
    return ((num_rows + Product::kSide - 1) / Product::kSide + groups + 1) * tiles_of_row();
  }
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const GroupTile tile = group_tile(offsets, groups, num_rows, block.index() / tiles_of_row(), Product::kSide);
    if (tile.rows == 0) return;
    const int64_t col = block.index() % tiles_of_row() * Product::kSide;
    const int64_t cols = out.cols - col < Product::kSide ? out.cols - col : Product::kSide;
    typename Block::template PerWarp<typename Product::template Sums<typename Block::Warp>> sums;
    if (tile.group < groups) {
      const T* const b = kTurned ? w[tile.group * wide] + col : w[tile.group * wide + col];
      Product::run(block, sums, x.cols, x[tile.first], {tile.rows, x.stride}, b, {cols, w.stride});
    }
    block.warps([&](const auto& warp) {
      Product::each(warp, sums[warp], [&](int r, int c, float sum) {
        if (r < tile.rows && c < cols) store(out[tile.first + r] + col + c, sum);
      });
    });
  }
};

// A block for each tile of each group's gradient.
template <class T>
struct GroupedSlopeTile {
  using Product = TileProduct<T, true, true>;
  static constexpr int64_t kSharedBytes = Product::kSharedBytes;
  static constexpr int kLeastBlocks = 2;
  Rows<const T> dy, x;
  Rows<float> dw;
  const int32_t* offsets;
  int64_t groups, wide;
  bool accumulate;
  WEFT_BOTH int64_t tiles_of_row() const { return (dw.cols + Product::kSide - 1) / Product::kSide; }
  WEFT_BOTH int64_t tiles_of_group() const { return (wide + Product::kSide - 1) / Product::kSide * tiles_of_row(); }
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t group = block.index() / tiles_of_group(), in_group = block.index() % tiles_of_group();
    const int64_t row = in_group / tiles_of_row() * Product::kSide, col = in_group % tiles_of_row() * Product::kSide;
    const int64_t rows = wide - row < Product::kSide ? wide - row : Product::kSide;
    const int64_t cols = dw.cols - col < Product::kSide ? dw.cols - col : Product::kSide;
    const int64_t first = offsets[group], depth = offsets[group + 1] - first;
    typename Block::template PerWarp<typename Product::template Sums<typename Block::Warp>> sums;
    Product::run(block, sums, depth, dy[first] + row, {rows, dy.stride}, x[first] + col, {cols, x.stride});
    block.warps([&](const auto& warp) {
      Product::each(warp, sums[warp], [&](int r, int c, float sum) {
        if (r >= rows || c >= cols) return;
        float* const to = dw[group * wide + row + r] + col + c;
        *to = accumulate ? *to + sum : sum;
      });
    });
  }
};

}  // namespace weft::gpu
