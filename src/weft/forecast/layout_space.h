// The layouts that a search looks through: what a recipe's run can be on so many devices, as compact values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/forecast/device.h"
#include "weft/models/model_spec.h"
#include "weft/recipe/recipe.h"

namespace weft {

// The settings of a recipe that a search decides; ordered, so that equal forecasts have one order.
struct LayoutChoice {
  int64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1, micro_batch_size = 1;
  int64_t zero_stage = 0, zero_shard_size = 0;
  RecomputeKind recompute = RecomputeKind::none;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int64_t chunks = 0;  // virtual_pipeline_parallel_size
  CpCommType cp_comm_type = CpCommType::p2p;
  int64_t cp_a2a_size = 0;
  bool sequence_parallel = false;
  std::string order = {};  // of ranks, "tp-cp-ep-dp-pp"; empty: as the recipe has it
  auto operator<=>(const LayoutChoice&) const = default;
  int64_t num_devices() const { return dp * tp * pp * cp; }
};

LayoutChoice choice_of(const Recipe& recipe);
// The recipe with that layout; blocks are dealt out over stages as weft does by itself. Without train.autotune where
// the layout leaves it nothing to try.
Recipe with_choice(const Recipe& recipe, const LayoutChoice& choice);

// Without what goes with axes of several ranks where an axis has one: ZeRO, schedules, the kind of cp.
LayoutChoice settled(LayoutChoice choice);

// "dp 16, tp 8, pp 8 (1f1b), micro-batch 2, zero 1, recompute selective"
std::string to_string(const LayoutChoice& choice);

// All layouts of exactly so many devices that this model can be cut to, but for what never is better:
// - gpipe, which takes as long as 1f1b and keeps more;
// - sequence_parallel = false where tokens can be cut;
// - cp with fewer than 2,048 tokens of a sequence on a rank, micro-batches of more than 32,768 tokens on one;
// - virtual stages with unequal numbers of blocks, unless there are two a rank; more than 10 a rank;
// - zero_shard_size other than all ranks or, at stage 3, those of a domain.
// The order is always the same. `refused` counts those that check_layout refuses.
std::vector<LayoutChoice> layouts_on(int64_t num_devices, const Recipe& recipe, const ModelSpec& model,
                                     const ClusterSpec& cluster, int64_t& refused);

}  // namespace weft
