// Learning rate as a pure function of the step.
#pragma once
#include <cstdint>

namespace weft {

struct LrSchedule {
  enum class Style : uint8_t { constant, linear, cosine, wsd };
  Style style = Style::constant;
  double lr = 0, min_lr = 0;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;      // the whole run, warm-up included; min_lr from there on
  int64_t wsd_decay_steps = 0;  // wsd: the last part of decay_steps, in which lr falls linearly to min_lr

  // The rate of step s >= 0: lr (s + 1) / warmup_steps while s < warmup_steps, then the style over the remaining steps.
  double at(int64_t step) const;
};

}  // namespace weft
