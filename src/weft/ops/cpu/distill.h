// The loss of a student beside its teacher and its gradient, vectorised.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void distill_part(const DistillPart& op, Range rows);
void distill_join(const DistillJoin& op, Range rows);

}  // namespace weft::cpu
