// Memory that only ops, movers and Memory::copy may touch, as a GPU's: whoever else reads or writes it, a crash.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "weft/base/error.h"
#include "weft/comm/host_mover.h"
#include "weft/device/memory.h"

namespace weft::testing {

// A device's memory, accessible while any `Opened` lives, so that one rank's op may hide a bad access of another rank's
// thread, unless they take turns. All of it lies in one range of large pages: each op opens and closes that whole.
class Guard {
 public:
  explicit Guard(std::recursive_mutex* turns = nullptr) : turns_(turns) {
    void* all = mmap(nullptr, kMost + kLargePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    WEFT_CHECK(all != MAP_FAILED, "no addresses for guarded memory: error {}", errno);
    mapped_ = static_cast<std::byte*>(all);
    begin_ = mapped_ + (kLargePage - reinterpret_cast<uintptr_t>(all) % kLargePage) % kLargePage;
    madvise(begin_, kMost, MADV_HUGEPAGE);
    free_[0] = kMost;
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { munmap(mapped_, kMost + kLargePage); }
  static const std::shared_ptr<Guard>& of_process() {
    static const auto guard = std::make_shared<Guard>();
    return guard;
  }
  std::recursive_mutex* turns() const { return turns_; }
  // Memory that is zero.
  std::byte* take(size_t bytes) {
    bytes = std::max<size_t>(1, (bytes + kGrain - 1) / kGrain) * kGrain;
    std::byte* const at = begin_ + reserve(bytes);
    open();
    std::memset(at, 0, bytes);
    close();
    return at;
  }
  void give(std::byte* memory) {
    const std::lock_guard lock(mutex_);
    const auto taken = taken_.find(size_t(memory - begin_));
    WEFT_CHECK(taken != taken_.end(), "memory that was not taken");
    auto here = free_.insert(*taken).first;
    taken_.erase(taken);
    const auto join = [&](auto first, auto second) {  // where they touch
      if (first->first + first->second != second->first) return first == here ? first : second;
      first->second += second->second;
      free_.erase(second);
      return first;
    };
    if (here != free_.begin()) here = join(std::prev(here), here);
    if (std::next(here) != free_.end()) join(here, std::next(here));
  }
  bool has(const void* at) const {
    const auto* byte = static_cast<const std::byte*>(at);
    return byte >= begin_ && byte < begin_ + kMost;
  }
  void open() { count(1); }
  void close() { count(-1); }

 private:
  static constexpr size_t kMost = size_t{4} << 30, kLargePage = size_t{2} << 20, kGrain = 4096;

  size_t reserve(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const auto& range) { return range.second >= bytes; };
    const auto found = std::find_if(free_.begin(), free_.end(), fits);
    WEFT_CHECK(found != free_.end(), "no guarded memory for {} bytes", bytes);
    const auto [first, size] = *found;
    free_.erase(found);
    if (size > bytes) free_[first + bytes] = size - bytes;
    taken_[first] = bytes;
    if (first + bytes > used_) {  // so far, nobody may reach what lies behind
      used_ = (first + bytes + kLargePage - 1) / kLargePage * kLargePage;
      if (open_ > 0) set(0, used_, PROT_READ | PROT_WRITE);
    }
    return first;
  }
  void set(size_t first, size_t bytes, int protection) {
    WEFT_CHECK(mprotect(begin_ + first, bytes, protection) == 0, "memory cannot be guarded: error {}", errno);
  }
  void count(int more) {
    const std::lock_guard lock(mutex_);
    const bool was_open = open_ > 0;
    open_ += more;
    if (was_open != (open_ > 0) && used_ > 0) set(0, used_, open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  std::recursive_mutex* const turns_;
  mutable std::mutex mutex_;
  std::byte *mapped_ = nullptr, *begin_ = nullptr;
  std::map<size_t, size_t> free_, taken_;  // [first byte]: bytes
  size_t used_ = 0;                        // bytes from begin_ on, whole large pages
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
  std::byte* take(size_t bytes, const std::string&) override { return guard_->take(bytes); }
  void give(std::byte* memory, size_t) override { guard_->give(memory); }
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
