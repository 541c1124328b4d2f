// Reports of runs as text and JSON.
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/forecast/layout_space.h"
#include "weft/forecast/run_report.h"

namespace weft {
namespace {

std::string ratio_text(double forecast, double measured) {
  if (!(measured > 0 && forecast > 0)) return "-";
  return fmt::format("{:+.1f} %", (forecast / measured - 1) * 100);
}

std::string line_of(const std::string& name, const std::string& forecast, const std::string& measured,
                    const std::string& error) {
  const std::string line = fmt::format("  {:<28}{:>14}{:>14}", name, forecast, measured);
  return line + (error.empty() ? "" : fmt::format("{:>11}", error)) + "\n";
}

std::string seconds_line(const std::string& name, double forecast, double measured) {
  return line_of(name, fmt::format("{:.5f}", forecast),
                 std::isnan(measured) ? "not recorded" : fmt::format("{:.5f}", measured),
                 ratio_text(forecast, measured));
}

nlohmann::json number_or_null(double x) { return std::isnan(x) ? nlohmann::json() : nlohmann::json(x); }

// Of few steps the slowest: one in ten is none of them.
std::string slow_text(const RunMeasured& m) {
  return m.counted > 10 ? fmt::format("more than {:.5f} s one time in ten", m.p90_s)
                        : fmt::format("{:.5f} s at most", m.p90_s);
}

double model_flops_part(const RunReport& r) {
  return r.forecast.work.arithmetic.model_flops / r.measured.step_s / r.forecast.peak_flops;
}

std::string gained_text(const RunReport& r) {
  if (r.gained.empty()) return "";
  std::string text = fmt::format("\nwhat a point of a benchmark (a hundredth) cost, at {:g} a device and hour\n",
                                 r.forecast.cluster.price_per_device_hour);
  for (const RunReport::Gained& g : r.gained)
    text += fmt::format("  {:<28} steps {} to {}: {:.4f} to {:.4f}, {:.4g} for {:+.2f}{} points: {}\n", g.result,
                        g.from_step, g.to_step, g.from, g.to, g.price, g.points(),
                        g.error > 0 ? fmt::format(" +- {:.2f}", 100 * g.error) : "",
                        g.is_sure() ? fmt::format("{:.4g} a point", g.price / g.points()) : "no gain that is sure");
  return text;
}

// The layouts that the run had before.
std::string before_text(const RunReport& r) {
  if (r.measured.first_step == 1) return "";
  std::string text = fmt::format("in this layout since step {}, of which all else here is", r.measured.first_step);
  text += r.before.empty() ? "\n\n" : "; before it\n";
  for (const StretchMeans& m : r.before)
    text += fmt::format("  steps {} to {} on {} rank{}{}: {:.5f} s a step, {:.0f} tokens/s (means of {})\n",
                        m.stretch.first_step, m.last_step, m.stretch.ranks, m.stretch.ranks == 1 ? "" : "s",
                        m.stretch.layout.empty() ? ", as it began" : ": " + m.stretch.layout, m.step_s, m.tokens_per_s,
                        m.counted);
  return r.before.empty() ? text : text + "\n";
}

}  // namespace

std::string to_string(const RunReport& r) {
  const RunForecast& f = r.forecast;
  const RunMeasured& m = r.measured;
  std::string text = fmt::format(
      "{}: {} of {} steps; on {} {}: {}\nmeans of {} steps, which took {:.5f} s in the middle and {}; forecast on "
      "{}\n\n",
      r.folder, m.last_step, r.recipe.train.train_iters, f.num_devices(), f.num_devices() > 1 ? "ranks" : "rank",
      to_string(choice_of(r.recipe)), m.counted, m.median_s, slow_text(m), f.cluster.device.name);
  text += before_text(r);
  text += line_of("of a step, seconds", "forecast", "measured", "off by");
  for (const RunReport::Part& p : r.parts) text += seconds_line(p.name, p.forecast_s, p.measured_s);
  text += seconds_line("the step", f.step.step_s, m.step_s);
  const double tokens_per_s = f.work.tokens / m.step_s;
  text += line_of("tokens/s", fmt::format("{:.0f}", f.tokens_per_s()), fmt::format("{:.0f}", tokens_per_s),
                  ratio_text(f.tokens_per_s(), tokens_per_s));
  text +=
      line_of("MFU", fmt::format("{:.1f} %", f.mfu() * 100), fmt::format("{:.1f} %", model_flops_part(r) * 100), "");
  text += line_of("memory of a rank, MiB", fmt::format("{:.1f}", double(f.memory_bytes()) / (1 << 20)),
                  fmt::format("{:.1f}", double(m.memory_bytes) / (1 << 20)),
                  ratio_text(double(f.memory_bytes()), double(m.memory_bytes)));
  if (const Recipe::Checkpoint& c = r.recipe.checkpoint;
      m.saves > 0 && !c.async_save && c.local_interval == 0) {  // those beside steps have no time of their own
    const double each = m.save_s * double(m.counted) / double(m.saves);
    text += seconds_line("a checkpoint", f.save_s(), each);
  }
  if (!m.has_data) text += "  the records do not say what reading samples took: it counts as computing\n";
  text += fmt::format("\nwhat bound the run, of {:.5f} s a step with what is between steps\n", r.wall_s);
  for (const RunReport::Cause& c : r.causes)
    text += fmt::format("  {:<28}{:>9.1f} %{:>12.5f} s{}{}\n", c.name, c.seconds / r.wall_s * 100, c.seconds,
                        c.note.empty() ? "" : "   ", c.note);
  text += r.change.empty()
              ? "\nno one change is forecast to make it faster\n"
              : fmt::format("\nthe one change that gains most, {:.1f} % of the run: {}\n", r.gain * 100, r.change);
  return text + gained_text(r);
}

nlohmann::json to_json(const RunReport& r) {
  const RunMeasured& m = r.measured;
  nlohmann::json json{{"run", r.folder},
                      {"last_step", m.last_step},
                      {"steps", r.recipe.train.train_iters},
                      {"layout", to_string(choice_of(r.recipe))},
                      {"forecast", to_json(r.forecast, 0)},
                      {"measured",
                       {{"counted_steps", m.counted},
                        {"step_s", m.step_s},
                        {"median_step_s", m.median_s},
                        {"p90_step_s", m.p90_s},
                        {"tokens_per_s", r.forecast.work.tokens / m.step_s},
                        {"mfu", model_flops_part(r)},
                        {"memory_bytes", m.memory_bytes},
                        {"busiest_expert_rank", m.busiest_load},
                        {"saves", m.saves}}},
                      {"wall_s_per_step", r.wall_s}};
  for (const RunReport::Part& p : r.parts)
    json["parts"][p.name] = {{"forecast_s", p.forecast_s}, {"measured_s", number_or_null(p.measured_s)}};
  for (const RunReport::Cause& c : r.causes)
    json["bound_by"].push_back(
        {{"what", c.name}, {"seconds", c.seconds}, {"part", c.seconds / r.wall_s}, {"note", c.note}});
  for (const RunReport::Gained& g : r.gained)
    json["gained"].push_back(
        {{"result", g.result},
         {"from_step", g.from_step},
         {"to_step", g.to_step},
         {"from", g.from},
         {"to", g.to},
         {"standard_error", g.error},
         {"price", g.price},
         {"price_per_point", g.is_sure() ? nlohmann::json(g.price / g.points()) : nlohmann::json()}});
  json["change"] = r.change.empty() ? nlohmann::json() : nlohmann::json{{"what", r.change}, {"gain", r.gain}};
  json["since_step"] = m.first_step;
  json["before"] = nlohmann::json::array();
  for (const StretchMeans& b : r.before)
    json["before"].push_back({{"first_step", b.stretch.first_step},
                              {"last_step", b.last_step},
                              {"ranks", b.stretch.ranks},
                              {"layout", b.stretch.layout},
                              {"counted", b.counted},
                              {"step_s", b.step_s},
                              {"tokens_per_s", b.tokens_per_s}});
  return json;
}

std::string to_string(const RunScaling& scaling) {
  const bool forecast = scaling.rows.front().forecast_s > 0;
  std::string text = fmt::format("{:>8} {:>12} {:>10} {:>12} {:>9} {:>11}", "devices", "tokens/step", "step s",
                                 "tokens/s", "speed-up", "efficiency");
  text += fmt::format("{} {:<7} run, layout\n", forecast ? fmt::format(" {:>9}", "forecast") : "", "scaling");
  for (const RunScaling::Row& r : scaling.rows) {
    text += fmt::format("{:>8} {:>12.0f} {:>10.4f} {:>12.0f} {:>9.2f} {:>9.1f} %", r.devices, r.tokens, r.step_s,
                        r.tokens_per_s(), r.speedup, r.efficiency * 100);
    if (forecast) text += fmt::format(" {:>7.1f} %", r.forecast_efficiency * 100);
    text += fmt::format(" {:<7} {}, {}\n", r.kind, r.folder, r.layout);
  }
  return text;
}

nlohmann::json to_json(const RunScaling& scaling) {
  nlohmann::json json = nlohmann::json::array();
  for (const RunScaling::Row& r : scaling.rows) {
    json.push_back({{"run", r.folder},
                    {"devices", r.devices},
                    {"layout", r.layout},
                    {"tokens_per_step", r.tokens},
                    {"step_s", r.step_s},
                    {"tokens_per_s", r.tokens_per_s()},
                    {"speedup", r.speedup},
                    {"efficiency", r.efficiency},
                    {"scaling", r.kind}});
    if (r.forecast_s > 0)
      json.back().update({{"forecast_step_s", r.forecast_s}, {"forecast_efficiency", r.forecast_efficiency}});
  }
  return json;
}

}  // namespace weft
