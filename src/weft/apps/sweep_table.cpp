// The table and the picture of a sweep.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>

#include "weft/apps/sweep_results.h"
#include "weft/records/loss_chart.h"
#include "weft/records/svg_parts.h"

namespace weft {
namespace {

// Of each trial of a stage the last rung that it came to; further ones first, of equals the best.
std::vector<TrialResult> last_results(const SweepTable& table, const std::string& stage) {
  std::map<int64_t, TrialResult> last;
  for (const TrialResult& r : table.results)
    if (r.stage == stage && (!last.contains(r.trial) || last[r.trial].rung <= r.rung)) last[r.trial] = r;
  std::map<int64_t, std::vector<TrialResult>, std::greater<>> by_rung;
  std::vector<TrialResult> failed, sorted;
  for (const auto& [trial, r] : last) (r.failed.empty() ? by_rung[r.rung] : failed).push_back(r);
  for (auto& [rung, results] : by_rung) {
    sort_by_metric(results);
    sorted.insert(sorted.end(), results.begin(), results.end());
  }
  sorted.insert(sorted.end(), failed.begin(), failed.end());
  return sorted;
}

std::string loss_text(const std::optional<double>& loss) { return loss ? fmt::format("{:.4f}", *loss) : "-"; }

std::string value_at(const SweepTable& table, const TrialResult& r, size_t key) {
  const std::string& setting = table.settings.at(size_t(r.trial - 1)).at(key);
  return setting.substr(table.keys.at(key).size() + 1);
}

std::string rows_text(const SweepTable& table, const std::string& stage) {
  const std::vector<TrialResult> results = last_results(table, stage);
  if (results.empty()) return "";
  std::vector<std::vector<std::string>> rows{{"trial", "steps", "held-out", "train"}};
  rows[0].insert(rows[0].end(), table.keys.begin(), table.keys.end());
  for (const TrialResult& r : results) {
    rows.push_back({std::to_string(r.trial), std::to_string(r.steps), loss_text(r.held_out), loss_text(r.train)});
    for (size_t k = 0; k < table.keys.size(); ++k) rows.back().push_back(value_at(table, r, k));
    if (!r.failed.empty()) rows.back().push_back("failed: " + r.failed);
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (size_t c = 0; c < widths.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text = stage == "draft" ? "on the draft:\n" : "at full size:\n";
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) line += fmt::format("{:<{}}  ", row[c], c < widths.size() ? widths[c] : 0);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// One plot, of what lies between its edges in pixels.
constexpr double kPlotWidth = 860, kPlotHeight = 300, kPlotLeft = 72, kPlotRight = 836, kPlotAbove = 40,
                 kPlotBelow = 56;

double place_in(double value, double low, double high, double from, double to) {
  return high > low ? from + (value - low) / (high - low) * (to - from) : (from + to) / 2;
}

std::vector<double> ticks_of(double low, double high, bool log) {
  if (high <= low) return {low};
  if (!log) return nice_ticks(low, high, 7);
  std::vector<double> ticks;
  for (double power = std::floor(low); power <= high; ++power)
    for (const double times : high - low > 3 ? std::vector<double>{1} : std::vector<double>{1, 2, 5})
      if (const double at = power + std::log10(times); at >= low && at <= high) ticks.push_back(at);
  return ticks.empty() ? std::vector<double>{low, high} : ticks;
}

struct KeyAxis {
  double low = 0, high = 0;
  bool log = false;
  std::vector<std::string> names = {};  // of values that are no numbers: they stand at 0, 1, 2 ...
};

std::optional<double> axis_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !std::isfinite(value)) return {};
  return value;
}

// Where the values of a key lie on its axis.
std::vector<double> places_of(const std::vector<std::string>& values, bool log, KeyAxis& axis) {
  const bool numbers =
      std::all_of(values.begin(), values.end(), [](const auto& v) { return axis_number(v).has_value(); });
  axis.log = log && numbers;
  std::vector<double> places;
  for (const std::string& v : values) {
    if (numbers) {
      places.push_back(axis.log ? std::log10(*axis_number(v)) : *axis_number(v));
      continue;
    }
    const auto at = std::find(axis.names.begin(), axis.names.end(), v);
    places.push_back(double(at - axis.names.begin()));
    if (at == axis.names.end()) axis.names.push_back(v);
  }
  const auto [low, high] = std::minmax_element(places.begin(), places.end());
  axis.low = *low, axis.high = *high;
  return places;
}

std::string axes_svg(const KeyAxis& x, double low, double high, double top, const std::string& key) {
  const double bottom = top + kPlotHeight - kPlotBelow, first = top + kPlotAbove;
  std::string out = svg_parts::svg_line("axis", kPlotLeft, bottom, kPlotRight, bottom);
  for (const double tick : ticks_of(low, high, false)) {
    const double y = place_in(tick, low, high, bottom - 12, first);
    out += svg_parts::svg_line("grid", kPlotLeft, y, kPlotRight, y) +
           svg_parts::svg_text(kPlotLeft - 10, y + 4.5, "end", fmt::format("{:.4g}", tick));
  }
  std::vector<double> ticks = ticks_of(x.low, x.high, x.log);
  if (!x.names.empty()) {
    ticks.clear();
    for (size_t i = 0; i < x.names.size(); ++i) ticks.push_back(double(i));
  }
  for (const double tick : ticks) {
    const double at = place_in(tick, x.low, x.high, kPlotLeft + 16, kPlotRight - 16);
    const std::string label =
        !x.names.empty() ? x.names[size_t(tick)] : fmt::format("{:.4g}", x.log ? std::pow(10, tick) : tick);
    out +=
        svg_parts::svg_line("axis", at, bottom, at, bottom + 5) + svg_parts::svg_text(at, bottom + 21, "middle", label);
  }
  return out + svg_parts::svg_text((kPlotLeft + kPlotRight) / 2, bottom + 42, "middle", key);
}

std::string plot_svg(const SweepTable& table, size_t key, const std::vector<TrialResult>& results, double top) {
  std::vector<std::string> values;
  std::vector<double> losses;
  const bool held_out = all_held_out(results);
  for (const TrialResult& r : results) {
    values.push_back(value_at(table, r, key));
    losses.push_back(held_out ? *r.held_out : r.train.value_or(0));
  }
  KeyAxis axis;
  const std::vector<double> places = places_of(values, table.log.at(key), axis);
  const auto [low, high] = std::minmax_element(losses.begin(), losses.end());
  std::string out = svg_parts::svg_text(24, top + 18, "start", held_out ? "held-out loss" : "train loss");
  out += axes_svg(axis, *low, *high, top, table.keys[key]);
  for (size_t i = 0; i < losses.size(); ++i)
    out += fmt::format("<circle class=\"dot\"{} r=\"5\" cx=\"{:.1f}\" cy=\"{:.1f}\"/>\n",
                       results[i].stage == "draft" ? " opacity=\"0.45\"" : "",
                       place_in(places[i], axis.low, axis.high, kPlotLeft + 16, kPlotRight - 16),
                       place_in(losses[i], *low, *high, top + kPlotHeight - kPlotBelow - 12, top + kPlotAbove));
  return out;
}

}  // namespace

std::string sweep_table_text(const SweepTable& table) {
  const std::string draft = rows_text(table, "draft"), full = rows_text(table, "full");
  return draft + (draft.empty() || full.empty() ? "" : "\n") + full;
}

std::string sweep_svg(const SweepTable& table, const std::string& title) {
  std::vector<TrialResult> results;
  for (const char* stage : {"draft", "full"})
    for (const TrialResult& r : last_results(table, stage))
      if (r.failed.empty()) results.push_back(r);
  const bool with_draft = !results.empty() && results[0].stage == "draft";
  constexpr double kTitle = 64;
  const double height = kTitle + (results.empty() ? 0 : kPlotHeight * double(table.keys.size()));
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n"
      "<title>{2}</title>\n{3}<rect class=\"ground\" width=\"{0}\" height=\"{1}\"/>\n",
      kPlotWidth, height, svg_parts::escaped(title), svg_parts::kSvgStyle);
  out += svg_parts::svg_text(24, 32, "start", title, "title");
  out += svg_parts::svg_text(24, 54, "start",
                             results.empty() ? "no trial has a result"
                             : with_draft    ? "a dot is a trial at the last step it came to; pale: on the draft"
                                             : "a dot is a trial at the last step it came to");
  for (size_t k = 0; k < table.keys.size() && !results.empty(); ++k)
    out += plot_svg(table, k, results, kTitle + kPlotHeight * double(k));
  return out + "</svg>\n";
}

}  // namespace weft
