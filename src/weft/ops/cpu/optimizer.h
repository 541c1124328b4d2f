// The optimizers' updates, one pass over memory, vectorised; a range of elements at a time.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void adamw(const AdamW& op, Range elements);
void sgd(const Sgd& op, Range elements);

}  // namespace weft::cpu
