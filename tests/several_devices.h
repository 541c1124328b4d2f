// Several devices of a host, whose ops and sums may touch their own memory and what they reach, nothing else: whoever
// touches other memory, a crash. They take turns, so that none finds the memory of another open.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "guarded_memory.h"
#include "weft/device/device_mover.h"

namespace weft::testing {

// Whether kernels of a device reach the memory of another.
using Reach = bool (*)(int device, int other);
inline bool all_others(int, int) { return true; }
inline bool none(int, int) { return false; }
inline bool the_next(int device, int other) { return other == device + 1; }  // one way

class SeveralDevices final : public MovingDevices {
 public:
  SeveralDevices(int count, Reach reach) : reach_(reach) {
    for (int d = 0; d < count; ++d) {
      guards_.push_back(std::make_shared<Guard>(&turns_));
      memories_.push_back(std::make_shared<GuardedMemory>(guards_.back()));
    }
  }
  const std::shared_ptr<Guard>& guard(int device) const { return guards_[size_t(device)]; }
  int64_t sums_of(int device) const { return sums_[size_t(device)]; }

  int count() const override { return int(guards_.size()); }
  const std::shared_ptr<Memory>& memory(int device) const override { return memories_[size_t(device)]; }
  int device_of(const void* at) const override {
    for (int d = 0; d < count(); ++d)
      if (guards_[size_t(d)]->has(at)) return d;
    return -1;
  }
  bool reaches(int device, int other) const override { return device == other || reach_(device, other); }
  void copy(int device, void* to, const void* from, int64_t bytes) const override {
    const auto ends = {device_of(to), device_of(from)};
    WEFT_CHECK(std::count(ends.begin(), ends.end(), device) > 0, "a copy by device {} between others", device);
    with_open([&](int d) { return std::count(ends.begin(), ends.end(), d) > 0; },
              [&] { host_mover()->copy(to, from, bytes); });
  }
  void sum(int device, std::span<const void* const> from, DType dtype, int64_t n, void* out) const override {
    ++sums_[size_t(device)];
    with_open([&](int d) { return reaches(device, d); },
              [&] {
                if (out != nullptr) return host_mover()->sum(from, dtype, n, out);
                std::vector<void*> all;
                for (const void* x : from) all.push_back(const_cast<void*>(x));
                host_mover()->sum_in_place(all, 0, dtype, n);
              });
  }

 private:
  template <class Which, class F>
  void with_open(const Which& which, const F& f) const {
    std::vector<std::unique_ptr<Opened>> opened;
    for (int d = 0; d < count(); ++d)
      if (which(d)) opened.push_back(std::make_unique<Opened>(*guards_[size_t(d)]));
    f();
  }
  const Reach reach_;
  std::recursive_mutex turns_;
  std::vector<std::shared_ptr<Guard>> guards_;
  std::vector<std::shared_ptr<Memory>> memories_;
  mutable std::array<std::atomic<int64_t>, 8> sums_ = {};
};

}  // namespace weft::testing
