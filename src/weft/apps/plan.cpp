#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/data_lines.h"
#include "weft/apps/unequal_recipe.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/forecast.h"
#include "weft/forecast/scaling.h"
#include "weft/forecast/unequal_forecast.h"
#include "weft/plan/phase_plans.h"
#include "weft/plan/step_data.h"
#include "weft/schedule/draw.h"
#include "weft/schedule/shares.h"
#include "weft/train/run_data.h"
#include "weft/train/run_length.h"

namespace weft {
namespace {

constexpr int kColumns = 120;
constexpr const char* kTimeUnit = "in forwards of one virtual stage; dgrad and wgrad take as long";
constexpr int64_t kMostPasses = 1 << 20;  // of micro-batches through chunks of the model, in a picture

// A step of all stages, where forward, dgrad and wgrad of every virtual stage take the same time.
struct ShownSchedule {
  Pipeline pipeline;
  std::vector<Schedule> schedules;
  Timeline timeline;
};

ShownSchedule show_schedule(const Recipe& recipe) {
  const auto& p = recipe.parallel;
  const int64_t m = num_micro_batches_of(recipe);
  const int64_t most = kMostPasses / std::max(m, 2 * p.pp);  // schedules are made for 2 pp micro-batches at least
  const Pipeline one = make_pipeline(p.pipeline_schedule, 1, int(p.virtual_pipeline_parallel_size));
  if (p.pp > most / one.num_chunks) {
    throw ConfigError(
        fmt::format("{} stages of {} chunks with {} micro-batches are too many to show", p.pp, one.num_chunks, m));
  }
  ShownSchedule shown{.pipeline = pipeline_of(recipe), .schedules = {}, .timeline = {}};
  shown.schedules = schedules_of(shown.pipeline, m);
  shown.timeline = simulate(shown.pipeline, shown.schedules, uniform_times(shown.pipeline, 1, 1, 1));
  return shown;
}

// What the actions of the largest rank move, where the model has this layout.
std::string moves_in(const Recipe& recipe) {
  try {
    check_supported(recipe);
    const Machine machine = machine_to_plan_for(recipe);
    const std::vector<PlannedSpan> phases = plan_phases(recipe, *machine.workspace_model);
    const LayoutPlan& plan = *largest_of(phases).layout;
    return fmt::format("what the actions of rank {} move:\n{}", plan.classes[0].rank,
                       moves_of(step_data_of(plan.run, *machine.workspace_model)));
  } catch (const ConfigError& e) { return fmt::format("what the actions move is not known: {}\n", e.what()); }
}

// To `json`; without one, printed, with what the actions move.
void add_schedule(const Recipe& recipe, const ShownSchedule& shown, nlohmann::json* json) {
  for (size_t stage = 0; stage < shown.schedules.size(); ++stage) {
    const std::string text = to_string(shown.schedules[stage]);
    if (json)
      (*json)["schedule"].push_back(text);
    else
      std::cout << fmt::format("schedule of stage {}: {}\n", stage, text);
  }
  if (!json) std::cout << "\n" << draw_text(shown.pipeline, shown.timeline, kColumns) << "\n" << moves_in(recipe);
}

nlohmann::json json_of(const RankClass& c) {
  nlohmann::json json{{"rank", c.rank},
                      {"num_ranks", c.num_ranks},
                      {"stages", c.stages},
                      {"tp_ranks", c.tp_ranks},
                      {"total_bytes", c.plan.total_bytes()},
                      {"communication", nlohmann::json::array()}};
  for (const auto& row : c.plan.rows())
    json["memory"][row.name] = {{"count", row.count}, {"bytes_each", row.bytes_each}, {"bytes", row.bytes()}};
  for (const auto& [what, count] : c.plan.traffic.counts())
    json["communication"].push_back(
        {{"axis", what.first}, {"kind", name_of(what.second)}, {"calls", count.calls}, {"bytes_sent", count.bytes}});
  return json;
}

nlohmann::json json_of(const RecomputeChoice& c) {
  nlohmann::json json{{"budget_bytes", c.budget}, {"stages", nlohmann::json::array()}};
  for (const RecomputeChoice::Stage& s : c.stages) {
    nlohmann::json blocks;
    for (size_t level = 0; level < s.counts.size(); ++level)
      blocks[std::string(name_of(BlockRecompute(level)))] = s.counts[level];
    json["stages"].push_back({{"blocks", blocks}, {"total_bytes", s.bytes}, {"arithmetic_added", s.again / s.flops}});
  }
  for (const BlockRecompute again : c.blocks) json["blocks"].push_back(name_of(again));
  return json;
}

nlohmann::json json_of(const PlannedSpan& s) {
  const Recipe& r = s.span.recipe;
  return {{"phase", s.span.phase},
          {"first_step", s.span.first_step},
          {"end_step", s.span.end_step},
          {"global_batch_size", r.train.global_batch_size},
          {"micro_batch_size", r.train.micro_batch_size},
          {"seq_length", r.train.seq_length},
          {"lr", r.optimizer.lr},
          {"min_lr", r.optimizer.min_lr},
          {"lr_factor", s.span.lr_factor},
          {"lr_first_step", s.span.lr_first_step},
          {"total_bytes", s.layout->run.memory.total_bytes()},
          {"model_flops_per_step", s.layout->run.memory.arithmetic.model_flops}};
}

void print(const LayoutPlan& plan, const Machine& machine) {
  const RankClass& largest = plan.classes[0];
  const Arithmetic& a = largest.plan.arithmetic;
  const int world = plan.run.step.mesh.world();
  if (const auto& shares = plan.run.step.order.unequal; !shares.empty())
    std::cout << fmt::format("micro-batches of each data-parallel rank: {}\n\n", text_of_shares(shares));
  if (plan.classes.size() > 1)
    std::cout << summary_of(plan) << fmt::format("\nthe largest: {}\n", to_string(largest, plan.run.step.mesh));
  std::cout << to_string(largest.plan) << (largest.plan.traffic.counts().empty() ? "" : "\n")
            << to_string(largest.plan.traffic)
            << fmt::format(
                   "\n{} parameters{}; {:.4g} GFLOP a step{} ({:.4g} with what is computed again); {}\n", a.num_params,
                   plan.run.model.adapter ? fmt::format(", of which {} learn", a.num_trained) : "", a.model_flops / 1e9,
                   world > 1 ? " and rank" : "", a.hardware_flops / 1e9, machine.description)
            << to_string(plan.run.recompute);
}

// With train.epochs as steps, where its data is there and needs no tokenizing first; else why not.
struct Length {
  std::optional<Recipe> recipe = {};
  std::string why_not = {};
};
Length length_of(const Recipe& recipe, int64_t vocab_size) {
  if (recipe.train.epochs == 0) return {.recipe = recipe};
  try {
    if (!reads_tokens(recipe.train.objective))
      return {.recipe = with_known_length(recipe, *open_row_data(recipe, vocab_size).train)};
    DataSpec data = data_spec_of(recipe, vocab_size);
    data.fingerprint = data.may_tokenize = false;
    return {.recipe = with_known_length(recipe, SampleOrder(data))};
  } catch (const FileError& e) { return {.why_not = e.what()}; }
}

void add_length(const Recipe& recipe, int64_t vocab_size, nlohmann::json* json) {
  const Length length = length_of(recipe, vocab_size);
  if (json) {
    (*json)["train_iters"] = length.recipe ? nlohmann::json(length.recipe->train.train_iters) : nlohmann::json();
    return;
  }
  const std::string epochs = recipe.train.epochs > 0 ? fmt::format("train.epochs = {}: ", recipe.train.epochs) : "";
  if (!length.recipe) {
    std::cout << fmt::format("{}how many steps is not known yet: {}\n", epochs, length.why_not);
    return;
  }
  if (has_phases(recipe)) return;  // which say it
  const Recipe& r = *length.recipe;
  const LrSchedule lr = lr_schedule_of(r);
  const bool decays = lr.style != LrSchedule::Style::constant;
  std::cout << fmt::format(
      "{}{} steps of {} samples; learning rate {:.4g} at most, {}\n", epochs, r.train.train_iters,
      r.train.global_batch_size, lr.lr,
      decays ? fmt::format("{:.4g} from step {} on ({})", lr.min_lr, lr.decay_steps, r.optimizer.lr_decay_style)
             : "constant");
}

// The same with what the recipe needs: at the top of the json, of the largest rank, as are its instructions.
void add_memory(const Recipe& recipe, bool instructions, nlohmann::json* json) {
  check_supported(recipe);
  const Machine machine = machine_to_plan_for(recipe);
  const std::vector<PlannedSpan> phases = plan_phases(recipe, *machine.workspace_model);
  const LayoutPlan& plan = *largest_of(phases).layout;
  if (!json) {
    if (has_phases(recipe)) std::cout << to_string(phases) << "\nthe steps that take most memory:\n";
    print(plan, machine);
    add_length(recipe, plan.run.model.vocab_size, nullptr);
    if (instructions) std::cout << "\n" << to_string(step_data_of(plan.run, *machine.workspace_model));
    return;
  }
  const Arithmetic& a = plan.run.memory.arithmetic;
  *json = json_of(plan.classes[0]);
  json->update({{"num_params", a.num_params},
                {"num_trained", a.num_trained},
                {"model_flops_per_step", a.model_flops},
                {"hardware_flops_per_step", a.hardware_flops},
                {"world", plan.run.step.mesh.world()}});
  if (const auto& shares = plan.run.step.order.unequal; !shares.empty()) (*json)["micro_batches"] = shares;
  if (!plan.run.recompute.blocks.empty()) (*json)["recompute"] = json_of(plan.run.recompute);
  add_length(recipe, plan.run.model.vocab_size, json);
  if (instructions) (*json)["step"] = to_json(step_data_of(plan.run, *machine.workspace_model));
  for (const RankClass& c : plan.classes) (*json)["classes"].push_back(json_of(c));
  if (has_phases(recipe))
    for (const PlannedSpan& s : phases) (*json)["phases"].push_back(json_of(s));
}

constexpr int64_t kMostDrawn = 16;  // micro-batches of a forecast timeline

// The time of a step on a cluster, and on others of its kind: printed, or in the json; and drawn, where a file is
// given.
void add_forecast(const Recipe& recipe, const ClusterSpec& cluster, const PlanOptions& options, nlohmann::json* json) {
  check_supported(recipe);
  const HfConfig config = read_hf_config(recipe.model.path);
  const RunForecast forecast = forecast_run(recipe, config, cluster, Profiles::built_in());
  const int64_t steps = recipe.train.epochs > 0 ? 0 : recipe.train.train_iters;
  if (json)
    (*json)["forecast"] = to_json(forecast, steps);
  else
    std::cout << to_string(forecast, steps);
  if (!options.scale.empty()) {
    const auto points = scale(recipe, config, cluster, Profiles::built_in(), device_range(options.scale));
    if (!json) std::cout << "\nwith more data-parallel ranks, each with as many sequences:\n" << to_string(points);
    if (json)
      for (const ScalePoint& p : points)
        (*json)["scale"].push_back(
            {{"efficiency", p.efficiency}, {"cause", p.cause}, {"forecast", to_json(p.forecast, 0)}});
  }
  if (options.schedule_svg.empty()) return;
  const Timeline timeline = timeline_of(forecast.work, forecast.profile, kMostDrawn);
  write_file_durably(options.schedule_svg,
                     draw_svg(forecast.work.pipeline, timeline,
                              fmt::format("seconds, as forecast on {}", forecast.cluster.device.name)));
}

// The same as add_forecast where devices are of several kinds, with a better cut of the blocks and better shares.
void add_forecast(const Recipe& recipe, const UnequalCluster& cluster, const PlanOptions& options,
                  nlohmann::json* json) {
  check_supported(recipe);
  const HfConfig config = read_hf_config(recipe.model.path);
  UnequalPlanner planner(recipe, config, cluster, Profiles::built_in());
  const UnequalForecast forecast = planner.forecast();
  const std::optional<UnequalForecast> better = planner.better_cut(forecast);
  const std::optional<BetterShares> shares = planner.better_shares(forecast);
  const int64_t steps = recipe.train.epochs > 0 ? 0 : recipe.train.train_iters;
  if (json)
    (*json)["forecast"] = to_json(forecast, better, steps);
  else
    std::cout << to_string(forecast, better, steps) << better_shares_text(shares);
  if (json && shares)
    (*json)["forecast"]["better_shares"] = {{"micro_batches", shares->forecast.shares},
                                            {"step_s", shares->forecast.step.step_s}};
  if (options.schedule_svg.empty()) return;
  const Timeline timeline = timeline_of(forecast.work, forecast.profile, kMostDrawn);
  write_file_durably(options.schedule_svg,
                     draw_svg(forecast.work.pipeline, timeline, "seconds, as forecast on unequal devices"));
}

}  // namespace

int run_plan(const PlanOptions& options) {
  if (!options.scale.empty() && options.cluster.empty())
    throw ConfigError("--scale says how time changes with the number of devices: it needs --cluster");
  if (options.recipe.empty()) throw ConfigError("a recipe is missing, as in `weft plan recipe.toml`");
  if (options.again && options.schedule_svg.empty() && options.write.empty())
    throw ConfigError("--again replaces the file of --schedule-svg or --write: it needs one of them");
  if (!options.schedule_svg.empty()) require_replaceable("--schedule-svg", options.schedule_svg, options.again);
  if (options.search) return run_plan_search(options);
  if (!options.ranks.empty() && !options.search && !options.serve)
    throw ConfigError("--ranks says on how many devices: it needs --search or --serve");
  if (options.serve) return run_plan_serve(options);
  std::optional<UnequalCluster> unequal;
  std::optional<ClusterSpec> cluster;
  if (options.scale.empty() && is_unequal(options.cluster))
    unequal = read_unequal_cluster(options.cluster);
  else if (!options.cluster.empty())
    cluster = read_cluster(options.cluster);  // which refuses --scale on unequal devices
  const Recipe recipe = unequal ? recipe_on(*unequal, options.recipe, options.overrides)
                                : read_recipe(options.recipe, options.overrides, true, cluster ? &*cluster : nullptr);
  const bool svg = !options.schedule_svg.empty() && options.cluster.empty();
  nlohmann::json json;
  // With several stages, the schedule can be shown by itself, whatever the model.
  if (recipe.parallel.pp == 1 || options.instructions || !(options.schedule || svg))
    add_memory(recipe, options.instructions, options.json ? &json : nullptr);
  if (options.schedule || svg) {
    const ShownSchedule shown = show_schedule(recipe);
    if (options.schedule) add_schedule(recipe, shown, options.json ? &json : nullptr);
    if (svg) write_file_durably(options.schedule_svg, draw_svg(shown.pipeline, shown.timeline, kTimeUnit));
  }
  if (!options.cluster.empty()) {
    if (!options.json) std::cout << "\n";
    nlohmann::json* const to = options.json ? &json : nullptr;
    if (unequal)
      add_forecast(recipe, *unequal, options, to);
    else
      add_forecast(recipe, *cluster, options, to);
  }
  if (options.json) std::cout << json.dump(1) << "\n";
  return kExitOk;
}

}  // namespace weft
