// Pixels, y downwards.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "weft/base/error.h"
#include "weft/schedule/draw.h"

namespace weft {
namespace {

constexpr double kLeft = 76, kRightMargin = 72, kTop = 100, kRowHeight = 30, kBoxHeight = 26, kBelow = 60;
constexpr double kLeastPlotWidth = 720, kMostPlotWidth = 20000, kBoxWidth = 20;  // of the shortest action at least
constexpr double kDigitWidth = 6.6;                                              // of the labels' font

// Class Fa is forward of chunk 0, Fb that of further chunks, and so on.
constexpr std::string_view kStyle = R"(<style>
text { font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #4a515c }
.ground { fill: #ffffff } .title { font-size: 17px; font-weight: 600; fill: #1d2127 }
.idle { fill: #eceef1 } .axis { stroke: #9aa1ab }
rect { stroke: #ffffff; stroke-width: 1 } .ground, .idle { stroke: none }
.Fa { fill: #2f6fcd } .Fb { fill: #9dc0f2 } .Ba { fill: #1c8a5a } .Bb { fill: #8fd6b5 }
.Da { fill: #16808c } .Db { fill: #8fd3da } .Wa { fill: #c77a12 } .Wb { fill: #f0c88a }
.a { font-size: 11px; fill: #ffffff } .b { font-size: 11px; fill: #1d2127 }
@media (prefers-color-scheme: dark) {
text { fill: #aab2bd } .ground { fill: #14171c } .title { fill: #e8ebef }
.idle { fill: #232830 } .axis { stroke: #67707c } rect { stroke: #14171c }
.a { fill: #ffffff } .b { fill: #1d2127 }
}
</style>
)";

std::string text_at(double x, double y, std::string_view anchor, std::string_view text, std::string_view kind = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
                     kind.empty() ? "" : fmt::format(" class=\"{}\"", kind), text);
}

// The largest of 1, 2, 5, 10, 20, ... parts of the makespan that gives a tick every 70 pixels or so.
double tick_distance(double makespan, double plot_width) {
  const double least = 70 * makespan / plot_width, power = std::pow(10, std::floor(std::log10(least)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power >= least) return step * power;
  return 10 * power;
}

class Drawing {
 public:
  Drawing(const Pipeline& pipeline, const Timeline& timeline) : pipeline_(pipeline), timeline_(timeline) {
    const double shortest = shortest_action(timeline);
    const double digits = double(fmt::format("{}", num_micro_batches(timeline)).size());
    const double box = std::max(kBoxWidth, digits * kDigitWidth + 4);
    const double wanted = shortest > 0 ? timeline.makespan / shortest * box : 0;
    plot_width_ = std::clamp(wanted, kLeastPlotWidth, kMostPlotWidth);
  }

  std::string svg(const std::string& unit) const {
    const double width = kLeft + plot_width_ + kRightMargin, height = bottom() + kBelow;
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "role=\"img\">\n<title>{2}</title>\n{3}<rect class=\"ground\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n",
        width, height, headline(pipeline_, timeline_), kStyle);
    out += text_at(24, 32, "start", headline(pipeline_, timeline_), "title") + legend();
    for (size_t rank = 0; rank < timeline_.ranks.size(); ++rank) out += row(rank);
    return out + axis(unit) + "</svg>\n";
  }

 private:
  double x(double time) const { return kLeft + (timeline_.makespan > 0 ? time / timeline_.makespan * plot_width_ : 0); }
  double bottom() const { return kTop + kRowHeight * double(timeline_.ranks.size()); }

  std::string row(size_t rank) const {
    const double y = kTop + kRowHeight * double(rank);
    std::string out = text_at(kLeft - 12, y + 18, "end", fmt::format("rank {}", rank));
    out += fmt::format("<rect class=\"idle\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"/>\n", kLeft, y,
                       plot_width_, kBoxHeight);
    for (const TimedAction& t : timeline_.ranks[rank]) out += box(t, y);
    return out + text_at(kLeft + plot_width_ + 10, y + 18, "start",
                         fmt::format("{:.1f} %", 100 * timeline_.bubble_fraction(int(rank))));
  }

  // A label that does not fit is left out; the title, which browsers show, always says all.
  std::string box(const TimedAction& t, double y) const {
    const Action& a = t.action;
    const char shade = a.chunk == 0 ? 'a' : 'b';
    const double left = x(t.start), width = x(t.end) - left;
    std::string out = fmt::format(
        "<rect class=\"{}{}\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"><title>{}: {:.4g} to "
        "{:.4g}</title></rect>\n",
        char(a.what), shade, left, y, width, kBoxHeight, to_string(a), t.start, t.end);
    const std::string label = fmt::format("{}", a.micro_batch);
    if (double(label.size()) * kDigitWidth + 2 > width) return out;
    return out + text_at(left + width / 2, y + 17, "middle", label, std::string(1, shade));
  }

  std::string axis(const std::string& unit) const {
    std::string out = fmt::format("<line class=\"axis\" x1=\"{0}\" y1=\"{1}\" x2=\"{2:.1f}\" y2=\"{1}\"/>\n", kLeft,
                                  bottom() + 2, kLeft + plot_width_);
    if (timeline_.makespan > 0) {
      const double distance = tick_distance(timeline_.makespan, plot_width_);
      for (int i = 0; i * distance <= timeline_.makespan * (1 + 1e-9); ++i) {
        const double at = x(i * distance);
        out += fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n", at,
                           bottom() + 2, bottom() + 7);
        out += text_at(at, bottom() + 22, "middle", fmt::format("{:.6g}", i * distance));
      }
    }
    return out + text_at(kLeft + plot_width_ / 2, bottom() + 44, "middle", "time, " + unit) +
           text_at(kLeft + plot_width_ + 10, kTop - 10, "start", "bubble");
  }

  // Only what occurs.
  std::string legend() const {
    constexpr std::pair<Do, const char*> kinds[] = {
        {Do::forward, "forward"}, {Do::backward, "backward"}, {Do::dgrad, "dgrad"}, {Do::wgrad, "wgrad"}};
    std::string out;
    double left = 24;
    const auto entry = [&](const std::string& kind, const std::string& text) {
      out += fmt::format("<rect class=\"{}\" x=\"{:.0f}\" y=\"50\" width=\"22\" height=\"16\"/>\n", kind, left);
      out += text_at(left + 29, 63, "start", text);
      left += 29 + 7.0 * double(text.size()) + 22;
    };
    for (const auto& [what, name] : kinds) {
      if (!occurs(what)) continue;
      if (pipeline_.num_chunks == 1) {
        entry(fmt::format("{}a", char(what)), name);
        continue;
      }
      entry(fmt::format("{}a", char(what)), fmt::format("{}, chunk 0", name));
      entry(fmt::format("{}b", char(what)), pipeline_.num_chunks == 2 ? "chunk 1" : "further chunks");
    }
    entry("idle", "idle");
    return out;
  }

  bool occurs(Do what) const {
    return std::any_of(timeline_.ranks.begin(), timeline_.ranks.end(), [what](const auto& rank) {
      return std::any_of(rank.begin(), rank.end(), [what](const TimedAction& t) { return t.action.what == what; });
    });
  }

  const Pipeline& pipeline_;
  const Timeline& timeline_;
  double plot_width_;
};

}  // namespace

std::string draw_svg(const Pipeline& pipeline, const Timeline& timeline, const std::string& unit) {
  return Drawing(pipeline, timeline).svg(unit);
}

}  // namespace weft
