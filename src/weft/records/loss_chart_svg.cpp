// Pixels, y downwards.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "weft/records/loss_plot.h"
#include "weft/records/svg_parts.h"

namespace weft {

using namespace loss_plot;
using svg_parts::escaped, svg_parts::kSvgStyle, svg_parts::svg_line, svg_parts::svg_text;

namespace {

constexpr double kSvgWidth = 860, kSvgHeight = 480;
constexpr double kLeft = 64, kRight = 836, kTop = 72, kBottom = 424;  // of the plotting area

// At most four points a pixel column (first, least, greatest, last of it): looks as all of them would.
std::vector<LossPoint> thinned(const std::vector<LossPoint>& points, const Range& steps) {
  std::vector<LossPoint> out;
  for (size_t begin = 0; begin < points.size();) {
    const double column = std::floor(steps.map(points[begin].step, kLeft, kRight));
    size_t end = begin, least = begin, greatest = begin;
    for (; end < points.size() && std::floor(steps.map(points[end].step, kLeft, kRight)) == column; ++end) {
      if (points[end].loss < points[least].loss) least = end;
      if (points[end].loss > points[greatest].loss) greatest = end;
    }
    std::vector<size_t> keep = {begin, std::min(least, greatest), std::max(least, greatest), end - 1};
    keep.erase(std::unique(keep.begin(), keep.end()), keep.end());
    for (const size_t i : keep) out.push_back(points[i]);
    begin = end;
  }
  return out;
}

std::string svg_path(const Plot& plot, const std::vector<LossPoint>& points, std::string_view kind, double width) {
  if (points.empty()) return "";
  std::string path;
  for (const LossPoint& p : thinned(points, plot.steps)) {
    const double y = std::max(plot.losses.map(p.loss, kBottom, kTop), kTop - 20);  // spikes end beyond the clip
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", plot.steps.map(p.step, kLeft, kRight), y);
  }
  if (points.size() == 1) path += "h0.1";
  return fmt::format("<path class=\"{}\" stroke-width=\"{}\" clip-path=\"url(#area)\" d=\"{}\"/>\n", kind, width, path);
}

std::string svg_axes(const Plot& plot) {
  std::string out;
  const std::vector<double> losses = loss_ticks(plot, 7, 20);
  const std::vector<std::string> loss_labels = tick_labels(losses);
  for (size_t i = 0; i < losses.size(); ++i) {
    const double y = plot.losses.map(losses[i], kBottom, kTop);
    out += svg_line("grid", kLeft, y, kRight, y) + svg_text(kLeft - 10, y + 4.5, "end", loss_labels[i]);
  }
  const std::vector<double> steps = step_ticks(plot, 9);
  const std::vector<std::string> step_labels = tick_labels(steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    const double x = plot.steps.map(steps[i], kLeft, kRight);
    out += svg_line("axis", x, kBottom, x, kBottom + 5) + svg_text(x, kBottom + 21, "middle", step_labels[i]);
  }
  out += svg_line("axis", kLeft, kBottom, kRight, kBottom);
  out += svg_text((kLeft + kRight) / 2, kBottom + 43, "middle", "optimizer steps");
  out += fmt::format("<text transform=\"translate(18 {:.0f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     (kTop + kBottom) / 2, "loss (nats per token)");
  return out;
}

std::string svg_eval(const Plot& plot) {
  std::string out = svg_path(plot, plot.eval, "eval", 1.5);
  for (const LossPoint& p : thinned(plot.eval, plot.steps)) {
    out += fmt::format("<circle class=\"dot\" clip-path=\"url(#area)\" r=\"4\" cx=\"{:.1f}\" cy=\"{:.1f}\"/>\n",
                       plot.steps.map(p.step, kLeft, kRight), plot.losses.map(p.loss, kBottom, kTop));
  }
  return out;
}

// In the upper right, where a falling loss leaves room.
std::string svg_legend(const Plot& plot) {
  constexpr double kX = kRight - 168;
  const int lines = (plot.raw.empty() ? 0 : 2) + (plot.eval.empty() ? 0 : 1) + (plot.above > 0 ? 1 : 0);
  std::string out = fmt::format("<rect class=\"ground\" x=\"{}\" y=\"{}\" width=\"176\" height=\"{}\"/>\n", kX - 8,
                                kTop, 20 * lines + 6);
  double y = kTop + 18;
  auto entry = [&](std::string_view kind, double width, std::string_view text) {
    out += fmt::format("<path class=\"{}\" stroke-width=\"{}\" d=\"M{} {}h26\"/>\n", kind, width, kX, y - 4.5);
    out += svg_text(kX + 36, y, "start", text);
    y += 20;
  };
  if (!plot.raw.empty()) {
    entry("raw", 1.5, "training, each step");
    entry("smooth", 2.5, "training, smoothed");
  }
  if (!plot.eval.empty()) {
    const double dot_y = y - 4.5;
    entry("eval", 1.5, "held-out text");
    out += fmt::format("<circle class=\"dot\" r=\"4\" cx=\"{}\" cy=\"{}\"/>\n", kX + 13, dot_y);
  }
  if (plot.above > 0) out += svg_text(kX, y, "start", fmt::format("{} steps lie above", plot.above));
  return out;
}

}  // namespace

std::string loss_chart_svg(const LossCurve& curve) {
  const Plot plot = prepare(curve);
  const bool empty = plot.raw.empty() && plot.eval.empty();
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n"
      "<title>{2}</title>\n{3}<clipPath id=\"area\"><rect x=\"{4}\" y=\"{5}\" width=\"{6}\" "
      "height=\"{7}\"/></clipPath>\n"
      "<rect class=\"ground\" width=\"{0}\" height=\"{1}\"/>\n",
      kSvgWidth, kSvgHeight, escaped(curve.title), kSvgStyle, kLeft - 5, kTop, kRight - kLeft + 10, kBottom - kTop);
  out += svg_text(24, 32, "start", curve.title, "title");
  out += svg_text(24, 54, "start", empty ? "no step has been recorded" : summary(plot));
  if (!empty) {
    out += svg_axes(plot);
    if (plot.raw.size() > 80) out += svg_path(plot, plot.raw, "raw", 1);
    out += svg_path(plot, plot.smooth, "smooth", 2.5);
    out += svg_eval(plot) + svg_legend(plot);
  }
  return out + "</svg>\n";
}

}  // namespace weft
