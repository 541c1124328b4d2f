// What the arenas of a training step hold at most, on one rank.
#pragma once
#include <cstdint>
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

struct StepMemory {
  struct Chunk {                   // of the model, on this rank
    Liveness slots;                // micro-batches alive at once, for the three that follow
    int64_t till_dgrad = 0;        // bytes of one micro-batch: forward .. dgrad
    int64_t till_wgrad = 0;        // forward .. wgrad, with the micro-batch itself
    int64_t dgrad_till_wgrad = 0;  // dgrad .. wgrad
    bool operator==(const Chunk&) const = default;
  };
  std::vector<Chunk> chunks;
  int64_t handover = 0;    // bytes: gradients on their way to other stages
  int64_t replay = 0;      // a layer that is computed again
  int64_t scratch = 0;     // temporaries of layers, and then of the update
  int64_t evaluation = 0;  // loss without training; 0 where there is none
  // Of a teacher, 0 where there is none: its states, of all micro-batches; or of one with axes of its own those of one,
  // with some of its logits.
  int64_t taught = 0;
  int64_t teacher_rows = 0;  // and the largest logits of a token that it finds here, or that are learned here
  bool operator==(const StepMemory&) const = default;
};

}  // namespace weft
