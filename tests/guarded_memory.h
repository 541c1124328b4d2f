// Memory that only ops, movers and Memory::copy may touch, as a GPU's: whoever else reads or writes it, a crash.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "weft/base/error.h"
#include "weft/comm/host_mover.h"
#include "weft/device/memory.h"

namespace weft::testing {

// Guards a device's memory: accessible while any `Opened` lives, so that one rank's op may hide a bad access of another
// rank's thread, unless they take turns.
class Guard {
 public:
  explicit Guard(std::recursive_mutex* turns = nullptr) : turns_(turns) {}
  static const std::shared_ptr<Guard>& of_process() {
    static const auto guard = std::make_shared<Guard>();
    return guard;
  }
  std::recursive_mutex* turns() const { return turns_; }
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
  std::recursive_mutex* const turns_;
  mutable std::mutex mutex_;
  std::map<void*, size_t> ranges_;
  int open_ = 0;
};

class Opened {
 public:
  explicit Opened(Guard& guard = *Guard::of_process()) : guard_(guard) {
    if (guard_.turns() != nullptr) turn_ = std::unique_lock(*guard_.turns());
    guard_.open();
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() { guard_.close(); }

 private:
  Guard& guard_;
  std::unique_lock<std::recursive_mutex> turn_;  // ends after `close`
};

class GuardedMemory final : public Memory {
 public:
  explicit GuardedMemory(std::shared_ptr<Guard> guard = Guard::of_process()) : guard_(std::move(guard)) {}
  std::byte* take(size_t bytes, const std::string& what) override {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WEFT_CHECK(p != MAP_FAILED, "no memory for {}", what);
    guard_->add(p, bytes);
    return static_cast<std::byte*>(p);
  }
  void give(std::byte* memory, size_t) override { guard_->remove(memory); }
  bool host_reaches() const override { return false; }
  void copy(void* to, const void* from, size_t bytes) const override {
    const Opened opened(*guard_);
    Memory::copy(to, from, bytes);
  }

 private:
  std::shared_ptr<Guard> guard_;
};

class GuardedMover final : public Mover {
 public:
  bool host_reaches(const void* at) const override { return !Guard::of_process()->has(at); }
  void copy(void* to, const void* from, int64_t bytes) const override {
    const Opened opened;
    host_mover()->copy(to, from, bytes);
  }
  void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) const override {
    const Opened opened;
    host_mover()->sum(from, dtype, n, out);
  }
  void sum_in_place(std::span<void* const> ranks, int mine, DType dtype, int64_t n) const override {
    const Opened opened;
    host_mover()->sum_in_place(ranks, mine, dtype, n);
  }
};

}  // namespace weft::testing
