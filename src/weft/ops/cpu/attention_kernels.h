// Attention of one block of rows with the keys that it sees, vectorised.
#pragma once
#include "weft/ops/cpu/attention_blocks.h"

namespace weft::cpu {

// A head as tiles hold it: whole vectors of any CPU.
inline int64_t padded(int64_t dim) { return (dim + 15) / 16 * 16; }

// Where the gradients of a key head's keys are summed: f32 [k_count, padded(dim)] each.
struct KeySums {
  float *dk = nullptr, *dv = nullptr;
  int64_t dk_stride = 0, dv_stride = 0;  // from row to row
};
// What a visit of a block computes.
struct BackwardTask {
  Range keys;       // of the block's keys; kStripKeys of them begin together
  KeySums sums;     // added to where they exist
  bool dq = false;  // written
};

int64_t forward_block_floats(int64_t dim);
void forward_block(const Attention& op, const QueryBlock& block, float* memory);
int64_t backward_block_floats(int64_t dim);
void backward_block(const AttentionBackward& op, const QueryBlock& block, const BackwardTask& task, float* memory);

}  // namespace weft::cpu
