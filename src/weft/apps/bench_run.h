// A training step without a run around it: what benchmarks time.
#pragma once
#include <filesystem>
#include <memory>

#include "weft/train/batch_loader.h"
#include "weft/train/rank_run.h"
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
  BenchRun(const Recipe& recipe, const Machine& machine, RunPlan plan, const ProcessMesh& mesh);
  // A whole step, as Trainer makes it. Blocks.
  void step(Backend& on);
  // Steps, till the next is as those that follow it: a late device may replay what has come twice.
  void warm_up();

  const bool is_late;
  RankRun rank;
  RunData data;
  BatchLoader batches;
  int64_t done = 0;
};

}  // namespace weft
