// One rank's part of a run and its training step: the base of trainer, trials and benchmarks.
#pragma once
#include <optional>

#include "weft/plan/run_plan.h"
#include "weft/step/executor.h"
#include "weft/train/rank_backend.h"

namespace weft {

// Allocates what the plan (of this rank) says, on its machine. Weights are not written yet.
class RankRun : public RankBackend {
 public:
  RankRun(RunPlan plan, const Machine& machine, const ProcessMesh& mesh, const DecorateBackend& decorate = {});
  // With what another phase of the run has trained: weights, state and frozen weights are written.
  RankRun(RunPlan plan, const Machine& machine, const ProcessMesh& mesh, std::optional<KeptArenas> kept);
  ~RankRun() { end(); }
  // Takes these out, for the next phase. Blocks until the backend is done with them; this is not used again.
  KeptArenas take_kept();
  // After a step: that the memory used is the memory planned, in every arena. A WEFT_CHECK names the one that differs.
  void check_used() const;
  int64_t peak_bytes() const;

  const RunPlan plan;
  PersistentArenas arenas;
  TrainingState state;

 private:
  RankRun(RunPlan plan, const Machine& machine, const ProcessMesh& mesh, const DecorateBackend& decorate,
          std::optional<KeptArenas> kept);
  const bool late_;

 public:
  Executor executor;
};

}  // namespace weft
