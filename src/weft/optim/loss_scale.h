// The factor on the loss that keeps fp16 gradients within the type's range.    Micikevicius et al. 2018, section 3.2
#pragma once
#include <cstdint>

namespace weft {

// Where a run's loss scale is: what a checkpoint holds of it.
struct LossScaleState {
  double scale = 1;
  int64_t good_steps = 0;       // in a row, up to now, that were not skipped; 0 again when the scale doubles
  int64_t hysteresis_left = 0;  // overflows that do not yet halve the scale
  int64_t skipped_steps = 0;    // of the whole run
  bool operator==(const LossScaleState&) const = default;
};

// A pure function of which steps overflowed, so that ranks that agree on those agree on it.
struct LossScale {
  // none: 1, and no step may overflow. fixed: stays as it is. dynamic: doubles after `window` good steps in a row;
  // halves, but not below `min`, at the `hysteresis`th overflow since it last doubled and at every one after that.
  enum class Kind : uint8_t { none, fixed, dynamic };
  Kind kind = Kind::none;
  double min = 1;
  int64_t window = 1000, hysteresis = 2;
  LossScaleState state = {};

  static LossScale fixed_at(double scale) { return {.kind = Kind::fixed, .state = {.scale = scale}}; }
  struct Range {
    double initial, min;
  };
  static LossScale dynamic_from(Range range, int64_t window, int64_t hysteresis);

  // Whether a step whose loss or gradients overflow may be skipped: not where the scale cannot fall any more.
  bool may_skip() const { return kind == Kind::fixed || (kind == Kind::dynamic && state.scale > min); }
  void count_good();
  void count_overflow();
};

}  // namespace weft
