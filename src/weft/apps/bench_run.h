// A training step without a run around it: what benchmarks time.
#pragma once
#include <filesystem>
#include <memory>

#include "weft/plan/run_plan.h"
#include "weft/train/batch_loader.h"
#include "weft/train/executor.h"
#include "weft/train/machine.h"
#include "weft/train/run_data.h"

namespace weft {

// data.train = ["synthetic"]: random tokens, in a file that is removed at the end.
class SyntheticTokens {
 public:
  SyntheticTokens(Recipe& recipe, int64_t vocab_size);
  SyntheticTokens(const SyntheticTokens&) = delete;
  SyntheticTokens& operator=(const SyntheticTokens&) = delete;
  ~SyntheticTokens();

 private:
  std::filesystem::path path_;
};

// Everything that one rank has of a run but its records. What it is made of must outlive it.
struct BenchRun {
  BenchRun(const Recipe& recipe, const Machine& machine, const RunPlan& plan, const ProcessMesh& mesh);
  // A whole step, as Trainer makes it. Blocks.
  void step(Backend& on);

  const RunPlan& plan;
  const ProcessMesh mesh;
  PersistentArenas arenas;
  TrainingState state;
  Arena workspace;
  std::unique_ptr<Backend> backend;
  Executor executor;
  RunData data;
  BatchLoader batches;
  int64_t done = 0;
};

}  // namespace weft
