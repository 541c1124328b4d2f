// Everything a run writes about itself: metrics.jsonl, TensorBoard events, the progress line, the loss chart.
#pragma once
#include <filesystem>

#include "weft/train/metrics_log.h"
#include "weft/train/progress.h"
#include "weft/train/tensorboard.h"

namespace weft {

class RunRecords {
 public:
  struct Spec {
    std::filesystem::path run;
    int64_t first_step = 0, total_steps = 0, log_interval = 10;
    int terminal_fd = 2;
  };
  explicit RunRecords(const Spec& spec);

  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  void sync() { metrics_.sync_to_disk(); }  // blocks until metrics.jsonl would survive a loss of power
  void note(std::string_view line) { progress_.note(line); }
  // Draws loss.svg, and the same as text; says where the files are.
  void finish(std::string_view title);

 private:
  Spec spec_;
  MetricsLog metrics_;
  TensorBoardWriter board_;
  Progress progress_;
};

}  // namespace weft
