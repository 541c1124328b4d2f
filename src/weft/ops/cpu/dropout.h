// Dropout of elements, vectorised; `rows` of the op at a time.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void dropout(const Dropout& op, Range rows);

}  // namespace weft::cpu
