// What a layout takes at least, in time and memory: by dry runs of models with one or two blocks, which many layouts
// share. So most layouts of a search need never be planned whole.
#pragma once
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "weft/forecast/layout_space.h"
#include "weft/forecast/profile.h"
#include "weft/models/hf_config.h"
#include "weft/plan/layout.h"

namespace weft {

// A micro-batch on a rank that has the whole of a small model.
struct SmallRun {
  using Seconds = std::array<double, 3>;  // forward, dgrad or backward, wgrad
  Seconds ends_s = {};                    // all but blocks
  std::vector<Seconds> blocks_s = {};     // [kind of layer] each block; empty: this small model cannot run so
  // Bytes: weights, gradients and state; and of a micro-batch that is alive.
  double ends_kept = 0, ends_alive = 0;
  std::vector<double> blocks_kept = {}, blocks_alive = {};
};

// All bounds are a fiftieth below what dry runs of small models say, since waits do not add up quite linearly. They may
// be asked for by several threads, in any order.
class LayoutBounds {
 public:
  // All four must outlive it. Throws what prepare_run throws for the recipe on one rank.
  LayoutBounds(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster, const ProgramProfile& profile);

  // Seconds of a step: its arithmetic alone; with communication of tp, cp and ep, in the slowest stage; through its
  // pipeline's schedule, with what ZeRO sends in its actions. Each takes longer to find than the one before.
  double by_arithmetic(const LayoutChoice& choice) const;
  double by_stage(const LayoutChoice& choice);
  double by_schedule(const LayoutChoice& choice);
  // Bytes of the first stage.
  double memory(const LayoutChoice& choice);

  const ModelSpec& model() const { return model_; }
  size_t num_small_runs() const { return runs_.size(); }

 private:
  const SmallRun& run_of(const LayoutChoice& choice);
  SmallRun measure(const LayoutChoice& choice) const;
  const BlockLayout& blocks_of(const LayoutChoice& choice);
  // The sum over the blocks of a virtual stage.
  template <class Of>
  double sum_of(const BlockLayout& layout, int v, Of of) const;

  const Recipe& recipe_;
  const HfConfig& config_;
  const ClusterSpec& cluster_;
  const ProgramProfile& profile_;
  ModelSpec model_;
  std::vector<LayerSpec> kinds_;        // of layers
  std::vector<size_t> kind_of_;         // [layer]
  std::array<double, 3> flops_s_ = {};  // [recompute] seconds of a step's arithmetic on one device, at best
  struct Known {
    std::once_flag once;
    SmallRun run;
  };
  std::mutex mutex_;
  std::map<LayoutChoice, Known> runs_;
  std::map<LayoutChoice, BlockLayout> blocks_;
};

}  // namespace weft
