// Sums and counts, vectorised; each of a part of its op, to be added in a fixed order.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

// part[j] = sum over `rows` of dy[., j].
void bias_grad(const BiasGrad& op, Range rows, float* part);
// out[j] (+)= the sum of `count` parts, `stride` apart, over `columns`.
struct PartSum {
  const float* parts;
  int64_t count, stride;
  float* out;
  bool accumulate;
};
void sum_parts(const PartSum& sum, Range columns);

double sum(const Tensor& x, Range elements);
double sum_squares(const Tensor& x, Range elements);
int64_t count_nonfinite(const Tensor& x, Range elements);

}  // namespace weft::cpu
