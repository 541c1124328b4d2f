// What a recipe's run would do on a cluster: time, rate, memory, price of a step, before anybody has rented one.
#pragma once
#include <string>

#include "weft/forecast/failures.h"
#include "weft/forecast/price.h"
#include "weft/recipe/recipe.h"

namespace weft {

struct RunForecast {
  ClusterSpec cluster;
  RunWork work;
  ProgramProfile profile;
  StepForecast step;
  double peak_flops = 0;  // of a device, in the precision that the run computes in

  int num_devices() const { return work.mesh.world(); }
  double tokens_per_s() const { return work.tokens / step.step_s; }
  double tokens_per_s_per_device() const { return tokens_per_s() / num_devices(); }
  double mfu() const { return work.arithmetic.model_flops / step.step_s / peak_flops; }
  double hfu() const { return work.arithmetic.hardware_flops / step.step_s / peak_flops; }
  int64_t memory_bytes() const;  // of the fullest rank
  // What a checkpoint holds of the rank with most of it is written, and stops the run for this long.
  double save_s() const;
  // The run with failures, if the cluster says how many there are.
  FailureSpec failures() const;
  // The same on spot devices, which are also taken away.
  FailureSpec spot_failures() const;
  bool fits() const { return double(memory_bytes()) <= cluster.device.memory_bytes; }
  // Upper bounds, at the power that the device may draw; 0 where it is not known.
  double joules_per_step() const { return cluster.device.watts * num_devices() * step.step_s; }
  double price_per_step() const { return cluster.price_per_device_hour / 3600 * num_devices() * step.step_s; }
};

// Throws ConfigError where the steps of the recipe are not alike.
void require_priced(const Recipe& recipe);

// The plan of rank 0, as forecast_run prices it: with what a budget recomputes. Throws what planning throws.
RunPlan forecast_plan(const Recipe& recipe, const HfConfig& config);

// As weft runs it. Throws ConfigError where the layout has more ranks than the cluster devices, naming settings that
// fit; and what planning throws.
RunForecast forecast_run(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                         const Profiles& profiles);

// A time for people: "3.2 ms", "36.0 h".
std::string duration_text(double seconds);

// Tables for a terminal: the figures, and where the time goes. `steps`: of the run; 0: not known.
std::string to_string(const RunForecast& forecast, int64_t steps);
nlohmann::json to_json(const RunForecast& forecast, int64_t steps);

}  // namespace weft
