// Grouped products as products of each group, which are ops of their own.
#pragma once
#include <vector>

#include "weft/ops/ops.h"

namespace weft {

// The product of one group, which has the rows [first, first + count).
inline Matmul product_of(const GroupedMatmul& op, int64_t group, int64_t first, int64_t count) {
  return {.a = op.x.slice_rows(first, count),
          .b = op.w.slice_rows(group * op.rows_of_group(), op.rows_of_group()),
          .out = op.out.slice_rows(first, count),
          .trans_b = !op.turned};
}
inline Matmul product_of(const GroupedWeightGrad& op, int64_t group, int64_t first, int64_t count) {
  return {.a = op.dy.slice_rows(first, count),
          .b = op.x.slice_rows(first, count),
          .out = op.dw.slice_rows(group * op.rows_of_group(), op.rows_of_group()),
          .trans_a = true,
          .accumulate = op.accumulate};
}

// The products of all groups that have rows. `offsets`: host memory.
template <class Op>
std::vector<Matmul> products_of(const Op& op, const int32_t* offsets) {
  std::vector<Matmul> all;
  for (int64_t g = 0; g < op.groups(); ++g)
    if (const int64_t count = offsets[g + 1] - offsets[g]; count > 0)
      all.push_back(product_of(op, g, offsets[g], count));
  return all;
}

}  // namespace weft
