#include "weft/step/batch_staging.h"

#include <chrono>
#include <thread>
#include <utility>

namespace weft {
namespace {

constexpr auto kPause = std::chrono::microseconds(50);
constexpr auto kLong = std::chrono::seconds(10);

int64_t bytes_of(int64_t tokens, int64_t top) {
  Arena counted("micro-batch");
  alloc_micro_batch(counted, tokens, DType::f64, {.further = true, .values = true, .top = top});
  return counted.peak();
}

// What is loaded, of which some may not exist.
std::array<Tensor*, 11> loaded_of(MicroBatch& b) {
  return {&b.ids,         &b.targets,       &b.weights, &b.positions,  &b.tokens, &b.mtp_targets,
          &b.mtp_weights, &b.value_weights, &b.top.ids, &b.top.logits, &b.top.lse};
}

}  // namespace

BatchStaging::BatchStaging(std::shared_ptr<Memory> memory, int64_t tokens, std::function<void()> poll, int64_t top)
    : memory_(std::move(memory)), poll_(std::move(poll)) {
  if (memory_->host_reaches()) return;
  for (Slot& slot : slots_)
    slot.arena = std::make_unique<Arena>("a micro-batch on its way", bytes_of(tokens, top), memory_->shared());
}

void BatchStaging::load(const LoadMicroBatch& load, MicroBatch& b, Backend& backend) {
  if (memory_->host_reaches()) {
    backend.wait_all();
    return load(b);
  }
  IssuedOps* const issued = backend.issued();
  WEFT_CHECK(issued != nullptr, "a backend that runs ops at once has memory that the host does not reach");
  DeviceQueue* const queue = issued->issue_all();
  Slot& slot = slots_[next_++ % kOnTheirWay];
  wait_passed(slot, *queue, backend);
  const Scope scope(*slot.arena);
  MicroBatch tensors = alloc_micro_batch(
      *slot.arena, b.ids.rows(), b.weights.dtype,
      {.further = bool(b.mtp_targets), .values = bool(b.value_weights), .top = b.top.ids ? b.top.ids.cols() : 0});
  MicroBatch here = b;
  const auto there = loaded_of(b), staged = loaded_of(here), own = loaded_of(tensors);
  for (size_t i = 0; i < there.size(); ++i) *staged[i] = *own[i];
  load(here);
  for (size_t i = 0; i < there.size(); ++i)
    if (*there[i]) queue->copy(there[i]->data, staged[i]->data, there[i]->bytes());
  b.spans = here.spans;
  slot.mark = queue->mark();
}

// Not for all that the device was given: it would have nothing to do for a moment.
void BatchStaging::wait_passed(const Slot& slot, DeviceQueue& queue, Backend& backend) const {
  const auto began = std::chrono::steady_clock::now();
  while (!queue.passed(slot.mark)) {
    if (std::chrono::steady_clock::now() - began > kLong) return backend.wait_all();  // which finds out why
    if (poll_) poll_();
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace weft
