// A training step without a run around it: what benchmarks time.
#pragma once
#include <filesystem>

#include "weft/apps/layer_watch.h"
#include "weft/ops/traced.h"
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

// One rank's part of a run, without its records. What it borrows must outlive it.
struct BenchRun {
  BenchRun(const Recipe& recipe, const Machine& machine, RunPlan plan, const ProcessMesh& mesh);
  // A whole step, as Trainer makes it. Blocks. `instructions`: receives when each was run (of an asynchronous device:
  // issued), by the same clock as the backend's trace. `layers`: hears of them too; null: nobody does.
  struct Watched {
    std::vector<TraceSpan>& instructions;
    std::function<int64_t()> now_ns;
    LayerWatch* layers = nullptr;
  };
  void step(Backend& on, const Watched* watched = nullptr);
  // Makes steps until further ones take the same time: an asynchronous device may replay ops that came twice.
  void warm_up();

  const bool is_late;
  RankRun rank;
  RunData data;
  BatchLoader batches;
  const std::unique_ptr<const Objective> objective;
  int64_t done = 0;
};

}  // namespace weft
