#include "weft/records/loss_chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support.h"

namespace weft {
namespace {

using testing::lines_of;

const double kNan = std::numeric_limits<double>::quiet_NaN();

LossCurve falling(int steps) {
  LossCurve curve{.title = "a run"};
  for (int step = 1; step <= steps; ++step) curve.train.push_back({double(step), 1 + 4.0 / step});
  curve.eval = {{0, 5}, {double(steps), 1.5}};
  return curve;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++found;
  return found;
}

// The characters of a line of UTF-8 (all that the plot draws are one column wide).
int columns(const std::string& line) {
  return int(std::count_if(line.begin(), line.end(), [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
}

// The x and y of a path's points.
std::vector<std::pair<double, double>> path_points(const std::string& svg, const std::string& kind) {
  const size_t path = svg.find("<path class=\"" + kind + "\"");
  if (path == std::string::npos) return {};
  const size_t begin = svg.find(" d=\"", path) + 4, end = svg.find('"', begin);
  std::string d = svg.substr(begin, end - begin);
  std::replace_if(
      d.begin(), d.end(), [](char c) { return c == 'M' || c == 'L'; }, ' ');
  std::istringstream in(d);
  std::vector<std::pair<double, double>> points;
  for (double x, y; in >> x >> y;) points.emplace_back(x, y);
  return points;
}

// Every element is closed, in order: well-formed as far as this generator can go wrong.
bool is_balanced(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = svg.substr(at + 1, end - at - 1);
    if (tag.back() == '/') continue;
    if (tag.front() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(LossChart, TicksAreRoundAndWithinTheRange) {
  EXPECT_EQ(nice_ticks(0, 1000, 6), (std::vector<double>{0, 200, 400, 600, 800, 1000}));
  EXPECT_EQ(nice_ticks(1.3, 5.2, 5), (std::vector<double>{2, 3, 4, 5}));
  EXPECT_EQ(nice_ticks(-3, 3, 4), (std::vector<double>{-2, 0, 2}));
  for (int most = 2; most < 20; ++most) {
    for (double hi = 0.001; hi < 1e6; hi *= 1.37) {
      const std::vector<double> ticks = nice_ticks(0.3 * hi, hi, most);
      EXPECT_LE(ticks.size(), size_t(most));
      for (const double tick : ticks) {
        EXPECT_GE(tick, 0.3 * hi * (1 - 1e-6));
        EXPECT_LE(tick, hi * (1 + 1e-6));
      }
    }
  }
}

TEST(LossChart, SmoothingKeepsLinesAndTheFirstPointAndTakesNoiseAway) {
  std::vector<LossPoint> line, noisy;
  for (int i = 0; i < 400; ++i) {
    line.push_back({double(i), 7 - 0.01 * i});
    noisy.push_back({double(i), 2 + (i % 2 ? 0.5 : -0.5)});
  }
  const auto smooth_line = smoothed(line), smooth_noise = smoothed(noisy);
  EXPECT_EQ(smooth_line.front().loss, 7);
  for (int i = 0; i < 395; ++i) EXPECT_NEAR(smooth_line[size_t(i)].loss, 7 - 0.01 * i, 1e-9) << "a lag at " << i;
  for (int i = 10; i < 400; ++i) EXPECT_NEAR(smooth_noise[size_t(i)].loss, 2, 0.11) << i;
  EXPECT_TRUE(smoothed({}).empty());
}

TEST(LossChart, TheSvgHasTitleAxesUnitsLegendAndBothGrounds) {
  const std::string svg = loss_chart_svg(falling(1000));
  EXPECT_TRUE(is_balanced(svg));
  for (const char* text :
       {">a run<", ">optimizer steps<", ">loss (nats per token)<", ">training, each step<", ">training, smoothed<",
        ">held-out text<", ">200<", ">800<", "prefers-color-scheme: dark", "held-out 1.5000"}) {
    EXPECT_EQ(count(svg, text), text == std::string(">a run<") ? 2u : 1u) << text;
  }
}

TEST(LossChart, ThePointsOfTheSvgLieWhereTheLossesAre) {
  LossCurve curve{.title = ""};
  curve.train = {{0, 4}, {50, 3}, {100, 2}};
  const auto points = path_points(loss_chart_svg(curve), "smooth");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_NEAR(points[1].first, (points[0].first + points[2].first) / 2, 0.06);
  EXPECT_NEAR(points[1].second, (points[0].second + points[2].second) / 2, 0.06);
  EXPECT_LT(points[0].first, points[2].first);
  EXPECT_LT(points[0].second, points[2].second) << "y grows downwards: the higher loss lies above";
}

TEST(LossChart, ALongRunGivesNoLargerFileAndKeepsItsExtremes) {
  LossCurve curve{.title = "long"};
  for (int step = 0; step < 300'000; ++step) curve.train.push_back({double(step), 2 + 0.3 * std::sin(step * 0.7)});
  curve.train[123'457].loss = 1.2;
  const std::string svg = loss_chart_svg(curve);
  EXPECT_LT(svg.size(), 120'000u);
  const auto points = path_points(svg, "raw");
  const auto lowest =
      std::max_element(points.begin(), points.end(), [](auto& a, auto& b) { return a.second < b.second; });
  ASSERT_NE(lowest, points.end());
  EXPECT_NEAR(lowest->first, 64 + 772 * 123'457 / 299'999.0, 1.0);
}

TEST(LossChart, ASpikeLeavesTheRestReadableAndIsCounted) {
  LossCurve curve = falling(1000);
  curve.train[500].loss = 1e6;
  const std::string svg = loss_chart_svg(curve);
  EXPECT_NE(svg.find("steps lie above"), std::string::npos);
  const auto points = path_points(svg, "smooth");
  EXPECT_GT(points.back().second - points.front().second, 150) << "the curve still uses the height";
  EXPECT_NE(loss_chart_text(curve, 100, 20).find("steps above"), std::string::npos);
}

TEST(LossChart, OddRunsAreDrawnToo) {
  LossCurve nothing{.title = "none <&> \"yet\"\n"};
  LossCurve one{.title = "one"};
  one.train = {{1, 3}};
  LossCurve flat{.title = "flat"};
  flat.train = {{1, 3}, {2, 3}, {3, 3}};
  LossCurve broken{.title = "broken"};
  broken.train = {{1, 3}, {2, kNan}, {3, std::numeric_limits<double>::infinity()}, {4, 2}};
  LossCurve only_eval{.title = "only eval"};
  only_eval.eval = {{0, 3}, {10, 2}};
  LossCurve all_lost{.title = "all lost"};
  all_lost.train = {{1, kNan}};
  for (const LossCurve& curve : {nothing, one, flat, broken, only_eval, all_lost}) {
    const std::string svg = loss_chart_svg(curve), text = loss_chart_text(curve, 60, 12);
    EXPECT_TRUE(is_balanced(svg)) << curve.title;
    for (const char* bad : {"nan<", "inf", "nan "}) EXPECT_EQ(count(svg + text, bad), 0u) << curve.title << svg << text;
  }
  EXPECT_NE(loss_chart_svg(nothing).find("none &lt;&amp;&gt; &quot;yet&quot; "), std::string::npos);
  LossCurve huge{.title = "größer"};
  huge.train = {{1, 1e30}, {2e15, 3e30}};
  for (const std::string& line : lines_of(loss_chart_text(huge, 30, 12))) EXPECT_LE(columns(line), 30) << line;
  EXPECT_EQ(path_points(loss_chart_svg(broken), "smooth").size(), 2u);
  EXPECT_NE(loss_chart_text(nothing, 60, 12).find("no step has been recorded"), std::string::npos);
}

TEST(LossChart, TheTerminalPlotFitsItsWidthAndHeight) {
  for (int width = 30; width <= 200; width += 7) {
    for (int height = 8; height <= 40; height += 5) {
      for (const int steps : {1, 2, 5, 100, 3000}) {
        const auto lines = lines_of(loss_chart_text(falling(steps), width, height));
        EXPECT_EQ(lines.size(), size_t(height));
        for (const std::string& line : lines) EXPECT_LE(columns(line), width) << line;
      }
    }
  }
}

TEST(LossChart, TheTerminalPlotShowsTheCurveFromItsCornerToItsCorner) {
  LossCurve curve{.title = "line"};
  for (int step = 0; step <= 100; ++step) curve.train.push_back({double(step), 4 - 0.02 * step});
  const auto lines = lines_of(loss_chart_text(curve, 42, 14));
  EXPECT_EQ(lines[0], "line");
  EXPECT_NE(lines[1].find("4 ┤⠢"), std::string::npos) << lines[1];
  const std::string last_row = lines[10];
  EXPECT_EQ(last_row.find_last_not_of(' '), last_row.size() - 1) << "it ends in the last column: " << last_row;
  EXPECT_NE(lines[12].find("100"), std::string::npos) << lines[12];
  EXPECT_EQ(count(loss_chart_text(curve, 42, 14), "┤"), 3u) << loss_chart_text(curve, 42, 14);
}

TEST(LossChart, EvaluationsAreMarked) {
  LossCurve curve{.title = "x"};
  curve.train = {{0, 4}, {100, 2}};
  curve.eval = {{50, 3.5}, {100, 3.2}};
  const std::string text = loss_chart_text(curve, 60, 16);
  EXPECT_EQ(count(text.substr(0, text.find("└")), "o"), 2u) << text;
  EXPECT_EQ(count(loss_chart_svg(curve), "<circle"), 3u) << "two points and the legend's";
}

TEST(LossChart, ACurveIsMadeOfARunsRecords) {
  const Metrics metrics{
      .steps = {{.step = 1, .loss = 3}, {.step = 2, .loss = 2}}, .evals = {{.step = 2, .loss = 2.5}}, .tasks = {}};
  const LossCurve curve = loss_curve(metrics, "t");
  ASSERT_EQ(curve.train.size(), 2u);
  EXPECT_EQ(curve.train[1].step, 2);
  EXPECT_EQ(curve.train[1].loss, 2);
  ASSERT_EQ(curve.eval.size(), 1u);
  EXPECT_EQ(curve.eval[0].loss, 2.5);
}

}  // namespace
}  // namespace weft
