// What a run keeps from step to step: weights, gradients, optimizer state, and the model over them.
#pragma once
#include <deque>
#include <memory>
#include <optional>

#include "weft/optim/grad_norm.h"
#include "weft/optim/optimizer.h"
#include "weft/optim/weight_norms.h"
#include "weft/step/step_spec.h"

namespace weft {

// What stays where it lies from one phase of a run to the next, whose steps differ but whose weights do not.
struct KeptArenas {
  Arena params, states;
  std::optional<Arena> frozen;  // none: the frozen weights are others
};

// Default-made, they count: a dry run. With capacities, they hold.
struct PersistentArenas {
  struct Sizes {
    int64_t params = 0, grads = 0, states = 0, frozen = 0, transit = 0, constants = 0, records = 0,
            snapshot = 0;  // bytes
    bool operator==(const Sizes&) const = default;
    int64_t total() const { return params + grads + states + frozen + transit + constants + records + snapshot; }
  };
  PersistentArenas() = default;
  explicit PersistentArenas(const Sizes& sizes, const std::shared_ptr<Memory>& memory = host_memory());
  // With those of another phase, whose tensors lie at the same places: weights and state are as they were.
  PersistentArenas(const Sizes& sizes, const std::shared_ptr<Memory>& memory, KeptArenas kept);
  KeptArenas take_kept();
  Sizes peak() const;

  Arena params{"parameters"};  // masters and compute copies
  Arena grads{"gradients"};    // with the extra sums of invariant numerics
  Arena states{"optimizer state"};
  Arena frozen{"frozen weights"};      // as layers read them
  Arena transit{"blocks in transit"};  // of ZeRO: whole units, fetched or to be reduced
  Arena constants{"constants"};        // the tables of rotations
  Arena records{"losses and norms"};   // where the host reaches them
  Arena snapshot{"snapshot"};          // of what is written while the run goes on
};

// A model that scores.
struct FrozenModel {
  FrozenModel(const FrozenSpec& spec, const StepSpec& step, PersistentArenas& arenas, const ProcessMesh& mesh);
  ParamStore params;
  Transformer model;
};

class TrainingState {
 public:
  TrainingState(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer, PersistentArenas& arenas,
                const ProcessMesh& mesh = single_mesh());
  ParamStore params;
  Transformer model;
  // As StepSpec names them; their weights are the owner's to write.
  std::deque<FrozenModel> frozen;
  std::optional<FrozenModel> teacher;
  std::unique_ptr<GradNorm> norm;
  std::unique_ptr<WeightNorms> weight_norms;  // none: they are not measured
  // f64 [micro-batches of a step, of all ranks]: sums over counted tokens, and of multi-token prediction, if there is.
  Tensor losses, mtp_losses;
  Tensor divergences;  // likewise, from a teacher, here or stored
  // u8, of as many bytes as this rank writes of a checkpoint, and behind them two slices of what comes from a
  // neighbour; none where it writes at once.
  Tensor snapshot;
};

// The sum of the losses of all micro-batches, of all ranks: each is the sum over the ranks of cp that share its
// sequences, and zero on the others. The same on every rank; 0 where they have no memory. Blocks.
double wait_sum_losses(const ProcessMesh& mesh, const Tensor& losses);

}  // namespace weft
