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
#include "weft/plan/run_plan.h"

namespace weft {

// A micro-batch on a rank that has the whole of a small model: all but its blocks, and each block, by kind of layer.
// No blocks: this small model cannot run so.
struct SmallTimes {
  using Seconds = std::array<double, 3>;  // forward, dgrad or backward, wgrad
  Seconds ends = {};
  std::vector<Seconds> blocks = {};
};
struct SmallBytes {
  double kept = 0, alive = 0;  // weights, gradients and state; a micro-batch that is alive
};
struct SmallMemory {
  SmallBytes ends = {};
  std::vector<SmallBytes> blocks = {};
};

// What small models took, each of which is run once: for searches of one model on one cluster by recipes that differ in
// train.global_batch_size alone. May be shared by several threads.
class SmallRuns {
 public:
  size_t size() const;  // how many layouts of small models were run

 private:
  friend class LayoutBounds;
  struct Key {
    LayoutChoice choice;
    int64_t num_micro_batches;  // of a step of the small model
    auto operator<=>(const Key&) const = default;
  };
  template <class T>
  struct Known {
    std::once_flag once;
    T value;
  };
  mutable std::mutex mutex_;
  std::map<Key, Known<SmallTimes>> times_;
  std::map<Key, Known<SmallMemory>> memory_;
};

// What is taken for sure of what dry runs say.
inline constexpr double kSurePart = 0.98;
// FLOP/s that no step is above on this device: of its products, whatever their shapes.
double best_rate(const DeviceSpec& device, const ProgramProfile& profile);

// All bounds are a fiftieth below what dry runs of small models say, since waits do not add up quite linearly. They may
// be asked for by several threads, in any order.
class LayoutBounds {
 public:
  // All five must outlive it. Throws what prepare_run throws for the recipe on one rank.
  LayoutBounds(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster, const ProgramProfile& profile,
               SmallRuns& runs);

  // Seconds of a step: its arithmetic alone; with communication of tp, cp and ep, in the slowest stage; through its
  // pipeline's schedule, with what ZeRO sends in its actions. Each takes longer to find than the one before.
  double by_arithmetic(const LayoutChoice& choice) const;
  double by_stage(const LayoutChoice& choice);
  double by_schedule(const LayoutChoice& choice);
  // The part of an action's seconds that its blocks would take if all were of the cheapest kind.
  double part_of_blocks(const LayoutChoice& choice);
  // Bytes of the first stage.
  double memory(const LayoutChoice& choice);
  // How many blocks, of the cheapest kind, `room` bytes are enough for on a stage at most.
  int64_t most_blocks(const LayoutChoice& choice, int stage, double room);

  const ModelSpec& model() const { return model_; }

 private:
  const SmallTimes& times_of(const LayoutChoice& choice);
  const SmallMemory& memory_of(const LayoutChoice& choice);
  int64_t small_micro_batches(const LayoutChoice& choice) const;
  RunPlan small_plan(const LayoutChoice& choice, std::vector<LayerSpec> layers) const;
  SmallTimes measure_times(const LayoutChoice& choice) const;
  SmallMemory measure_bytes(const LayoutChoice& choice) const;
  const BlockLayout& blocks_of(const LayoutChoice& choice);
  int64_t most_alive(const Pipeline& pipeline, int stage, int64_t num_micro_batches);
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
  SmallRuns& runs_;
  std::mutex mutex_;
  std::map<LayoutChoice, BlockLayout> blocks_;
  std::map<std::array<int64_t, 5>, int64_t> alive_;
};

}  // namespace weft
