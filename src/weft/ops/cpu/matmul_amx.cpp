#include "weft/ops/cpu/matmul_amx.h"

#include <omp.h>

#include <algorithm>

#include "weft/ops/cpu/matmul_amx_kernels.h"

namespace weft {
namespace {

constexpr int64_t kStayBytes = 1 << 20;       // of the staying operand: half an L2 cache of today's servers
constexpr int64_t kMostStayPanels = 64;       // of a block: their squares share the L2 cache with it
constexpr int64_t kMostStreamSteps = 8;       // of the streaming panel: with one that stays, 32 KB of the L1 cache
constexpr int64_t kMostBlockSteps = 64;       // of a block of k
constexpr int64_t kMostRectanglePanels = 32;  // of each side, where the sums of several blocks of k wait

int64_t parts_for(int64_t size, int64_t most) { return (size + most - 1) / most; }

struct Span {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};
// Part i of n nearly equal parts of [0, size), cut at multiples of a panel's lanes or a step's values.
Span span_of(int64_t size, int64_t i, int64_t n, int64_t grain) {
  const int64_t grains = parts_for(size, grain);
  return {std::min(size, grains * i / n * grain), std::min(size, grains * (i + 1) / n * grain)};
}

// Rows or columns of an operand that a thread multiplies.
struct Lanes {
  const uint16_t* data;  // null in a plan
  int64_t length, stride, k_stride;
  bool of_a;
  int64_t panels() const { return parts_for(length, kAmxPanel); }
  int lanes(int64_t panel) const { return int(std::min(kAmxPanel, length - panel * kAmxPanel)); }
};

const uint16_t* values_at(const Tensor& t, int64_t offset) {
  return t.data != nullptr ? static_cast<const uint16_t*>(t.data) + offset : nullptr;
}

// A product of a rectangle of out, on one thread.
class Rectangle {
 public:
  Rectangle(const Matmul& op, Span rows, Span cols) : k_(op.k()), accumulate_(op.accumulate) {
    const int64_t a_stride = op.trans_a ? 1 : op.a.row_stride, b_stride = op.trans_b ? op.b.row_stride : 1;
    a_ = {.data = values_at(op.a, rows.begin * a_stride),
          .length = rows.size(),
          .stride = a_stride,
          .k_stride = op.trans_a ? op.a.row_stride : 1,
          .of_a = true};
    b_ = {.data = values_at(op.b, cols.begin * b_stride),
          .length = cols.size(),
          .stride = b_stride,
          .k_stride = op.trans_b ? 1 : op.b.row_stride,
          .of_a = false};
    narrow_ = op.out.dtype != DType::f32;
    value_bytes_ = narrow_ ? 2 : 4;
    row_bytes_ = op.out.row_stride * value_bytes_;
    if (op.out.data != nullptr)
      out_ = static_cast<std::byte*>(op.out.data) + rows.begin * row_bytes_ + cols.begin * value_bytes_;
    if (op.bias) bias_ = values_at(op.bias, cols.begin);
    a_stays_ = a_.length <= b_.length;
    const int64_t steps = parts_for(k_, kAmxStep);
    blocks_ = parts_for(steps, kMostBlockSteps);
    block_steps_ = parts_for(steps, blocks_);
    const int64_t panel_bytes = block_steps_ * kAmxItemBytes;
    const int64_t most_panels = std::clamp<int64_t>(kStayBytes / panel_bytes, 1, kMostStayPanels);
    stay_blocks_ = parts_for(stays().panels(), most_panels);
    stay_panels_ = parts_for(stays().panels(), stay_blocks_);
  }

  int64_t workspace_bytes() const {
    const int64_t squares = blocks_ > 1 ? stays().panels() * streams().panels() : stay_panels_;
    return stay_bytes() + 2 * kStreamBytes + squares * kAmxSquareFloats * 4;
  }

  void run(std::byte* workspace) const {
    for (int64_t block = 0; block < blocks_; ++block)
      for (int64_t i = 0; i < stay_blocks_; ++i)
        multiply(block, span_of(stays().panels(), i, stay_blocks_, 1), workspace);
  }

 private:
  static constexpr int64_t kStreamBytes = kMostStreamSteps * kAmxItemBytes;

  const Lanes& stays() const { return a_stays_ ? a_ : b_; }
  const Lanes& streams() const { return a_stays_ ? b_ : a_; }
  int64_t stay_bytes() const { return stay_panels_ * block_steps_ * kAmxItemBytes; }

  // A panel of a block of the staying operand times steps of one of the streaming operand.
  void multiply(int64_t block, Span stay, std::byte* workspace) const {
    const Span k = span_of(k_, block, blocks_, kAmxStep);
    const int64_t steps = parts_for(k.size(), kAmxStep), chunks = parts_for(steps, kMostStreamSteps);
    for (int64_t j = stay.begin; j < stay.end; ++j)
      amx_pack_all(packing_of(stays(), j, k, workspace + (j - stay.begin) * steps * kAmxItemBytes));
    std::byte* const buffers = workspace + stay_bytes();
    float* const sums = reinterpret_cast<float*>(buffers + 2 * kStreamBytes);
    AmxChores chores;
    chores.packing = packing_of(streams(), 0, chunk_of(k, 0, chunks), buffers);
    amx_finish(chores);
    for (int64_t i = 0; i < streams().panels() * chunks; ++i) {
      const int64_t panel = i / chunks, chunk = i % chunks;
      const Span now = chunk_of(k, chunk, chunks);
      const int64_t chunk_steps = parts_for(now.size(), kAmxStep);
      const bool first = block == 0 && chunk == 0, last = block + 1 == blocks_ && chunk + 1 == chunks;
      pack_next(i + 1, k, chunks, buffers + (i + 1) % 2 * kStreamBytes, stay.size() * chunk_steps, chores);
      for (int64_t j = stay.begin; j < stay.end; ++j) {
        const std::byte* staying =
            workspace + ((j - stay.begin) * steps + (now.begin - k.begin) / kAmxStep) * kAmxItemBytes;
        const std::byte* streaming = buffers + i % 2 * kStreamBytes;
        const int64_t square = blocks_ > 1 ? j * streams().panels() + panel : j - stay.begin;
        const AmxResult result = result_of(j, panel, sums + square * kAmxSquareFloats);
        amx_multiply({.a = a_stays_ ? staying : streaming,
                      .b = a_stays_ ? streaming : staying,
                      .sums = sums + square * kAmxSquareFloats,
                      .steps = chunk_steps,
                      .from_zero = first,
                      .ahead = last ? &result : nullptr},
                     chores);
        if (last) chores.result = result;
      }
      amx_finish_packing(chores);
    }
    amx_finish(chores);
  }

  static Span chunk_of(Span k, int64_t chunk, int64_t chunks) {
    const Span part = span_of(k.size(), chunk, chunks, kAmxStep);
    return {k.begin + part.begin, k.begin + part.end};
  }

  // What is to be packed beside `steps` steps of products: part i of the streaming operand, if there is one.
  void pack_next(int64_t i, Span k, int64_t chunks, std::byte* to, int64_t steps, AmxChores& chores) const {
    chores.packing = {};
    if (i >= streams().panels() * chunks) return;
    const Span part = chunk_of(k, i % chunks, chunks);
    chores.packing = packing_of(streams(), i / chunks, part, to);
    chores.packing_share = parts_for(part.size(), kAmxStep);
    chores.packing_of = steps;
    chores.packing_due = 0;
  }

  static AmxPacking packing_of(const Lanes& side, int64_t panel, Span k, std::byte* to) {
    return {.from = side.data + panel * kAmxPanel * side.stride + k.begin * side.k_stride,
            .stride = side.stride,
            .k_stride = side.k_stride,
            .lanes = side.lanes(panel),
            .k = k.size(),
            .of_a = side.of_a,
            .to = to,
            .next_panel = panel + 1 < side.panels() ? kAmxPanel * side.stride : 0};
  }

  AmxResult result_of(int64_t stay_panel, int64_t stream_panel, const float* sums) const {
    const int64_t a_panel = a_stays_ ? stay_panel : stream_panel, b_panel = a_stays_ ? stream_panel : stay_panel;
    return {.sums = sums,
            .out = out_ + a_panel * kAmxPanel * row_bytes_ + b_panel * kAmxPanel * value_bytes_,
            .row_bytes = row_bytes_,
            .rows = a_.lanes(a_panel),
            .cols = b_.lanes(b_panel),
            .narrow = narrow_,
            .add_to_out = accumulate_,
            .bias = bias_ != nullptr ? bias_ + b_panel * kAmxPanel : nullptr};
  }

  Lanes a_, b_;
  std::byte* out_ = nullptr;
  const uint16_t* bias_ = nullptr;
  int64_t k_, value_bytes_, row_bytes_;
  bool narrow_, accumulate_, a_stays_;
  int64_t blocks_, block_steps_;  // of k
  int64_t stay_blocks_, stay_panels_;
};

// How many rows of threads share out, cut as near to squares as divides it well; columns are threads / rows.
int thread_rows(int64_t m, int64_t n, int threads) {
  int best = 1;
  int64_t best_cost = -1;
  for (int rows = 1; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    const int64_t part_m = parts_for(parts_for(m, kAmxPanel), rows),
                  part_n = parts_for(parts_for(n, kAmxPanel), threads / rows);
    const int64_t cost = 4 * part_m * part_n + part_m + part_n;  // multiplying, and packing both operands
    if (best_cost < 0 || cost < best_cost) best = rows, best_cost = cost;
  }
  return best;
}

// Calls f(rectangle) with thread i's part of out, in pieces where the sums of several blocks of k wait.
template <class F>
void with_rectangles(const Matmul& op, int threads, int i, const F& f) {
  const int grid_rows = thread_rows(op.m(), op.n(), threads);
  const Span rows = span_of(op.m(), i % grid_rows, grid_rows, kAmxPanel);
  const Span cols = span_of(op.n(), i / grid_rows, threads / grid_rows, kAmxPanel);
  if (rows.size() <= 0 || cols.size() <= 0) return;
  const bool whole = op.k() <= kMostBlockSteps * kAmxStep;
  const int64_t most = kMostRectanglePanels * kAmxPanel;
  const int64_t down = whole ? 1 : parts_for(rows.size(), most), across = whole ? 1 : parts_for(cols.size(), most);
  for (int64_t r = 0; r < down; ++r)
    for (int64_t c = 0; c < across; ++c) {
      const Span part_rows = span_of(rows.size(), r, down, kAmxPanel);
      const Span part_cols = span_of(cols.size(), c, across, kAmxPanel);
      f(Rectangle(op, {rows.begin + part_rows.begin, rows.begin + part_rows.end},
                  {cols.begin + part_cols.begin, cols.begin + part_cols.end}));
    }
}

int64_t thread_bytes(const Matmul& op, int threads) {
  int64_t most = 0;
  for (int i = 0; i < threads; ++i)
    with_rectangles(op, threads, i, [&](const Rectangle& part) { most = std::max(most, part.workspace_bytes()); });
  return most;
}

}  // namespace

int64_t AmxMatmul::workspace_bytes(const Matmul& op) const { return threads_ * thread_bytes(op, threads_); }

int64_t AmxMatmul::most_workspace_bytes(const Matmul& largest) const {
  constexpr int64_t kSquares = kMostRectanglePanels * kMostRectanglePanels;
  static_assert(kSquares >= kMostStayPanels && kMostBlockSteps * kAmxItemBytes <= kStayBytes);
  int64_t squares = kMostStayPanels;
  if (largest.k() > kMostBlockSteps * kAmxStep) {  // those of a whole rectangle wait
    const int64_t all = parts_for(largest.m(), kAmxPanel) * parts_for(largest.n(), kAmxPanel);
    squares = std::max<int64_t>(squares, std::min(kSquares, all));
  }
  return threads_ * (kStayBytes + 2 * kMostStreamSteps * kAmxItemBytes + squares * kAmxSquareFloats * 4);
}

void AmxMatmul::run(const Matmul& op, std::byte* workspace) const {
  const int64_t bytes = thread_bytes(op, threads_);
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
  for (int i = 0; i < threads_; ++i) {
    amx_begin();
    with_rectangles(op, threads_, i, [&](const Rectangle& part) { part.run(workspace + i * bytes); });
    amx_end();
  }
}

}  // namespace weft
