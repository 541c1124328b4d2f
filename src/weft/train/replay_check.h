// Finds a processor that computes wrong gradients without a sign. In a step that is replayed, each rank first does the
// forward and backward of its data parallel neighbour, from the same weights, data and random numbers, and then its
// own: every gradient must have the same bits on both. (replica_check.h compares weights, which all ranks make from the
// same sum of gradients: a wrong one is in all of them.)
#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/train/rank_run.h"

namespace weft {

struct ReplayDifference {
  std::string tensor;       // the first gradient that was computed, "blocks.3.mlp.up.weight"
  int64_t tensors = 0;      // that differ between these two ranks, counted once for each micro-batch
  int64_t micro_batch = 0;  // of the global batch
  int rank = 0, again = 0;  // whose work it was, and who did it again
  std::vector<int> ranks;   // that may have computed wrongly: those that are in most of the pairs that differ
  std::string to_string() const;
  nlohmann::json to_json() const;
};

// Whether a rank describes its machine (kernels, threads) otherwise than rank 0 does, so that the same work may have
// other bits: the first such rank, and both descriptions; empty where all are alike. The same on every rank. Blocks
// until all have called it.
std::string wait_machines_differ(Communicator& world, const std::string& machine);

class ReplayCheck {
 public:
  // The layout has several data parallel ranks, with as many micro-batches each, on machines that are alike.
  explicit ReplayCheck(RankRun& rank);

  // The number in the global batch of the neighbour's micro-batch that it counts as `micro_batch`.
  int64_t of_neighbour(int64_t micro_batch) const;
  // For Executor::StepInput::begins: keeps a hash of each gradient of each micro-batch when it is whole, of the
  // neighbour's work or of this rank's own. Forgets those of such a pass before.
  enum class Work : uint8_t { replayed, own };
  using Begins = std::function<void(const Action*, const Instruction&)>;
  Begins watch(Work work, int64_t step);
  // After both passes: the same on every rank; none: all gradients are alike. Blocks until all have called it.
  std::optional<ReplayDifference> wait_compare();

 private:
  struct Gradient {
    int64_t micro_batch;
    const Param* param;
    uint64_t hash;
  };
  using Gradients = std::vector<Gradient>;  // in the order in which they become whole
  void keep(Work work, int64_t micro_batch, int unit, int64_t step);
  Gradients& of(Work work) { return gradients_[size_t(work)]; }
  int neighbour_of(int rank) const;
  std::string wait_first_difference(int rank, int again);

  RankRun& rank_;
  const GradientOrder neighbour_;
  Gradients gradients_[2];
};

}  // namespace weft
