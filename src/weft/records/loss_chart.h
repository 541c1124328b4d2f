// The loss of a run as a picture: an SVG for the browser and a plot for the terminal.
#pragma once
#include <string>
#include <vector>

#include "weft/records/metrics_log.h"

namespace weft {

struct LossPoint {
  double step = 0;
  double loss = 0;  // nats per token; points that are not finite are left out
};

struct LossCurve {
  std::string title;
  std::vector<LossPoint> train{};  // in the order of their steps
  std::vector<LossPoint> eval{};   // of held-out text; may be empty
};

LossCurve loss_curve(const Metrics& metrics, std::string title);

// Places for ticks within [lo, hi]: multiples of 1, 2 or 5 times a power of ten, at most `max_ticks` (at least 2) of
// them.
std::vector<double> nice_ticks(double lo, double hi, int max_ticks);

// Mean over a window centered at each point, about a fortieth of the curve: no lag. At the start it grows with the
// point's distance, so that the first point stays where it is; at the end it becomes the mean of what comes before.
std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points);

// A whole SVG document, readable on light and dark grounds (it follows the reader's preference). Its size does not grow
// with the number of points. A few spikes that would flatten the rest leave the picture at the top and are counted in
// it.
std::string loss_chart_svg(const LossCurve& curve);

// The same in `width` x `height` characters (at least 30 x 8) of UTF-8, axes and labels included, lines ended by
// newlines.
std::string loss_chart_text(const LossCurve& curve, int width, int height);

}  // namespace weft
