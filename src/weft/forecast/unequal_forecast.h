// A step on devices of several kinds: each stage at the pace of the slowest of the devices that its ranks are on, and
// the cut of the model's blocks over the stages, and the shares of the data-parallel ranks, that make the step
// shortest.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/forecast/forecast.h"
#include "weft/forecast/unequal_cluster.h"

namespace weft {

struct UnequalStage {
  std::vector<size_t> kinds = {};     // of the devices that its ranks are on, ascending
  size_t slowest = 0, quickest = 0;   // of these
  int64_t ranks = 0, blocks = 0;      // blocks: of the model
  double busy_s = 0, quickest_s = 0;  // of a step, on the slowest and on the quickest; without waits for other stages
  int64_t memory_bytes = 0;           // of its fullest rank
  double device_bytes = 0, room_bytes = 0;  // the memory of the smallest of its devices, and what a cut may take of it
  bool fits() const { return double(memory_bytes) <= device_bytes; }
  bool has_room() const { return double(memory_bytes) <= room_bytes; }
};

struct UnequalForecast {
  UnequalCluster cluster;
  std::vector<int64_t> used = {};  // devices of each kind
  RunWork work = {};               // its kinds are the stages, each of its slowest devices
  ProgramProfile profile = {};     // to price `work`
  StepForecast step = {};
  BlockLayout blocks = {};  // of each virtual stage
  std::vector<UnequalStage> stages = {};
  // [rank of dp] micro-batches of a step, and its seconds; none where the ranks of a stage are forecast together. Then
  // `work` and `step` are those of the slowest, and a stage's times too.
  std::vector<int64_t> shares = {};
  std::vector<double> rank_s = {};
  double peak_flops = 0;  // of all devices that are used, in the precision that the run computes in

  int num_devices() const { return work.mesh.world(); }
  double tokens_per_s() const { return work.tokens / step.step_s; }
  double mfu() const { return work.arithmetic.model_flops * num_devices() / step.step_s / peak_flops; }
  bool fits() const;
  // Of all devices that are used; 0 where it is not known of one of them.
  double joules_per_step() const;  // an upper bound, at the power that they may draw
  double price_per_step() const;
};

// The shares that were found, and the step with those of the recipe, both as shares are forecast.
struct BetterShares {
  UnequalForecast forecast;
  double now_s = 0;
};

class UnequalPlanner {
 public:
  // All four must outlive it. Throws ConfigError where the layout has more ranks than the cluster devices, or a teacher
  // with axes of its own.
  UnequalPlanner(const Recipe& recipe, const HfConfig& config, const UnequalCluster& cluster, const Profiles& profiles);

  // As weft runs it, with this cut of the blocks; empty: the recipe's. Rank r is on device r. Collectives among nodes
  // take the slowest links that the run uses. Throws what planning throws.
  UnequalForecast forecast(const BlockLayout& blocks = {});

  // The quickest cut that was found, of those with room on every stage: none where none is quicker than `now`, which
  // fits, by a thousandth. Every virtual stage has a block. Always the same answer.
  std::optional<UnequalForecast> better_cut(const UnequalForecast& now);

  // The quickest shares of micro-batches that were found (parallel.micro_batches), with the blocks of `now` and room on
  // every stage: none where none is quicker than the recipe's by a thousandth, or the layout cannot have unequal ones.
  // Each rank of dp is forecast by itself, each of its stages on the slowest device that its own ranks are on. Always
  // the same answer.
  std::optional<BetterShares> better_shares(const UnequalForecast& now);

 private:
  struct Cost {
    StageWork work;  // of the slowest devices
    UnequalStage stage;
  };
  const Cost& cost_of(const Recipe& recipe, const RunPlan& plan, const RunWork& run, int stage);
  const Cost& cost_of_share(const Recipe& recipe, const RunPlan& plan, const RunWork& run, int stage, int dp);
  Cost measure(const RunPlan& plan, const StepSpec& step, const RunWork& run, std::vector<size_t> kinds) const;
  UnequalForecast beginning_of(const Recipe& recipe, const RunPlan& plan);
  void end_forecast(UnequalForecast& forecast, const Recipe& recipe) const;
  UnequalForecast forecast_shares(Recipe recipe);

  const Recipe& recipe_;
  const HfConfig& config_;
  const UnequalCluster& cluster_;
  const Profiles& profiles_;
  std::vector<ClusterSpec> kinds_ = {};  // with the slowest links that the run uses among nodes
  std::vector<int64_t> used_ = {};
  std::optional<Arithmetic> arithmetic_ = {};
  std::map<std::string, Cost> costs_ = {};  // by stage and what it has of the model; with shares, also by whose
};

// What better_shares found, as a line; empty where it found nothing.
std::string better_shares_text(const std::optional<BetterShares>& better);
// `better`: as better_cut found it. `steps`: of the run; 0: not known.
std::string to_string(const UnequalForecast& forecast, const std::optional<UnequalForecast>& better, int64_t steps);
nlohmann::json to_json(const UnequalForecast& forecast, const std::optional<UnequalForecast>& better, int64_t steps);

}  // namespace weft
