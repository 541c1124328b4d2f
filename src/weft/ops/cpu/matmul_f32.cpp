#include "weft/ops/cpu/matmul_f32.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

namespace weft {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;  // of the staying operand: half an L2 cache of today's servers
constexpr int64_t kTasksPerThread = 6;    // at least, so that a delayed thread costs little
// While one tile in so many is computed, the next block of the staying operand is prefetched, else the next panel.
constexpr int64_t kTilesPerBlockPrefetch = 4;
constexpr int64_t kSlackFloats = 16;  // packing may write so far beyond a panel

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One operand as a list of panels.
struct Side {
  const float* data;
  int64_t length;        // m or n
  int64_t stride;        // from row to row of op(a), from column to column of op(b)
  int64_t k_stride;      // along k
  int64_t panel;         // mr or nr
  int64_t panel_floats;  // packed
  int64_t panels() const { return ceil_div(length, panel); }
  int size_of_panel(int64_t i) const { return int(std::min(panel, length - i * panel)); }
};

// How a product is cut. Depends on the shape and the kernels only, but for `segments`.
struct Cut {
  Side a, b;
  bool a_stays;
  int64_t k_blocks, kc;               // of k; kc is the longest
  int64_t stay_blocks, block_panels;  // of the staying operand
  int64_t segments;                   // a streaming panel is multiplied with a block in so many tasks
  const Side& stays() const { return a_stays ? a : b; }
  const Side& streams() const { return a_stays ? b : a; }
  int64_t blocks() const { return k_blocks * stay_blocks; }
  int64_t block_floats() const { return block_panels * stays().panel_floats; }
};

Cut cut_of(const Matmul& op, const F32Kernels& kernels, int threads) {
  Cut cut;
  const float* a = static_cast<const float*>(op.a.data);
  const float* b = static_cast<const float*>(op.b.data);
  const int64_t lda = op.a.row_stride, ldb = op.b.row_stride;
  cut.k_blocks = ceil_div(op.k(), kMaxKc);
  cut.kc = ceil_div(op.k(), cut.k_blocks);
  const int64_t a_floats = op.trans_a ? kernels.mr * cut.kc : kernels.mr * kPanelStride;
  cut.a = {a,
           op.m(),
           op.trans_a ? 1 : lda,
           op.trans_a ? lda : 1,
           kernels.mr,
           ceil_div(a_floats, 16) * 16 + (op.trans_a ? kSlackFloats : 0)};
  cut.b = {b, op.n(), op.trans_b ? ldb : 1, op.trans_b ? 1 : ldb, kernels.nr, kernels.nr * cut.kc};
  cut.a_stays = op.m() <= op.n();
  const int64_t panels = cut.stays().panels();
  const int64_t most = std::max<int64_t>(1, kBlockBytes / (cut.stays().panel_floats * 4));
  cut.stay_blocks = ceil_div(panels, most);
  cut.block_panels = ceil_div(panels, cut.stay_blocks);
  cut.segments = std::min(cut.block_panels, ceil_div(kTasksPerThread * threads, cut.streams().panels()));
  if (threads == 1) cut.segments = 1;
  return cut;
}

// One product, computed by a team of threads. Streaming panels are handed out by a counter: who computes a tile does
// not change its bits.
class Product {
 public:
  Product(const Matmul& op, const F32Kernels& kernels, const Cut& cut, float* workspace)
      : op_(op), kernels_(kernels), cut_(cut), workspace_(workspace) {}

  // Called by every thread of the team, numbered from 0.
  void run(int thread, int team) {
    pack_block(0, thread, team);
    for (int64_t block = 0; block < cut_.blocks(); ++block) {
#pragma omp barrier
      multiply_block(block, thread, team);
      if (block + 1 < cut_.blocks()) pack_block(block + 1, thread, team);
    }
  }

 private:
  struct Range {
    int64_t begin, end;
  };

  int64_t k_begin(int64_t block) const { return block / cut_.stay_blocks * cut_.kc; }
  int64_t k_size(int64_t block) const { return std::min(cut_.kc, op_.k() - k_begin(block)); }
  int64_t first_panel(int64_t block) const { return block % cut_.stay_blocks * cut_.block_panels; }
  int64_t panels_of(int64_t block) const {
    return std::min(cut_.block_panels, cut_.stays().panels() - first_panel(block));
  }
  // The panels of a block that a thread packs.
  Range share_of(int64_t block, int thread, int team) const {
    const int64_t n = panels_of(block);
    return {first_panel(block) + n * thread / team, first_panel(block) + n * (thread + 1) / team};
  }
  // Two blocks in turn: one is multiplied while the next is packed.
  float* packed(int64_t block, int64_t stay_panel) const {
    return workspace_ + block % 2 * cut_.block_floats() + (stay_panel - first_panel(block)) * cut_.stays().panel_floats;
  }
  float* thread_memory(int thread) const {
    return workspace_ + 2 * cut_.block_floats() + thread * cut_.streams().panel_floats;
  }
  const float* source(const Side& side, int64_t panel, int64_t block) const {
    return side.data + panel * side.panel * side.stride + k_begin(block) * side.k_stride;
  }

  void pack(const Side& side, int64_t panel, int64_t block, float* to) const {
    const float* from = source(side, panel, block);
    const int size = side.size_of_panel(panel);
    if (&side == &cut_.a)
      kernels_.pack_a(from, side.stride, side.k_stride, size, k_size(block), to);
    else
      kernels_.pack_b(from, side.k_stride, side.stride, size, k_size(block), to);
  }
  void pack_block(int64_t block, int thread, int team) const {
    const Range mine = share_of(block, thread, team);
    for (int64_t i = mine.begin; i < mine.end; ++i) pack(cut_.stays(), i, block, packed(block, i));
  }
  Prefetch prefetch_of(const Side& side, Range panels, int64_t block) const {
    Prefetch p;
    const int64_t length = std::min(side.length, panels.end * side.panel) - panels.begin * side.panel;
    if (length <= 0) return p;
    const bool rows_along_k = side.k_stride == 1;
    const int64_t rows = rows_along_k ? length : k_size(block), row = rows_along_k ? k_size(block) : length;
    p.at = reinterpret_cast<const char*>(source(side, panels.begin, block));
    p.lines_per_row = ceil_div(row, 16);
    p.row_bytes = 4 * (rows_along_k ? side.stride : side.k_stride);
    p.lines_left = rows * p.lines_per_row;
    return p;
  }

  void multiply_block(int64_t block, int thread, int team) {
    std::atomic<int64_t>& next = next_task_[block % 3];
    if (thread == 0) next_task_[(block + 2) % 3] = 0;  // nobody is in block - 1 any more, nor in block + 2 yet
    const int64_t panels = cut_.streams().panels(), tasks = panels * cut_.segments;
    Prefetch next_block;
    if (block + 1 < cut_.blocks()) next_block = prefetch_of(cut_.stays(), share_of(block + 1, thread, team), block + 1);
    const int64_t tiles = ceil_div(panels * panels_of(block), team);
    const int64_t lines = ceil_div(next_block.lines_left * kTilesPerBlockPrefetch, tiles);
    int64_t held = -1;
    for (int64_t task = next++, after; task < tasks; task = after) {
      after = next++;
      const int64_t panel = task / cut_.segments, panel_after = after / cut_.segments;
      if (held != panel) pack(cut_.streams(), panel, block, thread_memory(thread)), held = panel;
      Prefetch next_panel;
      if (after < tasks && panel_after != panel)
        next_panel = prefetch_of(cut_.streams(), {panel_after, panel_after + 1}, block);
      multiply_panel(block, task, thread_memory(thread), next_panel, next_block, lines);
    }
  }

  void multiply_panel(int64_t block, int64_t task, const float* streaming, Prefetch& next_panel, Prefetch& next_block,
                      int64_t block_lines) {
    const int64_t stream = task / cut_.segments, segment = task % cut_.segments, panels = panels_of(block);
    const int64_t begin = panels * segment / cut_.segments, end = panels * (segment + 1) / cut_.segments;
    const auto run_tile = cut_.a.k_stride == 1 ? kernels_.tile_by_rows : kernels_.tile_by_k;
    const int64_t panel_lines = ceil_div(next_panel.lines_left * kTilesPerBlockPrefetch,
                                         std::max<int64_t>(1, (kTilesPerBlockPrefetch - 1) * (end - begin)));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t stay = first_panel(block) + i;
      Tile tile = cut_.a_stays ? tile_at(block, stay, stream) : tile_at(block, stream, stay);
      tile.a = cut_.a_stays ? packed(block, stay) : streaming;
      tile.b = cut_.a_stays ? streaming : packed(block, stay);
      const bool for_block = (task + i) % kTilesPerBlockPrefetch == 0;
      tile.prefetch = for_block ? &next_block : &next_panel;
      tile.prefetch_lines = for_block ? block_lines : panel_lines;
      run_tile(tile);
    }
  }

  Tile tile_at(int64_t block, int64_t a_panel, int64_t b_panel) const {
    const int64_t row = a_panel * kernels_.mr, col = b_panel * kernels_.nr;
    const bool first = k_begin(block) == 0;
    Tile tile{};
    tile.c = static_cast<float*>(op_.out.data) + row * op_.out.row_stride + col;
    tile.c_stride = op_.out.row_stride;
    tile.kc = k_size(block);
    tile.rows = cut_.a.size_of_panel(a_panel);
    tile.cols = cut_.b.size_of_panel(b_panel);
    tile.add_to_c = !first || op_.accumulate;
    tile.bias = first && op_.bias ? static_cast<const float*>(op_.bias.data) + col : nullptr;
    return tile;
  }

  const Matmul& op_;
  const F32Kernels& kernels_;
  const Cut& cut_;
  float* workspace_;
  std::atomic<int64_t> next_task_[3] = {};
};

}  // namespace

F32Matmul::F32Matmul(int threads) : threads_(threads), kernels_(f32_kernels()) {}

int64_t F32Matmul::workspace_bytes(const Matmul& op) const {
  const Cut cut = cut_of(op, kernels_, threads_);
  return (2 * cut.block_floats() + threads_ * cut.streams().panel_floats) * int64_t(sizeof(float));
}

void F32Matmul::run(const Matmul& op, std::byte* workspace) const {
  const Cut cut = cut_of(op, kernels_, threads_);
  Product product(op, kernels_, cut, reinterpret_cast<float*>(workspace));
#pragma omp parallel num_threads(threads_)
  product.run(omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace weft
