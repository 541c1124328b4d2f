// What `weft bench machine` measures on one rank, while all ranks of the node do the same.
#pragma once
#include <functional>
#include <vector>

#include "weft/forecast/measured.h"
#include "weft/models/hf_config.h"
#include "weft/recipe/recipe.h"
#include "weft/sharding/param.h"
#include "weft/train/machine.h"

namespace weft {

struct MeasuringRank {
  const Machine& machine;  // of this rank, on whose cores the others work too
  const ProcessMesh& mesh;
  std::function<double()> now_s;
  int64_t iters = 5;           // repetitions of each, at least
  int64_t most_tokens = 2048;  // sizes end there
  bool crowded = false;        // ranks have more threads than there are cores: means count, and of longer times
};

// The number that stands for repetitions that took so long: their median; of a crowded machine, whose ranks take turns,
// their mean.
double typical_s(std::vector<double> seconds, bool crowded);

// Matrix products by shape (as forward, dgrad and wgrad have them), products of experts, attention: in one precision.
// Collective: the mean of all ranks.
std::vector<RateGrid> measure_rates(const MeasuringRank& rank, const Precision& precision);

// Collectives and messages among ranks next to each other (the shards of the mesh), by size; each behind a product, so
// that it is also waited for ranks that are late. Collective: the mean of all ranks. `far`: the axis goes over nodes.
std::vector<CollectiveCurve> measure_collectives(const MeasuringRank& rank, bool far);

// `here`: the ranks of this rank's host. Collective: throws ConfigError on every rank where hosts have other numbers of
// them, as a cluster's file is of nodes alike.
void require_hosts_alike(Communicator& world, int here);
// Whether some of the groups of n ranks next to each other go over several hosts of `here` ranks.
inline bool goes_over_hosts(int n, int here) { return here % n != 0; }

// A small model whose steps are timed op by op: on each rank alone, or cut over all of them, for the ops that only such
// layouts have.
struct TimedModel {
  const char* family;  // "llama", "gpt2", "mixtral"
  int64_t width, tokens, vocabulary;
  int tp = 1, cp = 1, dp = 1;  // dp: with ZeRO
};
std::vector<TimedModel> timed_models(int64_t most_tokens, int ranks);
Recipe recipe_of(const TimedModel& model, PrecisionChoice precision);
HfConfig config_of(const TimedModel& model);
// Steps of the model while the other ranks make theirs: each kind and size of op that costs bytes, and, of a rank
// alone, the time from one op to the next. Collective.
struct StepTimes {
  std::vector<TimedOp> ops;
  std::optional<double> gap_s = {};
};
StepTimes measure_steps(const MeasuringRank& rank, const Recipe& recipe, const HfConfig& config);

}  // namespace weft
