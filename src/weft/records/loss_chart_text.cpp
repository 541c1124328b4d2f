#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "weft/records/loss_plot.h"

namespace weft {

using namespace loss_plot;

namespace {

// A braille character is 2 x 4 dots.
class Canvas {
 public:
  Canvas(int columns, int rows) : columns_(columns), rows_(rows), cells_(size_t(columns) * size_t(rows), 0) {}
  int width() const { return 2 * columns_; }
  int height() const { return 4 * rows_; }

  void dot(int x, int y) {
    static constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cell(x, y) |= kBits[y % 4][x % 2];
  }
  // All dots of a line, Bresenham's.
  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
  }
  void mark(int x, int y) { cell(x, y) = kMark; }

  std::string row(int row) const {
    std::string out;
    for (int column = 0; column < columns_; ++column) {
      const int bits = cells_[index(column, row)];
      if (bits == 0) {
        out += ' ';
      } else if (bits >= kMark) {
        out += 'o';
      } else {
        out += {char(0xe2), char(0xa0 | bits >> 6), char(0x80 | (bits & 0x3f))};  // U+2800 + bits, in UTF-8
      }
    }
    return out;
  }

 private:
  static constexpr int kMark = 0x100;
  size_t index(int column, int row) const { return size_t(row) * size_t(columns_) + size_t(column); }
  int& cell(int x, int y) { return cells_[index(x / 2, y / 4)]; }
  int columns_, rows_;
  std::vector<int> cells_;
};

void draw(Canvas& canvas, const Plot& plot) {
  const auto x_of = [&](double step) { return int(std::lround(plot.steps.map(step, 0, canvas.width() - 1))); };
  const auto y_of = [&](double loss) {
    const double y = plot.losses.map(loss, canvas.height() - 1, 0);
    return int(std::lround(std::clamp(y, 0.0, double(canvas.height() - 1))));
  };
  for (size_t i = 0; i < plot.smooth.size(); ++i) {
    const LossPoint &from = plot.smooth[i > 0 ? i - 1 : 0], &to = plot.smooth[i];
    canvas.line(x_of(from.step), y_of(from.loss), x_of(to.step), y_of(to.loss));
  }
  for (const LossPoint& p : plot.eval) canvas.mark(x_of(p.step), y_of(p.loss));
}

// The labels below the axis, each under its tick; `at` are columns.
std::string text_step_labels(const std::vector<int>& at, const std::vector<std::string>& labels, int width) {
  std::string line(size_t(width), ' ');
  int free = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    const int size = int(labels[i].size());
    const int begin = std::clamp(at[i] - size / 2, 0, std::max(width - size, 0));
    if (begin < free || begin + size > width) continue;
    line.replace(size_t(begin), size_t(size), labels[i]);
    free = begin + size + 1;
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

}  // namespace

std::string loss_chart_text(const LossCurve& curve, int width, int height) {
  width = std::max(width, 30);
  const int rows = std::max(height, 8) - 4;  // below a title; above an axis, its labels and its unit
  const Plot plot = prepare(curve);
  if (plot.raw.empty() && plot.eval.empty()) return curve.title + ": no step has been recorded\n";

  const std::vector<double> losses = loss_ticks(plot, std::max(rows / 3, 2), rows);
  const std::vector<std::string> loss_labels = tick_labels(losses);
  size_t margin = 0;
  for (const std::string& label : loss_labels) margin = std::max(margin, label.size());
  const int columns = width - int(margin) - 2;
  std::vector<std::string> left(size_t(rows), std::string(margin, ' ') + " │");
  for (size_t i = 0; i < losses.size(); ++i) {
    const int row = int(std::lround(plot.losses.map(losses[i], 4 * rows - 1, 0))) / 4;
    left[size_t(std::clamp(row, 0, rows - 1))] = fmt::format("{:>{}} ┤", loss_labels[i], margin);
  }

  Canvas canvas(columns, rows);
  draw(canvas, plot);
  std::string out = fmt::format("{:.{}}\n", curve.title, width);
  for (int row = 0; row < rows; ++row) out += left[size_t(row)] + canvas.row(row) + "\n";

  const std::vector<double> steps = step_ticks(plot, columns / 10);
  std::vector<int> at;
  for (const double step : steps) at.push_back(int(std::lround(plot.steps.map(step, 0, columns - 1))));
  std::string axis;
  for (int column = 0; column < columns; ++column) {
    axis += std::find(at.begin(), at.end(), column) != at.end() ? "┴" : "─";
  }
  const std::string indent(margin + 2, ' ');
  out += std::string(margin, ' ') + " └" + axis + "\n";
  out += indent + text_step_labels(at, tick_labels(steps), columns) + "\n";
  std::string footer = summary(plot) + (plot.eval.empty() ? "" : " (o)");
  if (plot.above > 0) footer += fmt::format(", {} steps above", plot.above);
  if (int(footer.size()) + 17 <= columns) footer.insert(0, "loss over steps: ");
  return out + indent + (int(footer.size()) <= columns ? footer : "loss over steps") + "\n";
}

}  // namespace weft
