// One rank's training step as plain values: all that memory and time depend on.
#pragma once
#include "weft/models/transformer.h"
#include "weft/schedule/schedule.h"

namespace weft {

struct StepSpec {
  Precision precision;
  TransformerPlan model;
  int64_t seq_length = 0;
  int64_t micro_batch_size = 0;  // sequences
  GradientOrder order;           // micro-batches of a step, and how their gradients are summed
  Schedule schedule;
  bool evaluates = false;  // is the loss also measured without training
  int64_t micro_batch_tokens() const { return seq_length * micro_batch_size; }
};

// The tensors of one micro-batch (MicroBatch without spans), of `tokens` tokens.
MicroBatch alloc_micro_batch(Arena& arena, int64_t tokens);

}  // namespace weft
