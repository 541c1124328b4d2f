// Numbers of frozen matrices that are kept in codes; a range of rows at a time.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void dequantise(const Dequantise& op, Range rows);

}  // namespace weft::cpu
