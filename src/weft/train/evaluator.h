// A model that only measures: weights, and the memory to score windows of text.
#pragma once
#include <filesystem>

#include "weft/models/hf_config.h"
#include "weft/plan/memory_plan.h"
#include "weft/step/batch_staging.h"
#include "weft/train/evaluate.h"
#include "weft/train/machine.h"

namespace weft {

class Evaluator {
 public:
  struct Spec {
    const Machine& machine;
    Precision precision;
    int64_t seq_length = 0;  // 0: the longest the model was made for, at most 1024
    int64_t micro_batch_size = 1;
  };
  // Loads the weights of `folder`, which model_folder_of has checked. Throws FileError, ConfigError.
  Evaluator(const std::filesystem::path& folder, const Spec& spec);
  // Mean loss over the counted targets of the first `max_batches` micro-batches of windows (0: of all). Blocks.
  EvalRecord evaluate(const EvalWindows& windows, int64_t max_batches);
  int64_t seq_length() const { return step_.seq_length; }
  const ModelSpec& model() const { return config_.spec; }

 private:
  const HfConfig config_;
  const Machine machine_;
  const StepSpec step_;
  const MemoryPlan plan_;
  PersistentArenas arenas_;
  ParamStore params_;
  Transformer model_;
  Arena workspace_, scratch_;
  BatchStaging staging_;
  std::unique_ptr<Backend> backend_;
  ProcessMesh mesh_;
};

}  // namespace weft
