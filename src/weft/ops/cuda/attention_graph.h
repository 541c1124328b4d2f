// Attention over a batch of equal sequences as a graph of small operations, which is how cuDNN is asked for it. Nothing
// of the library is in here.
//   b sequences of s tokens     h, g query and key heads of width e     all tensors [b, heads, rows, columns]
#pragma once
#include <array>
#include <compare>
#include <vector>

#include "weft/tensor/dtype.h"

namespace weft::gpu {

enum class GraphType { f32, f16, bf16, i32, boolean };

// Tensors that a caller passes at each run; intermediate tensors are numbered after these.
enum class Argument : int64_t {
  q = 1,
  k,
  v,
  o,
  lse,
  dout,
  weighted,
  dq,
  dk,
  dv,
  sums,
  scale,
  lowest,
  window,
  one,
  last = one
};
inline constexpr int64_t kFirstBetween = int64_t(Argument::last) + 1;

struct GraphTensor {
  enum class Place { memory, between, number };  // of the GPU; nowhere; a number of the host
  int64_t id = 0;
  std::array<int64_t, 4> dims = {}, strides = {};  // elements
  GraphType type = GraphType::f32;
  Place place = Place::between;
};

enum class GraphOp {
  matmul,
  transpose,  // of rows and columns: the strides of its result say it
  largest,    // of each row
  sum,        // of each row, or of the heads of a group
  add,
  subtract,
  multiply,
  divide,
  exp,
  log,
  copy,
  row_number,
  column_number,
  not_less,
  greater,
  choose,  // the first where the third is true, else the second
};
struct GraphStep {
  GraphOp op;
  std::vector<size_t> in;  // places in AttentionGraph::tensors
  size_t out = 0;
};
struct AttentionGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphStep> steps;
};

// What one plan is made for.
struct AttentionShape {
  bool backward = false;
  bool repeats = true;  // the same bits each time; backward alone may do without
  DType dtype = DType::bf16;
  int64_t sequences = 0, length = 0, heads = 0, kv_heads = 0, dim = 0;
  int64_t window = 0;                                                    // keys that a query sees at most; 0: all
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;        // elements between rows
  int64_t dout_stride = 0, dq_stride = 0, dk_stride = 0, dv_stride = 0;  // of backward alone
  auto operator<=>(const AttentionShape&) const = default;
};

// o = softmax(scale q k^T, causal, window) v, and lse [b, h, s, 1], f32 and contiguous.
// Backward: weighted = sum over columns of dout o, [b, h, s, 1] as lse; dq, dk, dv from it. If not `repeats`, blocks
// add dq in any order to `sums`, f32 [b, h, s, e], 0 before.
AttentionGraph attention_graph(const AttentionShape& shape);

}  // namespace weft::gpu
