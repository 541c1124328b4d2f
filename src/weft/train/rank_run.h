// One rank's part of a run and its training step: the base of trainer, trials and benchmarks.
#pragma once
#include <functional>
#include <memory>

#include "weft/plan/run_plan.h"
#include "weft/step/executor.h"
#include "weft/train/machine.h"

namespace weft {

// A backend around a rank's own.
using DecorateBackend = std::function<std::unique_ptr<Backend>(Backend& inner, const ProcessMesh& mesh)>;

// Allocates what the plan (of this rank) says, on its machine. Weights are not written yet.
class RankRun {
 private:
  std::function<void()> finish_ = [] {};  // waits for the backend, once there is one

 public:
  RankRun(RunPlan plan, const Machine& machine, const ProcessMesh& mesh, const DecorateBackend& decorate = {});
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;
  ~RankRun();  // waits for the backend, which may still use its memory
  // After a step: that the memory used is the memory planned, in every arena. A WEFT_CHECK names the one that differs.
  void check_used() const;
  int64_t peak_bytes() const;

  const ProcessMesh mesh;  // waits for the backend, if that is asynchronous
  const RunPlan plan;
  PersistentArenas arenas;
  TrainingState state;
  Arena workspace;

 private:
  const bool late_;
  std::unique_ptr<Backend> device_, decorated_, polled_;

 public:
  Backend& backend;
  Executor executor;
};

}  // namespace weft
