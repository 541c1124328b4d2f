// A run beside its forecast: what its steps took by part, what bound it, and which one change would gain most.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/forecast/forecast.h"
#include "weft/forecast/run_layouts.h"
#include "weft/records/metrics_log.h"

namespace weft {

// A run's folder, as it was read.
struct RecordedRun {
  std::string folder;
  Recipe recipe;
  HfConfig config;  // of its model
  Metrics metrics;
  std::vector<RunStretch> stretches = {};  // the last is in the recipe's layout; none: all of it is
};

// What the records say of the layout that the run has now. Means are of all its steps but the first, which warms up; of
// the rank that leads.
struct RunMeasured {
  int64_t last_step = 0, counted = 0;  // the run's last so far; steps that the means are of
  int64_t first_step = 1;              // of the layout
  double step_s = 0, median_s = 0, p90_s = 0;
  double tokens = 0;  // of a step
  double data_s = 0;
  bool has_data = false;                       // false: the records say nothing of it
  std::map<std::string, double> waits_s = {};  // by transfer_part
  bool has_waits = true;                       // false: several ranks, and the records say nothing of it
  double eval_s = 0, save_s = 0;               // of a step's share
  int64_t saves = 0;                           // steps that have time of saves beside them
  int64_t memory_bytes = 0;
  // Of models with experts over ep: the rows of the first rank of ep, and of the busiest, beside the mean.
  double first_load = 1, busiest_load = 1;
};
// Tokens of the batch of a step, which phases may change from step to step.
double tokens_of_step(const Recipe& recipe, const StepRecord& step);
// Throws ConfigError where the run has trained no step (in its layout).
RunMeasured measured_steps(const RecordedRun& run);
// Of the layouts that it had before, as far as steps of them are recorded.
std::vector<StretchMeans> means_before(const RecordedRun& run);

// What waits over an axis of the mesh are called: ranks that sum gradients have other names where they are all of a
// data axis, and what waits for other stages is not told apart from what they send.
std::string transfer_part(const std::string& axis);

struct RunReport {
  std::string folder;
  Recipe recipe;
  RunMeasured measured;
  RunForecast forecast;
  std::vector<StretchMeans> before = {};  // of steps before measured.first_step
  // Of a step, in this order; `measured_s` is NaN where it is not recorded.
  struct Part {
    std::string name;
    double forecast_s = 0, measured_s = 0;
  };
  std::vector<Part> parts = {};
  // What a step and its share of what is between steps went to; the most first. They add up to wall_s.
  struct Cause {
    std::string name;
    double seconds = 0;
    std::string note = {};  // how it is known, where it is not measured
  };
  std::vector<Cause> causes = {};
  double wall_s = 0;
  std::string change = {};  // the one change that gains most, with what; empty: none is known to gain
  double gain = 0;          // the part of wall_s
  // What a result of a task rose by, and what the steps between cost: from the first record to the last, and from the
  // last but one. None where the cluster says no price.
  struct Gained {
    std::string result;  // "piqa.acc"
    int64_t from_step = 0, to_step = 0;
    double from = 0, to = 0, error = 0;  // of the difference, standard; 0: not recorded
    double price = 0;
    double points() const { return 100 * (to - from); }
    bool is_sure() const { return to - from > 2 * error; }  // else there is no price of a point
  };
  std::vector<Gained> gained = {};
};
// `reserve_bytes`: of a device's memory, that another layout must leave. Throws what measured_steps, forecasts and
// planning throw.
RunReport report_of(const RecordedRun& run, const ClusterSpec& cluster, const Profiles& profiles, double reserve_bytes);
std::string to_string(const RunReport& report);
nlohmann::json to_json(const RunReport& report);

// Runs of one model on several numbers of devices, those with the fewest first.
struct RunScaling {
  struct Row {
    std::string folder, layout;
    int64_t devices = 1;
    double tokens = 0, step_s = 0;  // of a step
    double speedup = 1;             // tokens/s beside the first row's
    double efficiency = 1;          // the same for a device
    const char* kind = "";          // "strong": as many tokens a step as the first; "weak": as many a device; else ""
    double forecast_s = 0, forecast_efficiency = 0;  // 0: no forecast
    double tokens_per_s() const { return tokens / step_s; }
  };
  std::vector<Row> rows;
};
// `cluster`: null for no forecast. Throws ConfigError where models or lengths of samples differ, where steps of a run
// differ that a forecast is asked of, and what report_of throws.
RunScaling scaling_of(const std::vector<RecordedRun>& runs, const ClusterSpec* cluster, const Profiles& profiles);
std::string to_string(const RunScaling& scaling);
nlohmann::json to_json(const RunScaling& scaling);

}  // namespace weft
