// The loss of held-out text.
#pragma once
#include <filesystem>
#include <optional>

#include "weft/data/sample_order.h"
#include "weft/models/hf_config.h"
#include "weft/plan/memory_plan.h"
#include "weft/records/metrics_log.h"
#include "weft/step/batch_staging.h"
#include "weft/step/executor.h"
#include "weft/tasks/scored_text.h"
#include "weft/train/forward_rank.h"

namespace weft {

// The losses of the tokens of one micro-batch that the argument fills.
using ScoreMicroBatch = std::function<TokenLosses(const LoadMicroBatch&)>;

struct EvalRequest {
  const EvalWindows& windows;  // of the step's seq_length
  const StepSpec& step_spec;
  const Memory& memory;                     // where the losses of tokens lie
  int64_t step = 0;                         // goes into the record
  int64_t max_batches = 0;                  // micro-batches of windows to score; 0: all
  Communicator& ranks;                      // that share the work: each of dp scores every size-th micro-batch
  Communicator& stages;                     // of the pipeline, one of which has the losses
  std::function<bool()> stopped = nullptr;  // asked between micro-batches, the same answer on every rank; none: never
};
// Mean loss over the counted targets, the same on every rank and for any number of them; none where it was
// stopped. Blocks.
std::optional<EvalRecord> evaluate_loss(const EvalRequest& request, const ScoreMicroBatch& score);

// The scores of texts of at most seq_length + 1 tokens each, the same on every rank; none where it was stopped. Texts
// share windows, and do not see each other. Whether scored tokens are the likeliest is found if the step says so.
// Collective. Blocks. Throws NumericsError where a score is not finite.
struct ScoreRequest {
  const StepSpec& step_spec;
  const Memory& memory;  // where the losses of tokens lie
  Communicator& ranks;   // as of EvalRequest
  Communicator& stages;
  std::function<bool()> stopped = nullptr;
};
std::optional<TextScores> score_texts(const std::vector<ScoredText>& texts, const ScoreRequest& request,
                                      const ScoreMicroBatch& score);

// A model that only measures: weights, and the memory to score windows of text. One rank of a layout.
class Evaluator {
 public:
  struct Spec {
    const Machine& machine;  // of this rank
    Precision precision;
    int64_t seq_length = 0;  // 0: default_window
    int64_t micro_batch_size = 1;
    Recipe::Parallel layout = {};
    ProcessMesh mesh = single_mesh();  // of the layout's sizes
    bool finds_likeliest = false;      // whether scored tokens are the likeliest
    // The seed of random weights in place of the folder's, which may have none: for benchmarks.
    std::optional<uint64_t> random_weights = {};
  };
  // Loads the weights of `folder`, which model_folder_of has checked. Throws FileError, ConfigError.
  Evaluator(const std::filesystem::path& folder, const Spec& spec);
  // Mean loss over the counted targets of the first `max_batches` micro-batches of windows (0: of all), the same on
  // every rank. Collective. Blocks.
  EvalRecord evaluate(const EvalWindows& windows, int64_t max_batches);
  // score_texts by this model.
  TextScores scores(const std::vector<ScoredText>& texts);
  int64_t seq_length() const { return step_.seq_length; }
  const ModelSpec& model() const { return config_.spec; }

 private:
  const HfConfig config_;
  const Machine machine_;
  const StepSpec step_;
  const MemoryPlan plan_;
  ForwardRank rank_;
  Arena scratch_;
  BatchStaging staging_;
};

// The longest that the model was made for, at most 1024.
int64_t default_window(const ModelSpec& model);

}  // namespace weft
