// A training step that computes nothing: the executor that trains, on a backend that judges every op and counts, and a
// mesh that sends nothing and counts.
#pragma once
#include "weft/ops/dry/dry_backend.h"
#include "weft/step/executor.h"

namespace weft {

class DryStep {
 public:
  // As one rank of the step's mesh. `optimizer` and `workspace`, the real backend's, are borrowed.
  DryStep(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer, const WorkspaceModel& workspace);

  // Hears of each instruction, as Executor::StepInput says; may put a backend around the one that counts.
  struct Watch {
    Backend* backend = nullptr;
    std::function<void(const Action*, const Instruction&)> begins = {};
    std::function<void()> ends = {};
  };
  // Forward, backward and update; with the memory of an evaluation and of texts written, but without what these send.
  // Returns the arithmetic of forward and backward, in FLOP: only where no loop of the schedule is cut short is it that
  // of a step.
  double run(const Watch& watch);
  double run() { return run(Watch()); }

  StepMemory memory() const { return executor_.used(); }
  PersistentArenas::Sizes persistent() const { return persistent_.peak(); }
  int64_t writing() const { return writing_; }  // bytes: what TextPasses hold
  int64_t workspace() const { return backend_.workspace_bytes(); }
  const Traffic& traffic() const { return traffic_; }  // so far
  const StepSpec& spec() const { return step_; }
  const TrainingState& state() const { return state_; }
  DryBackend& backend() { return backend_; }

 private:
  const StepSpec step_;
  const Optimizer& optimizer_;
  Traffic traffic_;
  DryBackend backend_;
  PersistentArenas persistent_;
  TrainingState state_;
  Executor executor_;
  int64_t writing_ = 0;
};

// Every sequence of a micro-batch is one document.
std::vector<AttentionSpan> whole_sequences(const StepSpec& step);

}  // namespace weft
