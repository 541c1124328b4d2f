// weft bench forecast: a step as it is forecast on a measured machine, beside steps that are run there.
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/bench_machine.h"
#include "weft/apps/bench_run.h"
#include "weft/apps/launch.h"
#include "weft/apps/launcher.h"
#include "weft/apps/ranks.h"
#include "weft/base/error.h"
#include "weft/comm/timed.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/forecast.h"
#include "weft/forecast/run_report.h"
#include "weft/ops/traced.h"
#include "weft/plan/layout_plan.h"
#include "weft/records/clock.h"
#include "weft/train/room.h"

namespace weft {
namespace {

// What rank 0 saw.
struct MeasuredSteps {
  std::vector<double> steps_s;             // of each step after the first
  std::map<std::string, OpWork> ops = {};  // of one more, by name
  CommTimes waits = {};                    // of that one
  double traced_s = 0;
  double median_s() const {
    std::vector<double> sorted = steps_s;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

MeasuredSteps run_steps(const Recipe& recipe, const Machine& machine, const RankProcess& process, int64_t iters) {
  MeasuredSteps measured;
  process.run(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
    const int rank = mesh.world->rank();
    CommTimes waits;
    Machine mine = machine.of_rank(rank);
    mine.join = [join = mine.join, &waits](const ProcessMesh& host) {
      return timed(join(host), waits, {.now_s = now_s});
    };
    BenchRun run(recipe, mine, plan_run(recipe, *machine.workspace_model, rank), mesh);
    Traced traced(run.rank.backend, [] { return int64_t(now_s() * 1e9); });
    run.step(traced);  // warms up, and counts the ops
    barrier(*mesh.world);
    std::vector<double> steps;
    for (int64_t i = 0; i < iters; ++i) {
      const double began = now_s();
      run.step(run.rank.backend);
      steps.push_back(now_s() - began);
    }
    Traced again(
        run.rank.backend, [] { return int64_t(now_s() * 1e9); }, traced.num_recorded() + 1);
    for (auto& [axis, time] : waits) time = {};
    barrier(*mesh.world);
    const double began = now_s();
    run.step(again);
    const double took = now_s() - began;
    if (rank != 0) return;
    measured = {.steps_s = steps, .ops = {}, .waits = waits, .traced_s = took};
    for (const TraceEvent& e : again.events()) {
      OpWork& op = measured.ops[std::string(e.op)];
      ++op.count;
      op.seconds += double(e.end_ns - e.start_ns) * 1e-9;
    }
  });
  return measured;
}

// A line of the table: what a part of the step was forecast to take, and took on rank 0.
struct PartBeside {
  std::string name;
  int64_t forecast_count = 0, count = 0;  // of ops
  double forecast_s = 0, measured_s = 0;
};

std::vector<PartBeside> parts_beside(const RunForecast& forecast, const std::map<std::string, OpWork>& ops,
                                     const MeasuredSteps& measured) {
  std::map<std::string, PartBeside> parts;
  double in_parts = 0;
  for (const auto& [name, op] : ops) parts[name].forecast_count = op.count, parts[name].forecast_s = op.seconds;
  for (const auto& [name, op] : measured.ops) parts[name].count = op.count, parts[name].measured_s = op.seconds;
  for (const auto& [axis, seconds] : forecast.step.exposed_s) parts[transfer_part(axis)].forecast_s += seconds;
  for (const auto& [axis, time] : measured.waits)
    if (time.calls > 0) parts[transfer_part(axis)].measured_s += time.blocked_s;
  parts[transfer_part("pp")].forecast_s += forecast.step.bubble_s;
  std::vector<PartBeside> all;
  for (auto& [name, part] : parts) {
    part.name = name;
    in_parts += part.measured_s;
    if (part.forecast_s > 0 || part.measured_s > 0) all.push_back(part);
  }
  all.push_back({.name = "between ops", .measured_s = std::max(0.0, measured.traced_s - in_parts)});
  std::stable_sort(all.begin(), all.end(), [](const PartBeside& a, const PartBeside& b) {
    return std::max(a.forecast_s, a.measured_s) > std::max(b.forecast_s, b.measured_s);
  });
  return all;
}

std::string text_of(const RunForecast& forecast, const MeasuredSteps& measured, const std::vector<PartBeside>& parts) {
  const double median = measured.median_s(), step = forecast.step.step_s;
  const auto [least, most] = std::minmax_element(measured.steps_s.begin(), measured.steps_s.end());
  std::string text = fmt::format(
      "forecast {:.2f} ms, measured {:.2f} ms (median of {} steps of {:.2f} to {:.2f}): {:+.1f} %\n\n", step * 1e3,
      median * 1e3, measured.steps_s.size(), *least * 1e3, *most * 1e3, (step / median - 1) * 100);
  text += fmt::format("{:<24} {:>9} {:>12} {:>12} {:>8} {:>9}\n", "on rank 0", "ops", "forecast ms", "measured ms",
                      "ratio", "of error");
  for (const PartBeside& p : parts) {
    const std::string count =
        p.count == p.forecast_count ? fmt::format("{}", p.count) : fmt::format("{}, ran {}", p.forecast_count, p.count);
    text += fmt::format("{:<24} {:>9} {:>12.3f} {:>12.3f} {:>8} {:>+8.1f}%\n", p.name, count == "0" ? "" : count,
                        p.forecast_s * 1e3, p.measured_s * 1e3,
                        p.measured_s > 0 ? fmt::format("{:.2f}", p.forecast_s / p.measured_s) : "-",
                        (p.forecast_s - p.measured_s) / median * 100);
  }
  return text;
}

nlohmann::json json_of(const RunForecast& forecast, const MeasuredSteps& measured,
                       const std::vector<PartBeside>& parts) {
  nlohmann::json json{{"forecast_s", forecast.step.step_s},
                      {"measured_s", measured.median_s()},
                      {"steps_s", measured.steps_s},
                      {"ranks", forecast.num_devices()}};
  for (const PartBeside& p : parts)
    json["parts"][p.name] = {{"forecast_count", p.forecast_count},
                             {"count", p.count},
                             {"forecast_s", p.forecast_s},
                             {"measured_s", p.measured_s}};
  return json;
}

int forecast_beside_run(const BenchOptions& o, Recipe recipe, const RankProcess& process) {
  const ClusterSpec cluster = read_cluster(o.cluster);
  if (cluster.measured.empty())
    throw ConfigError(
        fmt::format("{} says nothing that was measured; what works: a file of `weft bench machine`", o.cluster));
  const HfConfig config = read_hf_config(recipe.model.path);
  const RunForecast forecast = forecast_run(recipe, config, cluster, Profiles::built_in());
  const Machine machine = machine_for(recipe, int(process.here.size()));
  if (process.here.empty()) {
    const LayoutPlan plan = plan_layout(recipe, *machine.workspace_model);
    require_room(machine, plan);
    require_host_room(recipe, plan, machine);
  }
  const MeasuredRanks& with = *measured_of(cluster, forecast.num_devices());
  if (machine.threads != with.threads)
    throw ConfigError(fmt::format("a rank has {} threads here, and had {} where {} was measured", machine.threads,
                                  with.threads, o.cluster));
  const RunPlan first = forecast_plan(recipe, config);
  const SyntheticTokens tokens(recipe, first.model.vocab_size);
  const MeasuredSteps measured = run_steps(recipe, machine, process, o.iters);
  if (!process.leads()) return kExitOk;
  const auto parts = parts_beside(forecast, work_by_op(first, cluster), measured);
  if (o.json)
    std::cout << json_of(forecast, measured, parts).dump() << "\n";
  else
    std::cout << text_of(forecast, measured, parts);
  return kExitOk;
}

Recipe checked_recipe(const BenchOptions& o, const Launched& launched) {
  if (o.recipe.empty() || o.cluster.empty())
    throw ConfigError(
        "bench forecast needs a recipe and a cluster's file, as in `weft bench forecast r.toml --cluster "
        "machine.toml`");
  if (!o.layouts.empty() || !o.trace.empty() || o.ops || o.backend || o.precision || o.threads || o.tokens)
    throw ConfigError("bench forecast takes a recipe, --cluster, --iters and --json alone; a recipe says its layout");
  const Recipe recipe = first_steps_of(read_recipe(o.recipe, o.overrides, launched.rank == 0), launched.rank == 0);
  check_supported(recipe);
  check_launch(recipe, mesh_sizes_of(recipe).world(), launched);
  return recipe;
}

}  // namespace

int bench_forecast(const BenchOptions& o) {
  const Launched launched = launched_as(environment);
  Recipe recipe;
  try {
    recipe = checked_recipe(o, launched);
  } catch (const Error&) {
    if (launched.rank == 0) throw;
    let_the_first_rank_speak(launched.rank);
    return kExitUsage;
  }
  const int world = mesh_sizes_of(recipe).world();
  if (recipe.run.ranks != RanksKind::mpi) return forecast_beside_run(o, recipe, {});
  check_mpi_is_built_in();
  if (launched.by.empty())
    return run_ranks_by_mpirun({.ranks = world,
                                .command = this_command(),
                                .launched = launched,
                                .start_timeout_s = 60 * recipe.run.start_timeout_minutes});
  const RankProcess process = join_mpi(world, recipe.run, "bench");
  return run_as_rank(process, "bench", [&] { return forecast_beside_run(o, recipe, process); });
}

}  // namespace weft
