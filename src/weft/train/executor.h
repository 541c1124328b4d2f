// Runs one step's schedule. Knows nothing of the model's inside or of the data.
#pragma once
#include <functional>
#include <vector>

#include "weft/plan/memory_plan.h"
#include "weft/plan/stage_links.h"
#include "weft/train/batch_staging.h"

namespace weft {

// Forward only, of one micro-batch that `load` fills, with everything in `arena` (rewound first): the losses of its
// tokens (stat, [tokens]), which lie there; zero on stages without the head. Blocks.
struct ForwardOnly {
  const Transformer& model;
  const StepSpec& step;
  Backend& backend;
  const ProcessMesh& mesh;
  BatchStaging& staging;
  StageLinks* links = nullptr;  // where the model has several chunks
  Tensor score(const LoadMicroBatch& load, Arena& arena) const;
};

class Executor {
 public:
  struct Resources {
    Backend& backend;
    const ProcessMesh& mesh;
    std::shared_ptr<Memory> memory = host_memory();
  };
  // Allocates what the plan says. `state` must outlive this.
  Executor(TrainingState& state, const StepSpec& step, const MemoryPlan& plan, Resources resources);

  struct StepInput {
    const LoadMicroBatch& load;
    double loss_scale;     // 1 / counted targets of the global batch
    uint64_t dropout_key;  // of this step
    // Hears of every action before it begins: for finding out.
    std::function<void(const Action&)> begins = {};
  };
  // Forward and backward of all micro-batches; gradients and losses are summed. Returns the sum of the counted tokens'
  // losses. Blocks.
  double run(const StepInput& input);
  // The same on another backend over the same memory (a decorator of it).
  double run_on(Backend& backend, const StepInput& input);
  // Forward only, of one micro-batch that `load` fills: the losses of its tokens (stat, [tokens]), until the next call.
  Tensor evaluate(const LoadMicroBatch& load);

  // That every arena's peak is its plan: a WEFT_CHECK that names the one that differs. After at least one step.
  void check_used() const;
  // Summed over all its arenas, so far.
  int64_t peak_bytes() const;
  Arena& scratch() { return scratch_; }

 private:
  struct InFlight {
    Arena *till_dgrad = nullptr, *till_wgrad = nullptr, *dgrad_till_wgrad = nullptr;
    Transformer::Saved saved;
    MicroBatch batch;
    bool busy = false;
  };
  struct ChunkState {
    Slots till_dgrad, till_wgrad, dgrad_till_wgrad;
    std::vector<InFlight> in_flight;
  };
  static std::vector<ChunkState> make_chunks(const TrainingState& state, const MemoryPlan& plan,
                                             const std::shared_ptr<Memory>& memory);
  void act(Action action, const StepInput& input);
  void begin(ChunkState& chunk, InFlight& m, int64_t micro_batch, const StepInput& input);
  static InFlight& find(ChunkState& chunk, int64_t micro_batch);
  Pass pass(const InFlight& m, uint64_t dropout_key);

  TrainingState& state_;
  const StepSpec& step_;
  const MemoryPlan plan_;
  Backend* backend_;
  const ProcessMesh& mesh_;
  Arena scratch_, replay_, evaluation_, handover_;
  BatchStaging staging_;
  std::vector<ChunkState> chunks_;
  StageLinks links_;  // whose messages lie in the chunks' memory
};

}  // namespace weft
