// Micro-batches on their way from the host to where the step computes.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "weft/device/arena.h"
#include "weft/plan/step_spec.h"

namespace weft {

// Fills ids, targets, counted, positions, tokens of micro-batch b.index; spans must stay alive until it is done.
using LoadMicroBatch = std::function<void(MicroBatch& b)>;

// For micro-batches of at most `tokens` tokens in `memory`. Takes memory of its own only where the host does not reach
// that: pinned memory, of a GPU.
class BatchStaging {
 public:
  BatchStaging(std::shared_ptr<Memory> memory, int64_t tokens);
  // Lets `load` fill b. Where the host reaches b, it first calls `wait`, after which nobody uses b's tensors; where it
  // does not, only then does it copy what was filled. Blocks.
  void load(const LoadMicroBatch& load, MicroBatch& b, const std::function<void()>& wait);

 private:
  std::shared_ptr<Memory> memory_;
  std::optional<Arena> arena_;
};

}  // namespace weft
