// Cross-entropy and its gradient in one visit of a row, vectorised.
#pragma once
#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

// `room`: cross_entropy_room(op) floats, of this thread alone.
void cross_entropy(const CrossEntropy& op, Range rows, float* room);
inline int64_t cross_entropy_room(const CrossEntropy& op) {
  return op.dlogits && op.dlogits.dtype != DType::f32 ? (op.logits.cols() + 15) / 16 * 16 : 0;
}
void cross_entropy_part(const CrossEntropyPart& op, Range rows);
void cross_entropy_join(const CrossEntropyJoin& op, Range rows);

}  // namespace weft::cpu
