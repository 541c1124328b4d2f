#include "weft/optim/loss_scale.h"

#include <algorithm>

namespace weft {

LossScale LossScale::dynamic_from(Range range, int64_t window, int64_t hysteresis) {
  return {.kind = Kind::dynamic,
          .min = range.min,
          .window = window,
          .hysteresis = hysteresis,
          .state = {.scale = range.initial, .hysteresis_left = hysteresis - 1}};
}

void LossScale::count_good() {
  if (kind != Kind::dynamic || ++state.good_steps < window) return;
  state.good_steps = 0;
  state.hysteresis_left = hysteresis - 1;
  state.scale *= 2;
}

void LossScale::count_overflow() {
  ++state.skipped_steps;
  state.good_steps = 0;
  if (kind != Kind::dynamic) return;
  if (state.hysteresis_left > 0)
    --state.hysteresis_left;
  else
    state.scale = std::max(min, state.scale / 2);
}

}  // namespace weft
