// Normalization of rows and heads, vectorised; `rows` of the op at a time.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void norm(const Norm& op, Range rows);
void norm_apply(const NormApply& op, Range rows);
// Writes dx of these rows and, into `part`, their sums for dw [d] and, where db exists, db [d] behind it.
void norm_backward(const NormBackward& op, Range rows, float* part);
void head_norm(const HeadNorm& op, Range rows);
// Writes dx of these rows and, into `part`, their sum for dw [e].
void head_norm_backward(const HeadNormBackward& op, Range rows, float* part);
void row_dots(const RowDots& op, Range rows);
void rope(const Rope& op, Range rows);

}  // namespace weft::cpu
