// Exact memory and arithmetic of a training step, before it runs: the executor that trains runs the step's schedule, on
// a backend that computes nothing and arenas that only count.
#pragma once
#include <string>
#include <vector>

#include "weft/step/step_memory.h"
#include "weft/step/training_state.h"

namespace weft {

inline constexpr double kMiB = 1 << 20;

// What a step of the whole model costs, the same for every rank.
struct Arithmetic {
  int64_t num_params = 0;     // weights of the whole model
  int64_t num_trained = 0;    // of them that learn
  double model_flops = 0;     // a rank's share of a step: matrix products and attention, forward and backward, once
  double hardware_flops = 0;  // with what is computed again; without the update
};

struct MemoryPlan : StepMemory {
  PersistentArenas::Sizes persistent;
  int64_t workspace = 0;  // bytes: temporaries of kernels
  int64_t writing = 0;    // of texts that the run writes between steps: caches, and a pass; 0 where there are none
  int64_t total_bytes() const;

  struct Row {
    std::string name, meaning;
    int64_t count, bytes_each;
    int64_t bytes() const { return count * bytes_each; }
  };
  std::vector<Row> rows() const;  // what total_bytes is the sum of

  Arithmetic arithmetic;
  // What a rank sends in a training step, from its first micro-batch to the updated weights; without evaluation.
  Traffic traffic;
};

// For one rank; `workspace` is that of the backend that will run. Throws ConfigError or PlacementError where the step
// cannot run. Milliseconds, whatever the size; more where very many
// micro-batches are alive at once (gpipe).
MemoryPlan measure(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                   const WorkspaceModel& workspace);

// The same apart: all but `arithmetic`, and that alone, which is the same for every rank.
MemoryPlan measure_memory(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                          const WorkspaceModel& workspace);
Arithmetic measure_arithmetic(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                              const WorkspaceModel& workspace);

// The step as one rank alone would do it with the whole model, for one micro-batch.
StepSpec on_one_rank(StepSpec step);

// To score text only: weights, constants and `evaluation`, no gradients or optimizer state.
MemoryPlan measure_forward(const ModelSpec& model, const StepSpec& step, const WorkspaceModel& workspace);

// "  parameters   masters and compute copies   1 x 497.76 MiB ..." with a total.
std::string to_string(const MemoryPlan& plan);

}  // namespace weft
