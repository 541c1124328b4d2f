// Sums and counts, vectorised; each of a part of its op, to be added in a fixed order.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

// part[j] = sum over `rows` of dy[., j], or of dy[., j] x[., j].
void bias_grad(const BiasGrad& op, Range rows, float* part);
// out[j] (+)= the sum of `count` parts, `stride` apart, over `columns`.
struct PartSum {
  const float* parts;
  int64_t count, stride;
  float* out;
  bool accumulate;
};
void sum_parts(const PartSum& sum, Range columns);

// Elements of a whole tensor that one task sums.
inline constexpr int64_t kSumElements = int64_t{1} << 16;
static_assert(kSumElements % kSumLeaf == 0);
inline int64_t sum_parts_of(const Tensor& x) { return (x.elements() + kSumElements - 1) / kSumElements; }
double sum(const Tensor& x, Range elements);
// At most kSumElements elements, one node of the tree in which SumSquares adds.
double sum_squares(const Tensor& x, Range elements);
// As SumSquares adds n leaves, or the sums of equal nodes; overwrites them.
double tree_sum(double* leaves, int64_t n);
int64_t count_nonfinite(const Tensor& x, Range elements);

}  // namespace weft::cpu
