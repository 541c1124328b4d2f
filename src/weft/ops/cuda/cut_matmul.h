// Products of a size that the library is slow at, cut in two, of which one is fast and the other small. In bf16 with n
// or k = 50257 (GPT-2's vocabulary), cuBLASLt 13.1 has an eighth of its rate on an H200, though rows are aligned.
#pragma once
#include "weft/ops/ops.h"

namespace weft {

inline constexpr int64_t kWholeMultiple = 16;    // elements
inline constexpr int64_t kLeastToCut = 64 * 16;  // below, two products take longer than one
inline int64_t whole_part(int64_t size) { return size / kWholeMultiple * kWholeMultiple; }
inline bool is_slow_size(int64_t size) { return size % 8 != 0 && size > kLeastToCut; }

inline bool cuts_columns(const Matmul& op) { return size_of(op.a.dtype) == 2 && is_slow_size(op.n()); }
// By k: both sums are made in f32, in workspace of f32 [m, n], before they are rounded to out.
inline bool cuts_depth(const Matmul& op) {
  return size_of(op.out.dtype) == 2 && !op.accumulate && !op.bias && is_slow_size(op.k());
}

// Some columns of out.
inline Matmul part_of_columns(Matmul op, int64_t first, int64_t count) {
  op.b = op.trans_b ? op.b.slice_rows(first, count) : op.b.slice_cols(first, count);
  if (op.bias) op.bias = op.bias.slice_rows(first, count);
  op.out = op.out.slice_cols(first, count);
  return op;
}
// Some of the sum over k, into `out`.
inline Matmul part_of_depth(Matmul op, int64_t first, int64_t count, const Tensor& out) {
  op.a = op.trans_a ? op.a.slice_rows(first, count) : op.a.slice_cols(first, count);
  op.b = op.trans_b ? op.b.slice_cols(first, count) : op.b.slice_rows(first, count);
  op.out = out;
  return op;
}

}  // namespace weft
