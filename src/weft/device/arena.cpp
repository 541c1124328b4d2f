#include "weft/device/arena.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

int64_t rounded(int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

}  // namespace

Arena::Arena(std::string name, int64_t capacity_bytes, std::shared_ptr<Memory> memory)
    : name_(std::move(name)), capacity_(capacity_bytes) {
  const size_t bytes = std::max<size_t>(size_t(rounded(capacity_bytes)), kArenaAlignment);
  std::byte* p = memory->take(bytes, name_);
  memory_ = {p, Give{std::move(memory), bytes}};
}

void Arena::touch() const {
  if (memory_) memory()->touch(memory_.get(), memory_.get_deleter().bytes);
}

Tensor Arena::alloc(DType dtype, Shape shape, Placement place) {
  const int64_t bytes = rounded(shape.elements() * size_of(dtype));
  void* data = memory_ ? memory_.get() + used_ : nullptr;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  WEFT_CHECK(counts_only() || used_ <= capacity_, "arena '{}' exceeds its plan: {} bytes of {}", name_, used_,
             capacity_);
  return {data, dtype, shape, place};
}

void Arena::rewind(int64_t mark) {
  WEFT_CHECK(mark >= 0 && mark <= used_, "arena '{}' rewound from {} to {}", name_, used_, mark);
  used_ = mark;
}

Slots::Slots(const std::string& name, int num_slots, int64_t capacity_bytes, const std::shared_ptr<Memory>& memory)
    : name_(name), counts_only_(false) {
  for (int i = 0; i < num_slots; ++i) {
    arenas_.push_back(std::make_unique<Arena>(name, capacity_bytes, memory));
    free_.push_back(arenas_.back().get());
  }
}

Arena& Slots::take() {
  if (counts_only_ && free_.empty()) free_.push_back(arenas_.emplace_back(std::make_unique<Arena>(name_)).get());
  WEFT_CHECK(!free_.empty(), "the schedule keeps more than the {} micro-batches planned", arenas_.size());
  Arena* arena = free_.back();
  free_.pop_back();
  most_taken_ = std::max(most_taken_, int(arenas_.size() - free_.size()));
  arena->rewind();
  return *arena;
}

void Slots::give(Arena& arena) { free_.push_back(&arena); }

int64_t Slots::least_peak() const {
  int64_t bytes = peak();
  for (const auto& arena : arenas_) bytes = std::min(bytes, arena->peak());
  return bytes;
}

int64_t Slots::peak() const {
  int64_t bytes = 0;
  for (const auto& arena : arenas_) bytes = std::max(bytes, arena->peak());
  return bytes;
}

}  // namespace weft
