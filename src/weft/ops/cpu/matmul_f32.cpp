#include "weft/ops/cpu/matmul_f32.h"

#include <omp.h>

#include <algorithm>
#include <utility>

namespace weft {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;  // of the staying operand: half an L2 cache of today's servers
constexpr int64_t kSlackFloats = 16;      // packing may write so far beyond a panel
// While one tile in so many is computed, the next block of the staying operand is prefetched, else the next panel.
constexpr int64_t kTilesPerBlockPrefetch = 8;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
// Part i of n nearly equal parts of [0, size), cut at multiples of `grain`.
Range part_of(int64_t size, int64_t i, int64_t n, int64_t grain = 1) {
  const int64_t grains = ceil_div(size, grain);
  return {std::min(size, grains * i / n * grain), std::min(size, grains * (i + 1) / n * grain)};
}

// Threads in a grid over out: each computes a rectangle of it, as near to a square as divides them well.
struct Grid {
  int rows, cols;
};
Grid grid_of(int64_t m, int64_t n, int threads, int nr) {
  Grid best{1, threads};
  int64_t best_cost = -1;
  for (int rows = 1; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    const int cols = threads / rows;
    const int64_t part_m = ceil_div(m, rows), part_n = ceil_div(ceil_div(n, nr), cols) * nr;
    const int64_t cost = part_m * part_n + 8 * (part_m + part_n);  // multiplying, and packing both operands
    if (best_cost < 0 || cost < best_cost) best = {rows, cols}, best_cost = cost;
  }
  return best;
}

// A thread's part of one operand, as a list of panels.
struct Side {
  const float* data;
  int64_t length;        // rows of op(a), or columns of op(b)
  int64_t stride;        // from one of these to the next
  int64_t k_stride;      // along k
  int64_t panel_floats;  // packed
  int64_t panels;
  int64_t grain;  // panels begin at multiples of it
  Range panel(int64_t i) const { return part_of(length, i, panels, grain); }
};

// A product of few columns is made as its transpose, op(b)^T op(a)^T, whose tiles are full. Each sum is the same.
bool is_turned(const Matmul& op, const F32Kernels& kernels) { return op.n() <= kernels.nr / 2 && op.m() >= kernels.nr; }
int64_t rows_of(const Matmul& op, const F32Kernels& kernels) { return is_turned(op, kernels) ? op.n() : op.m(); }
int64_t cols_of(const Matmul& op, const F32Kernels& kernels) { return is_turned(op, kernels) ? op.m() : op.n(); }

// In a plan operands have no memory.
const float* floats_at(const void* data, int64_t offset) {
  return data ? static_cast<const float*>(data) + offset : nullptr;
}

// One thread's part of a product: the rows and columns of out in [rows) and [cols), of its transpose where it is
// turned.
class Part {
 public:
  Part(const Matmul& op, const F32Kernels& kernels, Range rows, Range cols)
      : kernels_(kernels),
        k_(op.k()),
        out_stride_(op.out.row_stride),
        accumulate_(op.accumulate),
        turned_(is_turned(op, kernels)) {
    k_blocks_ = ceil_div(k_, kMaxKc);
    kc_ = ceil_div(k_, k_blocks_);
    struct Operand {
      const void* data;
      int64_t stride, k_stride;  // Side's
    };
    const int64_t lda = op.a.row_stride, ldb = op.b.row_stride;
    Operand a{op.a.data, op.trans_a ? 1 : lda, op.trans_a ? lda : 1};
    Operand b{op.b.data, op.trans_b ? ldb : 1, op.trans_b ? 1 : ldb};
    if (turned_) std::swap(a, b);
    a_ = {.data = floats_at(a.data, rows.begin * a.stride),
          .length = rows.size(),
          .stride = a.stride,
          .k_stride = a.k_stride,
          .panel_floats =
              a.k_stride == 1 ? kernels.mr * kPanelStride : ceil_div(kernels.mr * kc_, 16) * 16 + kSlackFloats,
          .panels = ceil_div(rows.size(), kernels.mr),
          .grain = 1};
    b_ = {.data = floats_at(b.data, cols.begin * b.stride),
          .length = cols.size(),
          .stride = b.stride,
          .k_stride = b.k_stride,
          .panel_floats = kernels.nr * kc_,
          .panels = ceil_div(cols.size(), kernels.nr),
          .grain = kernels.nr};
    out_ = const_cast<float*>(floats_at(op.out.data, offset(rows.begin, cols.begin)));
    bias_ = op.bias ? floats_at(op.bias.data, turned_ ? rows.begin : cols.begin) : nullptr;
    a_stays_ = a_.length <= b_.length;
    stay_blocks_ = ceil_div(stays().panels, std::max<int64_t>(1, kBlockBytes / (stays().panel_floats * 4)));
  }

  int64_t workspace_floats() const {
    return ceil_div(stays().panels, stay_blocks_) * stays().panel_floats + streams().panel_floats;
  }

  void run(float* workspace) const {
    for (int64_t block = 0; block < k_blocks_ * stay_blocks_; ++block) multiply_block(block, workspace);
  }

 private:
  int64_t offset(int64_t row, int64_t col) const { return turned_ ? col * out_stride_ + row : row * out_stride_ + col; }
  const Side& stays() const { return a_stays_ ? a_ : b_; }
  const Side& streams() const { return a_stays_ ? b_ : a_; }
  // A block: some panels of the staying operand, and a run of k.
  Range k_of(int64_t block) const {
    const int64_t begin = block / stay_blocks_ * kc_;
    return {begin, std::min(k_, begin + kc_)};
  }
  Range panels_of(int64_t block) const { return part_of(stays().panels, block % stay_blocks_, stay_blocks_); }

  void multiply_block(int64_t block, float* workspace) const {
    const Range stay = panels_of(block);
    float* streaming = workspace + ceil_div(stays().panels, stay_blocks_) * stays().panel_floats;
    for (int64_t i = stay.begin; i < stay.end; ++i)
      pack(stays(), i, block, workspace + (i - stay.begin) * stays().panel_floats);
    Prefetch next_block;
    if (block + 1 < k_blocks_ * stay_blocks_) next_block = prefetch_of(stays(), panels_of(block + 1), block + 1);
    const int64_t block_lines =
        ceil_div(next_block.lines_left * kTilesPerBlockPrefetch, streams().panels * stay.size());
    for (int64_t i = 0; i < streams().panels; ++i) {
      pack(streams(), i, block, streaming);
      Prefetch next_panel;
      if (i + 1 < streams().panels) next_panel = prefetch_of(streams(), {i + 1, i + 2}, block);
      const int64_t panel_lines =
          ceil_div(next_panel.lines_left * kTilesPerBlockPrefetch, stay.size() * (kTilesPerBlockPrefetch - 1));
      for (int64_t j = stay.begin; j < stay.end; ++j) {
        Tile tile = a_stays_ ? tile_at(block, j, i) : tile_at(block, i, j);
        const float* staying = workspace + (j - stay.begin) * stays().panel_floats;
        tile.a = a_stays_ ? staying : streaming;
        tile.b = a_stays_ ? streaming : staying;
        const bool for_block = (i * stay.size() + j) % kTilesPerBlockPrefetch == 0;
        tile.prefetch = for_block ? &next_block : &next_panel;
        tile.prefetch_lines = for_block ? block_lines : panel_lines;
        if (a_.k_stride == 1)
          kernels_.tile_by_rows(tile);
        else
          kernels_.tile_by_k(tile);
      }
    }
  }

  const float* source(const Side& side, Range panel, int64_t block) const {
    return side.data + panel.begin * side.stride + k_of(block).begin * side.k_stride;
  }
  void pack(const Side& side, int64_t i, int64_t block, float* to) const {
    const Range panel = side.panel(i);
    const float* from = source(side, panel, block);
    if (&side == &a_)
      kernels_.pack_a(from, side.stride, side.k_stride, int(panel.size()), k_of(block).size(), to);
    else
      kernels_.pack_b(from, side.k_stride, side.stride, int(panel.size()), k_of(block).size(), to);
  }
  Prefetch prefetch_of(const Side& side, Range panels, int64_t block) const {
    const Range part{side.panel(panels.begin).begin, side.panel(panels.end - 1).end};
    const bool rows_along_k = side.k_stride == 1;
    const int64_t k = k_of(block).size(), rows = rows_along_k ? part.size() : k, row = rows_along_k ? k : part.size();
    Prefetch p;
    p.at = reinterpret_cast<const char*>(source(side, part, block));
    p.lines_per_row = ceil_div(row, 16);
    p.row_bytes = 4 * (rows_along_k ? side.stride : side.k_stride);
    p.lines_left = rows * p.lines_per_row;
    return p;
  }
  Tile tile_at(int64_t block, int64_t a_panel, int64_t b_panel) const {
    const Range rows = a_.panel(a_panel), cols = b_.panel(b_panel);
    const bool first = k_of(block).begin == 0;
    Tile tile{};
    tile.c = out_ + offset(rows.begin, cols.begin);
    tile.c_stride = out_stride_;
    tile.kc = k_of(block).size();
    tile.rows = int(rows.size());
    tile.cols = int(cols.size());
    tile.add_to_c = !first || accumulate_;
    tile.bias = first && bias_ ? bias_ + (turned_ ? rows.begin : cols.begin) : nullptr;
    tile.turned = turned_;
    return tile;
  }

  const F32Kernels& kernels_;
  Side a_, b_;
  float* out_;
  const float* bias_;
  int64_t k_, out_stride_;
  bool accumulate_, turned_, a_stays_;
  int64_t k_blocks_, kc_, stay_blocks_;
};

// Calls f(part) with thread i's part of the product; a thread may have none.
template <class F>
void with_part(const Matmul& op, const F32Kernels& kernels, int threads, int i, const F& f) {
  const int64_t m = rows_of(op, kernels), n = cols_of(op, kernels);
  const Grid grid = grid_of(m, n, threads, kernels.nr);
  const Range rows = part_of(m, i % grid.rows, grid.rows);
  const Range cols = part_of(n, i / grid.rows, grid.cols, kernels.nr);
  if (rows.size() > 0 && cols.size() > 0) f(Part(op, kernels, rows, cols));
}

int64_t part_workspace_floats(const Matmul& op, const F32Kernels& kernels, int threads) {
  int64_t most = 0;
  for (int i = 0; i < threads; ++i)
    with_part(op, kernels, threads, i, [&](const Part& part) { most = std::max(most, part.workspace_floats()); });
  return ceil_div(most, 16) * 16;
}

}  // namespace

F32Matmul::F32Matmul(int threads) : threads_(threads), kernels_(f32_kernels()) {}

int64_t F32Matmul::workspace_bytes(const Matmul& op) const {
  return threads_ * part_workspace_floats(op, kernels_, threads_) * int64_t(sizeof(float));
}

// Each thread needs room for a block of the staying operand, at least a panel, and for a panel of the other
// (Part::workspace_floats).
int64_t F32Matmul::most_workspace_bytes() const {
  const int64_t a_panel = std::max((kernels_.mr * kMaxKc / 16 + 1) * 16 + kSlackFloats, kernels_.mr * kPanelStride);
  const int64_t panel = std::max<int64_t>(a_panel, kernels_.nr * kMaxKc);
  const int64_t floats = std::max(kBlockBytes / int64_t(sizeof(float)), panel) + panel;
  return threads_ * (ceil_div(floats, 16) * 16) * int64_t(sizeof(float));
}

void F32Matmul::run(const Matmul& op, std::byte* workspace) const {
  float* memory = reinterpret_cast<float*>(workspace);
  const int64_t part_floats = part_workspace_floats(op, kernels_, threads_);
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
  for (int i = 0; i < threads_; ++i)
    with_part(op, kernels_, threads_, i, [&](const Part& part) { part.run(memory + i * part_floats); });
}

}  // namespace weft
