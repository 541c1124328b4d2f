#include "weft/device/device_mover.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/device/arena.h"

namespace weft {
namespace {

bool reaches_all(const MovingDevices& devices, int device) {
  for (int other = 0; other < devices.count(); ++other)
    if (!devices.reaches(device, other)) return false;
  return true;
}

// A device's buffer for copies of operands that it does not reach; ranks that share the device take turns.
struct Staging {
  Staging(int64_t bytes, const std::shared_ptr<Memory>& memory)
      : arena("operands of other devices", bytes, memory),
        memory(static_cast<std::byte*>(arena.alloc(DType::u8, {bytes}).data)) {}
  Arena arena;
  std::byte* const memory;
  std::mutex mutex;
};

struct Operands {
  std::span<const void* const> from;
  DType dtype;
  int64_t n;
  void* out;  // null: in place of all
};

void* element(const void* of, int64_t i, DType dtype) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(of)) + i * size_of(dtype);
}

class DeviceMover final : public Mover {
 public:
  DeviceMover(std::shared_ptr<const MovingDevices> devices, std::shared_ptr<const Mover> host, int64_t staging_bytes)
      : devices_(std::move(devices)), host_(std::move(host)), staging_(size_t(devices_->count())) {
    for (int device = 0; device < devices_->count(); ++device)
      if (!reaches_all(*devices_, device))
        staging_[size_t(device)] = std::make_unique<Staging>(staging_bytes, devices_->memory(device));
  }

  bool host_reaches(const void* at) const override { return devices_->device_of(at) < 0; }
  void copy(void* to, const void* from, int64_t bytes) const override {
    if (bytes == 0) return;
    const int there = devices_->device_of(to), device = there < 0 ? devices_->device_of(from) : there;
    if (device < 0) return host_->copy(to, from, bytes);
    devices_->copy(device, to, from, bytes);
  }
  void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) const override {
    if (n == 0) return;
    const int device = devices_->device_of(out);
    if (device < 0) return host_->sum(from, dtype, n, out);
    add(device, {from, dtype, n, out});
  }
  void sum_in_place(std::span<void* const> ranks, int mine, DType dtype, int64_t n) const override {
    if (n == 0) return;
    const int device = devices_->device_of(ranks[size_t(mine)]);
    if (device < 0) return host_->sum_in_place(ranks, mine, dtype, n);
    const std::vector<const void*> from(ranks.begin(), ranks.end());
    add(device, {from, dtype, n, nullptr});
  }

 private:
  void add(int device, const Operands& o) const {
    std::vector<size_t> out_of_reach;
    for (size_t r = 0; r < o.from.size(); ++r) {
      const int other = devices_->device_of(o.from[r]);
      WEFT_CHECK(other >= 0, "a sum of tensors, one of them on a device and another out of it");
      if (!devices_->reaches(device, other)) out_of_reach.push_back(r);
    }
    if (out_of_reach.empty()) return devices_->sum(device, o.from, o.dtype, o.n, o.out);
    add_in_parts(device, o, out_of_reach);
  }

  void add_in_parts(int device, const Operands& o, const std::vector<size_t>& out_of_reach) const {
    Staging& staging = *staging_[size_t(device)];
    const std::lock_guard lock(staging.mutex);
    const int64_t room = staging.arena.capacity() / int64_t(out_of_reach.size()) / kArenaAlignment * kArenaAlignment;
    const int64_t most = room / size_of(o.dtype);  // elements of a part
    WEFT_CHECK(most > 0, "{} bytes for operands of {} ranks", staging.arena.capacity(), out_of_reach.size());
    for (int64_t first = 0; first < o.n; first += most) {
      const int64_t n = std::min(most, o.n - first), bytes = n * size_of(o.dtype);
      std::vector<const void*> from;
      for (const void* whole : o.from) from.push_back(element(whole, first, o.dtype));
      const std::vector<const void*> there = from;
      for (size_t i = 0; i < out_of_reach.size(); ++i) {
        void* const here = staging.memory + int64_t(i) * room;
        devices_->copy(device, here, there[out_of_reach[i]], bytes);
        from[out_of_reach[i]] = here;
      }
      devices_->sum(device, from, o.dtype, n, o.out == nullptr ? nullptr : element(o.out, first, o.dtype));
      if (o.out != nullptr) continue;
      for (const size_t r : out_of_reach) devices_->copy(device, const_cast<void*>(there[r]), from[r], bytes);
    }
  }

  std::shared_ptr<const MovingDevices> devices_;
  std::shared_ptr<const Mover> host_;
  std::vector<std::unique_ptr<Staging>> staging_;  // of each device; none where it reaches all
};

}  // namespace

std::shared_ptr<const Mover> make_device_mover(std::shared_ptr<const MovingDevices> devices,
                                               std::shared_ptr<const Mover> host, int64_t staging_bytes) {
  return std::make_shared<DeviceMover>(std::move(devices), std::move(host), staging_bytes);
}

bool needs_staging(const MovingDevices& devices) {
  for (int device = 0; device < devices.count(); ++device)
    if (!reaches_all(devices, device)) return true;
  return false;
}

}  // namespace weft
