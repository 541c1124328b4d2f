#include "weft/forecast/run_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/error.h"
#include "weft/forecast/layout_planner.h"

namespace weft {
namespace {

constexpr double kNotRecorded = std::numeric_limits<double>::quiet_NaN();
constexpr const char *kStages = "exposed pp and bubble", *kAsForecast = "its part of computing as forecast";

// The rows of a rank of ep beside the mean: experts are dealt out in their order.
std::pair<double, double> loads_of(const StepRecord& step, int64_t ep) {
  double first = 0, busiest = 0, all = 0;
  for (const std::vector<int64_t>& layer : step.expert_load) {
    std::vector<double> ranks(size_t(ep), 0.0);
    for (size_t e = 0; e < layer.size(); ++e) ranks[e * size_t(ep) / layer.size()] += double(layer[e]);
    first += ranks[0];
    busiest += *std::max_element(ranks.begin(), ranks.end());
    for (const double rows : ranks) all += rows / double(ep);
  }
  return all > 0 ? std::pair{first / all, busiest / all} : std::pair{1.0, 1.0};
}

double exposed_beside_stages(const StepForecast& step) {
  double sum = 0;
  for (const auto& [axis, seconds] : step.exposed_s)
    if (transfer_part(axis) != kStages) sum += seconds;
  return sum;
}

double seconds_in(const StepForecast& step, std::initializer_list<WorkClass> classes) {
  double sum = 0;
  for (const WorkClass c : classes) sum += step.compute_s[size_t(c)];
  return sum;
}
double grouped_s(const StepForecast& step) { return seconds_in(step, {WorkClass::grouped, WorkClass::grouped8}); }

void add_parts(RunReport& report) {
  const StepForecast& f = report.forecast.step;
  const RunMeasured& m = report.measured;
  std::map<std::string, double> transfers;
  for (const auto& [axis, seconds] : f.exposed_s) transfers[transfer_part(axis)] += seconds;
  if (f.bubble_s > 0) transfers[kStages] += f.bubble_s;
  double waits = 0;
  for (const auto& [name, seconds] : m.waits_s) transfers[name] += 0, waits += seconds;
  const double computing = f.compute() + f.launch_s + f.slowdown_s;
  report.parts.push_back({"computing", computing, m.has_waits ? m.step_s - m.data_s - waits : kNotRecorded});
  for (const auto& [name, seconds] : transfers) {
    const auto measured = m.waits_s.find(name);
    report.parts.push_back({name, seconds,
                            !m.has_waits                  ? kNotRecorded
                            : measured == m.waits_s.end() ? 0
                                                          : measured->second});
  }
  report.parts.push_back({"reading samples", 0, m.has_data ? m.data_s : kNotRecorded});
}

// What a step's time without its data was waited, and computed.
struct Waited {
  double computing, transfers, bubble, late;
};
Waited waited_of(const RunMeasured& m, const StepForecast& f) {
  const double rest = m.step_s - m.data_s, whole = std::max(f.step_s, 1e-12);
  if (!m.has_waits) {
    const double transfers = rest * f.exposed() / whole, bubble = rest * f.bubble_s / whole;
    return {rest - transfers - bubble, transfers, bubble, 0};
  }
  Waited w{rest, 0, 0, 0};
  const double messages = f.exposed() - exposed_beside_stages(f);
  for (const auto& [name, seconds] : m.waits_s) {
    w.computing -= seconds;
    const double idle = name == kStages && f.bubble_s > 0 ? seconds * f.bubble_s / (f.bubble_s + messages) : 0;
    w.bubble += idle;
    if (name == kStages)
      w.transfers += seconds - idle;
    else
      w.late += seconds;
  }
  const double beside = std::min(w.late, exposed_beside_stages(f));
  w.transfers += beside;
  w.late -= beside;
  return w;
}

void add_causes(RunReport& report) {
  const RunMeasured& m = report.measured;
  const StepForecast& f = report.forecast.step;
  const Waited w = waited_of(m, f);
  const double memory = seconds_in(f, {WorkClass::memory, WorkClass::scores, WorkClass::casts, WorkClass::update});
  const double whole = std::max(f.compute() + f.launch_s + f.slowdown_s, 1e-12), each = w.computing / whole;
  const double uneven = m.first_load > 1 ? each * grouped_s(f) * (1 - 1 / m.first_load) : 0;
  const std::string waits = m.has_waits ? "" : "its part of a step as forecast: the run did not record waits";
  auto& all = report.causes;
  all.push_back({"compute", each * (f.compute() - memory) - uneven, kAsForecast});
  all.push_back({"memory bandwidth", each * memory, kAsForecast});
  all.push_back({"time between kernels", each * f.launch_s, kAsForecast});
  all.push_back({"exposed communication", w.transfers + each * f.slowdown_s, waits});
  all.push_back({"bubble", w.bubble, !waits.empty() ? waits : "its part of waits for stages as forecast"});
  std::string late = "waits beyond the forecast: for ranks that are late, or slower links";
  if (m.busiest_load > 1.005)
    late += fmt::format("; the busiest rank of ep has {:.2f} x the mean rows of experts", m.busiest_load);
  all.push_back({"imbalance", w.late + uneven, late});
  all.push_back({"data", m.data_s});
  all.push_back({"checkpoints", m.save_s, fmt::format("beside {} of {} steps", m.saves, m.counted)});
  all.push_back({"evaluation", m.eval_s});
  for (const auto& cause : all) report.wall_s += cause.seconds;
  std::erase_if(all, [](const RunReport::Cause& c) { return c.seconds <= 0; });
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
}

// Of layouts that differ in one setting, and of saves half as often.
void add_change(RunReport& report, LayoutPlanner& planner, double reserve_bytes) {
  const RunForecast& f = report.forecast;
  const Recipe& recipe = report.recipe;
  const FoundLayout now{.layout = choice_of(recipe), .step = f.step, .memory_bytes = f.memory_bytes()};
  const double room = std::max(f.cluster.device.memory_bytes - reserve_bytes, double(f.memory_bytes()));
  if (const auto best = best_neighbour(now, planner, room)) {
    report.gain = (1 - best->found.step.step_s / now.step.step_s) * report.measured.step_s / report.wall_s;
    report.change = fmt::format(
        "{}, as forecast, of {:.4g} s; the layout: {}{}", best->text, now.step.step_s, to_string(best->found.layout),
        best->key == "micro_batch_size" ? "; for a new run: train.micro_batch_size may not change in this one" : "");
  }
  const double saves = report.measured.save_s / 2 / report.wall_s;
  if (saves <= report.gain || recipe.checkpoint.save_interval == 0) return;
  report.gain = saves;
  report.change = fmt::format("checkpoint.save_interval = {}: saves half as often, which take {:.1f} % of the run now",
                              2 * recipe.checkpoint.save_interval, 200 * saves);
}

constexpr const char* kErrorSuffix = "_stderr";

double result_of(const TasksRecord& record, const std::string& name) {
  for (const auto& [known, value] : record.results)
    if (known == name) return value;
  return kNotRecorded;
}

void add_gained(RunReport& report, const Metrics& metrics) {
  const ClusterSpec& cluster = report.forecast.cluster;
  const std::vector<TasksRecord>& all = metrics.tasks;
  if (cluster.price_per_device_hour <= 0 || all.size() < 2) return;
  const double price_per_s = cluster.price_per_device_hour / 3600 * report.forecast.num_devices();
  const auto add = [&](const std::string& result, const TasksRecord& from, const TasksRecord& to) {
    RunReport::Gained g{.result = result, .from_step = from.step, .to_step = to.step};
    g.from = result_of(from, result);
    g.to = result_of(to, result);
    if (!std::isfinite(g.from) || !std::isfinite(g.to)) return;
    const double before = result_of(from, result + kErrorSuffix), after = result_of(to, result + kErrorSuffix);
    if (std::isfinite(before) && std::isfinite(after)) g.error = std::hypot(before, after);
    for (const StepRecord& s : metrics.steps)
      if (s.step > from.step && s.step <= to.step) g.price += (s.step_time_s + s.eval_s + s.save_s) * price_per_s;
    report.gained.push_back(g);
  };
  for (const auto& [name, value] : all.back().results) {
    if (name.ends_with(kErrorSuffix)) continue;
    add(name, all.front(), all.back());
    if (all.size() > 2) add(name, all[all.size() - 2], all.back());
  }
}

}  // namespace

std::string transfer_part(const std::string& axis) {
  for (const char* data : {"dp", "dp_cp", "shards", "replicas", "edp", "expert_shards", "expert_replicas",
                           "frozen_shards", "frozen_expert_shards"})
    if (axis == data) return "exposed data";
  return axis.starts_with("pp") ? kStages : "exposed " + axis;
}

double tokens_of_step(const Recipe& r, const StepRecord& s) {
  const int64_t batch = s.phase ? s.phase->global_batch_size : r.train.global_batch_size;
  const int64_t length = s.phase ? s.phase->seq_length : r.train.seq_length;
  return double(batch) * double(length) * double(sequences_of_sample(r));
}

RunMeasured measured_steps(const RecordedRun& run) {
  const std::vector<StepRecord>& all = run.metrics.steps;
  if (all.empty())
    throw ConfigError(
        fmt::format("{}: the run has trained no step yet; a report needs one, and better ten", run.folder));
  const int64_t since = run.stretches.empty() ? 1 : run.stretches.back().first_step;
  size_t first = 0;
  while (first < all.size() && all[first].step < since) ++first;
  if (first == all.size())
    throw ConfigError(fmt::format(
        "{}: the run has trained no step yet in the layout that it has since step {}; a report needs one, and better "
        "ten",
        run.folder, since));
  first += all.size() > first + 1 ? 1 : 0;
  RunMeasured m{.last_step = all.back().step, .counted = int64_t(all.size() - first), .first_step = since};
  const double each = 1.0 / double(m.counted);
  std::vector<double> steps;
  bool waits = false;
  for (size_t i = first; i < all.size(); ++i) {
    const StepRecord& r = all[i];
    if (!(r.step_time_s > 0 && std::isfinite(r.step_time_s)))
      throw ConfigError(fmt::format("{}: metrics.jsonl says no step_time_s of step {}", run.folder, r.step));
    steps.push_back(r.step_time_s);
    m.step_s += r.step_time_s * each;
    m.tokens += tokens_of_step(run.recipe, r) * each;
    m.data_s += r.data_s * each;
    m.eval_s += r.eval_s * each;
    m.save_s += r.save_s * each;
    m.saves += r.save_s > 0;
    m.has_data = m.has_data || r.data_s > 0;
    m.memory_bytes = std::max(m.memory_bytes, r.memory_bytes);
    waits = waits || !r.waits_s.empty();
    for (const auto& [axis, seconds] : r.waits_s) m.waits_s[transfer_part(axis)] += seconds * each;
  }
  std::sort(steps.begin(), steps.end());
  m.median_s = steps[steps.size() / 2];
  m.p90_s = steps[steps.size() * 9 / 10];
  m.has_waits = waits || mesh_sizes_of(run.recipe).world() == 1;
  if (run.recipe.parallel.ep > 1) std::tie(m.first_load, m.busiest_load) = loads_of(all.back(), run.recipe.parallel.ep);
  return m;
}

RunReport report_of(const RecordedRun& run, const ClusterSpec& cluster, const Profiles& profiles,
                    double reserve_bytes) {
  RunReport report{.folder = run.folder,
                   .recipe = run.recipe,
                   .measured = measured_steps(run),
                   .forecast = forecast_run(run.recipe, run.config, cluster, profiles),
                   .before = means_before(run)};
  add_parts(report);
  add_causes(report);
  LayoutPlanner planner(run.recipe, run.config, cluster, profiles);
  add_change(report, planner, reserve_bytes);
  add_gained(report, run.metrics);
  return report;
}

namespace {
// But for what the sum of a mean rounds.
bool is_near(double a, double b) { return std::abs(a - b) <= 1e-9 * b; }
}  // namespace

RunScaling scaling_of(const std::vector<RecordedRun>& runs, const ClusterSpec* cluster, const Profiles& profiles) {
  RunScaling scaling;
  const auto shape = [](const RecordedRun& run) {
    const ModelSpec& m = run.config.spec;
    return std::tuple(m.family, m.vocab_size, m.width, m.num_layers, m.num_heads, m.ffn_width,
                      run.recipe.train.seq_length, run.recipe.train.precision);
  };
  for (const RecordedRun& run : runs) {
    if (shape(run) != shape(runs[0]))
      throw ConfigError(fmt::format(
          "{} and {}: scaling is of runs of one model with one train.seq_length and train.precision; report "
          "each by itself",
          runs[0].folder, run.folder));
    if (cluster != nullptr) require_priced(run.recipe);
    const Recipe& r = run.recipe;
    RunScaling::Row row{.folder = run.folder, .layout = to_string(choice_of(r))};
    row.devices = mesh_sizes_of(r).world();
    const RunMeasured measured = measured_steps(run);
    row.tokens = measured.tokens;
    row.step_s = measured.step_s;
    if (cluster != nullptr) row.forecast_s = forecast_run(r, run.config, *cluster, profiles).step.step_s;
    scaling.rows.push_back(std::move(row));
  }
  std::stable_sort(scaling.rows.begin(), scaling.rows.end(),
                   [](const auto& a, const auto& b) { return a.devices < b.devices; });
  const RunScaling::Row first = scaling.rows.front();
  for (RunScaling::Row& row : scaling.rows) {
    const double times = double(row.devices) / double(first.devices);
    row.speedup = row.tokens_per_s() / first.tokens_per_s();
    row.efficiency = row.speedup / times;
    row.kind = row.devices == first.devices                ? ""
               : is_near(row.tokens, first.tokens)         ? "strong"
               : is_near(row.tokens, first.tokens * times) ? "weak"
                                                           : "";
    if (cluster != nullptr)
      row.forecast_efficiency = row.tokens / row.forecast_s / (first.tokens / first.forecast_s) / times;
  }
  return scaling;
}

}  // namespace weft
