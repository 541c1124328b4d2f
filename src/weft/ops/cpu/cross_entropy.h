// Cross-entropy and its gradient in one visit of a row, vectorised.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void cross_entropy(const CrossEntropy& op, Range rows);
void cross_entropy_part(const CrossEntropyPart& op, Range rows);
void cross_entropy_join(const CrossEntropyJoin& op, Range rows);

}  // namespace weft::cpu
