#include "weft/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft {

double LrSchedule::at(int64_t step) const {
  if (step < warmup_steps) return lr * double(step + 1) / double(warmup_steps);
  const int64_t first = style == Style::wsd ? std::max(warmup_steps, decay_steps - wsd_decay_steps) : warmup_steps;
  const double done = double(step - first) / double(std::max<int64_t>(1, decay_steps - first));
  const double progress = std::clamp(done, 0.0, 1.0);
  switch (style) {
    case Style::constant:
      return lr;
    case Style::linear:
    case Style::wsd:
      return lr + progress * (min_lr - lr);
    case Style::cosine:
      return min_lr + 0.5 * (1 + std::cos(std::numbers::pi * progress)) * (lr - min_lr);
  }
  return lr;
}

}  // namespace weft
