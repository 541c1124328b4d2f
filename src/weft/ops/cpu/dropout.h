// Dropout of elements.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void dropout(const Dropout& op, Range rows);

}  // namespace weft::cpu
