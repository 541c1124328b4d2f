#include "weft/step/batch_staging.h"

#include <chrono>
#include <thread>
#include <utility>

namespace weft {
namespace {

constexpr auto kPause = std::chrono::microseconds(50);
constexpr auto kLong = std::chrono::seconds(10);

int64_t bytes_of(int64_t tokens) {
  Arena counted("micro-batch");
  alloc_micro_batch(counted, tokens, DType::f64, true, true);
  return counted.peak();
}

}  // namespace

BatchStaging::BatchStaging(std::shared_ptr<Memory> memory, int64_t tokens, std::function<void()> poll)
    : memory_(std::move(memory)), poll_(std::move(poll)) {
  if (memory_->host_reaches()) return;
  for (Slot& slot : slots_)
    slot.arena = std::make_unique<Arena>("a micro-batch on its way", bytes_of(tokens), memory_->shared());
}

void BatchStaging::load(const LoadMicroBatch& load, MicroBatch& b, Backend& backend) {
  if (memory_->host_reaches()) {
    backend.wait_all();
    return load(b);
  }
  DeviceQueue* const queue = backend.queue();
  WEFT_CHECK(queue != nullptr, "a backend that runs ops at once has memory that the host does not reach");
  Stream* const stream = queue->issue_all();
  Slot& slot = slots_[next_++ % kOnTheirWay];
  wait_passed(slot, *stream, backend);
  const Scope scope(*slot.arena);
  const MicroBatch tensors =
      alloc_micro_batch(*slot.arena, b.ids.rows(), b.weights.dtype, bool(b.mtp_targets), bool(b.value_weights));
  static constexpr Tensor MicroBatch::*kLoaded[] = {
      &MicroBatch::ids,    &MicroBatch::targets,     &MicroBatch::weights,     &MicroBatch::positions,
      &MicroBatch::tokens, &MicroBatch::mtp_targets, &MicroBatch::mtp_weights, &MicroBatch::value_weights};
  MicroBatch here = b;
  for (const auto tensor : kLoaded) here.*tensor = tensors.*tensor;
  load(here);
  for (const auto tensor : kLoaded)
    if (b.*tensor) stream->copy((b.*tensor).data, (here.*tensor).data, (b.*tensor).bytes());
  b.spans = here.spans;
  slot.mark = stream->mark();
}

// Not for all that the device was given: it would have nothing to do for a moment.
void BatchStaging::wait_passed(const Slot& slot, Stream& stream, Backend& backend) const {
  const auto began = std::chrono::steady_clock::now();
  while (!stream.passed(slot.mark)) {
    if (std::chrono::steady_clock::now() - began > kLong) return backend.wait_all();  // which finds out why
    if (poll_) poll_();
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace weft
