#include "weft/train/batch_staging.h"

#include <utility>

namespace weft {
namespace {

int64_t bytes_of(int64_t tokens) {
  Arena counted("micro-batch");
  alloc_micro_batch(counted, tokens);
  return counted.peak();
}

}  // namespace

BatchStaging::BatchStaging(std::shared_ptr<Memory> memory, int64_t tokens) : memory_(std::move(memory)) {
  if (!memory_->host_reaches()) arena_.emplace("a micro-batch on its way", bytes_of(tokens), memory_->shared());
}

void BatchStaging::load(const LoadMicroBatch& load, MicroBatch& b, const std::function<void()>& wait) {
  if (!arena_) {
    wait();
    return load(b);
  }
  const Scope scope(*arena_);
  MicroBatch here = b;
  const MicroBatch tensors = alloc_micro_batch(*arena_, b.ids.rows());
  here.ids = tensors.ids, here.targets = tensors.targets, here.counted = tensors.counted;
  here.positions = tensors.positions, here.tokens = tensors.tokens;
  load(here);
  wait();
  const auto send = [&](const Tensor& to, const Tensor& from) {
    memory_->copy(to.data, from.data, size_t(to.bytes()));
  };
  send(b.ids, here.ids);
  send(b.targets, here.targets);
  send(b.counted, here.counted);
  send(b.positions, here.positions);
  send(b.tokens, here.tokens);
  b.spans = here.spans;
}

}  // namespace weft
