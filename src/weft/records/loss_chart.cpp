#include "weft/records/loss_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft {
namespace loss_plot {
namespace {

std::vector<LossPoint> finite(std::vector<LossPoint> points) {
  std::erase_if(points, [](const LossPoint& p) { return !std::isfinite(p.loss) || !std::isfinite(p.step); });
  return points;
}

Range step_range(const Plot& plot) {
  Range range{.lo = INFINITY, .hi = -INFINITY};
  for (const auto* points : {&plot.raw, &plot.eval}) {
    for (const LossPoint& p : *points) range.lo = std::min(range.lo, p.step), range.hi = std::max(range.hi, p.step);
  }
  if (range.lo > 0 && range.lo <= 0.1 * range.hi) range.lo = 0;  // a run from the start shows its start
  if (range.lo == range.hi) range.lo -= 1, range.hi += 1;
  return range;
}

// All losses; of those far above nearly all others (a spike, or the first steps of a long run) only as much as leaves
// the rest most of the height.
Range loss_range(const Plot& plot) {
  std::vector<double> losses;
  for (const auto* points : {&plot.raw, &plot.eval}) {
    for (const LossPoint& p : *points) losses.push_back(p.loss);
  }
  std::sort(losses.begin(), losses.end());
  const double lo = losses.front(), most = losses[(losses.size() - 1) * 98 / 100];
  const double hi = most > lo ? std::min(losses.back(), most + 1.5 * (most - lo)) : losses.back();
  const double margin = hi > lo ? 0.04 * (hi - lo) : 0.1 * std::max(1.0, std::abs(hi));
  return {.lo = lo - margin, .hi = hi + margin};
}

// As few decimals as keep neighbouring ticks apart; thousands as 20k, what is huge as 1e+30.
std::string tick_label(double value, double distance) {
  if (distance >= 1000 && std::fmod(value, 1000) == 0 && value != 0) return fmt::format("{:.0f}k", value / 1000);
  if (distance >= 1e6) return fmt::format("{:.3g}", value);
  const int decimals = std::clamp(int(-std::floor(std::log10(distance) + 1e-9)), 0, 9);
  return fmt::format("{:.{}f}", value + 0.0, decimals);
}

}  // namespace

Plot prepare(const LossCurve& curve) {
  Plot plot{.raw = finite(curve.train), .smooth = {}, .eval = finite(curve.eval), .steps = {}, .losses = {}};
  if (plot.raw.empty() && plot.eval.empty()) return plot;
  plot.steps = step_range(plot);
  plot.losses = loss_range(plot);
  plot.smooth = plot.raw;  // a spike counts only as high as it is drawn
  for (LossPoint& p : plot.smooth) p.loss = std::min(p.loss, plot.losses.hi);
  plot.smooth = smoothed(plot.smooth);
  plot.above = std::count_if(plot.raw.begin(), plot.raw.end(), [&](auto& p) { return p.loss > plot.losses.hi; });
  return plot;
}

std::vector<double> loss_ticks(const Plot& plot, int wanted, int most) {
  std::vector<double> ticks;
  for (int count = wanted; ticks.size() < 3 && count <= most; ++count) {
    ticks = nice_ticks(plot.losses.lo, plot.losses.hi, count);
  }
  return ticks;
}

std::vector<double> step_ticks(const Plot& plot, int wanted) {
  std::vector<double> ticks = nice_ticks(plot.steps.lo, plot.steps.hi, std::max(wanted, 2));
  std::erase_if(ticks, [](double step) { return step != std::floor(step); });
  return ticks;
}

std::vector<std::string> tick_labels(const std::vector<double>& ticks) {
  std::vector<std::string> labels;
  for (const double tick : ticks) labels.push_back(tick_label(tick, ticks.size() > 1 ? ticks[1] - ticks[0] : 1));
  return labels;
}

std::string summary(const Plot& plot) {
  std::string text;
  if (!plot.smooth.empty()) {
    const size_t last = std::min<size_t>(plot.raw.size(), std::max<size_t>(plot.raw.size() / 40, 1));
    double sum = 0;
    for (size_t i = plot.raw.size() - last; i < plot.raw.size(); ++i) sum += plot.raw[i].loss;
    text = last > 1 ? fmt::format("mean of the last {} steps {:.4f}", last, sum / double(last))
                    : fmt::format("last {:.4f}", sum);
  }
  if (!plot.eval.empty()) text += fmt::format("{}held-out {:.4f}", text.empty() ? "" : ", ", plot.eval.back().loss);
  return text;
}

}  // namespace loss_plot

LossCurve loss_curve(const Metrics& metrics, std::string title) {
  LossCurve curve{.title = std::move(title)};
  for (const StepRecord& r : metrics.steps) curve.train.push_back({double(r.step), r.loss});
  for (const EvalRecord& r : metrics.evals) curve.eval.push_back({double(r.step), r.loss});
  return curve;
}

std::vector<double> nice_ticks(double lo, double hi, int max_ticks) {
  const double ideal = (hi - lo) / std::max(max_ticks - 1, 1);
  const double power = std::pow(10, std::floor(std::log10(ideal)));
  double distance = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= ideal * (1 - 1e-9)) {
      distance = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const double last = std::floor(hi / distance + 1e-9);
  for (double i = std::ceil(lo / distance - 1e-9); i <= last; ++i) ticks.push_back(i * distance);
  return ticks;
}

std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points) {
  const size_t count = points.size(), half = count / 80;
  std::vector<double> sums(count + 1, 0);
  for (size_t i = 0; i < count; ++i) sums[i + 1] = sums[i] + points[i].loss;
  std::vector<LossPoint> out = points;
  for (size_t i = 0; i < count; ++i) {
    const size_t before = std::min(half, i), after = std::min(before, count - 1 - i);
    if (before > 0) out[i].loss = (sums[i + after + 1] - sums[i - before]) / double(before + after + 1);
  }
  return out;
}

}  // namespace weft
