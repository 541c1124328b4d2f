// Memory that only ops, movers and Memory::copy may touch, as a GPU's: whoever else reads or writes it, a crash.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "weft/base/error.h"
#include "weft/comm/host_mover.h"
#include "weft/device/memory.h"

namespace weft::testing {

// All guarded memory of the process: open while any `Opened` lives, so that one rank's op may hide what another rank's
// thread touches.
class Guard {
 public:
  static Guard& of_process() {
    static Guard guard;
    return guard;
  }
  void add(void* at, size_t bytes) {
    const std::lock_guard lock(mutex_);
    ranges_[at] = bytes;
    if (open_ == 0) set(at, bytes, PROT_NONE);
  }
  void remove(void* at) {
    const std::lock_guard lock(mutex_);
    munmap(at, ranges_.at(at));
    ranges_.erase(at);
  }
  bool has(const void* at) const {
    const std::lock_guard lock(mutex_);
    const auto next = ranges_.upper_bound(const_cast<void*>(at));
    if (next == ranges_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(next);
    return static_cast<const std::byte*>(at) < static_cast<const std::byte*>(begin) + bytes;
  }
  void open() { count(1); }
  void close() { count(-1); }

 private:
  static void set(void* at, size_t bytes, int protection) {
    WEFT_CHECK(mprotect(at, bytes, protection) == 0, "memory cannot be guarded: error {}", errno);
  }
  void count(int more) {
    const std::lock_guard lock(mutex_);
    const bool was_open = open_ > 0;
    open_ += more;
    if (was_open == (open_ > 0)) return;
    for (const auto& [at, bytes] : ranges_) set(at, bytes, open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  mutable std::mutex mutex_;
  std::map<void*, size_t> ranges_;
  int open_ = 0;
};

class Opened {
 public:
  Opened() { Guard::of_process().open(); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { Guard::of_process().close(); }
};

class GuardedMemory final : public Memory {
 public:
  std::byte* take(size_t bytes, const std::string& what) override {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WEFT_CHECK(p != MAP_FAILED, "no memory for {}", what);
    Guard::of_process().add(p, bytes);
    return static_cast<std::byte*>(p);
  }
  void give(std::byte* memory, size_t) override { Guard::of_process().remove(memory); }
  bool host_reaches() const override { return false; }
  void copy(void* to, const void* from, size_t bytes) const override {
    const Opened opened;
    Memory::copy(to, from, bytes);
  }
};

class GuardedMover final : public Mover {
 public:
  bool host_reaches(const void* at) const override { return !Guard::of_process().has(at); }
  void copy(void* to, const void* from, int64_t bytes) const override {
    const Opened opened;
    host_mover()->copy(to, from, bytes);
  }
  void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) const override {
    const Opened opened;
    host_mover()->sum(from, dtype, n, out);
  }
  void sum_in_place(std::span<void* const> ranks, DType dtype, int64_t n) const override {
    const Opened opened;
    host_mover()->sum_in_place(ranks, dtype, n);
  }
};

}  // namespace weft::testing
