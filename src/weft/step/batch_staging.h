// Micro-batches on their way from the host to where the step computes.
#pragma once
#include <array>
#include <functional>
#include <memory>

#include "weft/device/arena.h"
#include "weft/ops/backend.h"
#include "weft/step/step_spec.h"

namespace weft {

// Fills ids, targets, weights, positions, tokens of micro-batch b.index; spans must stay alive until it is done.
using LoadMicroBatch = std::function<void(MicroBatch& b)>;

// For micro-batches of at most `tokens` tokens in `memory`. Takes memory of its own only where the host does not reach
// that: pinned memory, of a GPU.
class BatchStaging {
 public:
  // `poll` (may be empty) makes progress on the rank's communication while this waits (CommProgress::poll). Each token
  // may come with `top` logits of a teacher.
  BatchStaging(std::shared_ptr<Memory> memory, int64_t tokens, std::function<void()> poll = {}, int64_t top = 0);
  // Lets `load` fill b after the ops that the backend was given. If the host reaches b, it first waits for the backend;
  // if not, the device copies the filled buffer in queue order, and this must stay alive until then.
  void load(const LoadMicroBatch& load, MicroBatch& b, Backend& backend);

 private:
  static constexpr size_t kOnTheirWay = 4;  // micro-batches that the host may be ahead
  struct Slot {
    std::unique_ptr<Arena> arena;
    int64_t mark = 0;  // of the backend's queue, behind the last copy from it
  };
  void wait_passed(const Slot& slot, DeviceQueue& queue, Backend& backend) const;

  std::shared_ptr<Memory> memory_;
  std::function<void()> poll_;
  std::array<Slot, kOnTheirWay> slots_;  // no arenas where the host reaches the memory
  size_t next_ = 0;
};

}  // namespace weft
