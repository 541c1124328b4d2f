// The data and axis ticks that both pictures of the loss share.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/records/loss_chart.h"

namespace weft::loss_plot {

struct Range {
  double lo = 0, hi = 1;
  // Where `value` lies between `from` (at lo) and `to` (at hi).
  double map(double value, double from, double to) const { return from + (value - lo) / (hi - lo) * (to - from); }
};

struct Plot {
  std::vector<LossPoint> raw, smooth, eval;
  Range steps, losses;
  int64_t above = 0;  // points beyond the top of the axis
};

Plot prepare(const LossCurve& curve);

// Ticks of the loss axis: about `wanted`; where round numbers are too few, more, three if `most` allows.
std::vector<double> loss_ticks(const Plot& plot, int wanted, int most);
// Ticks of the step axis, whole numbers, at most `wanted`.
std::vector<double> step_ticks(const Plot& plot, int wanted);
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

// "mean of the last 15 steps 1.2345, held-out 1.3456"
std::string summary(const Plot& plot);

}  // namespace weft::loss_plot
