// Sinks of attention, vectorised; `rows` of o at a time.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void attention_sink(const AttentionSink& op, Range rows);
// Writes into `part` these rows' sums for dsinks [h].
void attention_sink_backward(const AttentionSinkBackward& op, Range rows, float* part);

}  // namespace weft::cpu
