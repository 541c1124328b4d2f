// The loss of a student beside the largest logits of its teacher and its gradient, vectorised.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void distill_top_part(const DistillTopPart& op, Range rows);
void distill_top_join(const DistillTopJoin& op, Range rows);

}  // namespace weft::cpu
