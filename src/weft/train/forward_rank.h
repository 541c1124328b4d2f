// One rank's part of a model that only runs forward: its weights, and the backend over them.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "weft/plan/layout.h"
#include "weft/plan/memory_plan.h"
#include "weft/step/stage_links.h"
#include "weft/train/rank_backend.h"

namespace weft {

// What one rank of a layout has of the model, for micro-batches of `size` windows of `seq_length` tokens.
struct ForwardShape {
  Precision precision;
  int64_t seq_length, size;
};
// Takes parallel.* of the recipe alone. Such a step has no schedule.
StepSpec forward_step(const Recipe::Parallel& layout, const ModelSpec& model, const ForwardShape& shape, int rank);
// Throws ConfigError where the model cannot be cut so, with the nearest layout that can.
void check_forward_layout(const Recipe::Parallel& layout, const ModelSpec& model, const ForwardShape& shape);

class ForwardRank : public RankBackend {
 public:
  // Loads this rank's part of the weights of `folder`, which model_folder_of has checked. `plan` is of `step`, which
  // must outlive this. Throws FileError, ConfigError.
  struct Source {
    const std::filesystem::path& folder;
    const ModelSpec& model;
    // The ranks of ep are threads of one process: each reads the experts' weights of all where they lie
    // (Param::of_ranks), and memory of weights ends with the last rank that reads it. Then it is collective.
    bool reaches_experts = false;
    std::optional<uint64_t> random_weights = {};  // their seed: nothing is read
  };
  ForwardRank(const Source& source, const StepSpec& step, const MemoryPlan& plan, const Machine& machine,
              const ProcessMesh& mesh);
  ~ForwardRank() { end(); }

  const std::shared_ptr<PersistentArenas> arenas;
  ParamStore params;
  Transformer model;
  StageLinks links;

 private:
  void reach_experts();
  std::vector<std::shared_ptr<PersistentArenas>> reached_;  // of the ranks of ep
};

}  // namespace weft
