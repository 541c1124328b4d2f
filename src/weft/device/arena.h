// Memory by lifetime: bump allocators whose tensors all end together. Nothing else allocates tensors.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "weft/device/memory.h"
#include "weft/tensor/tensor.h"

namespace weft {

inline constexpr int64_t kArenaAlignment = 64;  // bytes: a cache line and the widest vector

// A bump allocator. Without a capacity it only counts (its tensors have no data): that is how a dry run measures what
// a real run will need. With one, an allocation beyond it is a WEFT_CHECK: the plan was wrong.
// Not thread-safe: it belongs to one rank.
class Arena {
 public:
  explicit Arena(std::string name) : name_(std::move(name)) {}  // counts
  // Takes it from `memory`; throws Error where that has not enough.
  Arena(std::string name, int64_t capacity_bytes, std::shared_ptr<Memory> memory = host_memory());
  Arena(Arena&&) = default;
  Arena& operator=(Arena&&) = default;

  Tensor alloc(DType dtype, Shape shape, Placement place = {});
  // Returns to an earlier mark: everything allocated since then ends.
  void rewind(int64_t mark = 0);

  // A hint: the passes to come write to all its capacity (Memory::touch). Allocates nothing.
  void touch() const;

  const std::string& name() const { return name_; }
  bool counts_only() const { return memory_ == nullptr; }
  // Where its tensors lie; the host's where it only counts.
  const std::shared_ptr<Memory>& memory() const { return memory_ ? memory_.get_deleter().to : host_memory(); }
  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }
  int64_t capacity() const { return capacity_; }

 private:
  struct Give {
    std::shared_ptr<Memory> to;
    size_t bytes;
    void operator()(std::byte* p) const { to->give(p, bytes); }
  };
  std::string name_;
  std::unique_ptr<std::byte, Give> memory_;
  int64_t capacity_ = 0, used_ = 0, peak_ = 0;
};

// Rewinds an arena at the end of a block, for a layer's temporaries.
class Scope {
 public:
  explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used()) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() { arena_.rewind(mark_); }

 private:
  Arena& arena_;
  int64_t mark_;
};

// Equal arenas, handed to micro-batches and taken back.
class Slots {
 public:
  explicit Slots(std::string name) : name_(std::move(name)) {}  // as many as are taken, that only count
  // A fixed number.
  Slots(const std::string& name, int num_slots, int64_t capacity_bytes,
        const std::shared_ptr<Memory>& memory = host_memory());
  Arena& take();  // an empty arena; a WEFT_CHECK when the schedule takes more than were planned
  void give(Arena& arena);
  int num_slots() const { return int(arenas_.size()); }
  int most_taken() const { return most_taken_; }
  int64_t peak() const;        // of the arena that held most
  int64_t least_peak() const;  // of the one that held least; 0 where there is none

 private:
  std::string name_;
  bool counts_only_ = true;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<Arena*> free_;
  int most_taken_ = 0;
};

}  // namespace weft
