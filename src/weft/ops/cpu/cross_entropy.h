// Cross-entropy and its gradient in one visit of a row, vectorised.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void cross_entropy(const CrossEntropy& op, Range rows);

}  // namespace weft::cpu
