// Tensors of ranks that are threads of a process, on one or several devices.
#pragma once
#include <cstdint>
#include <memory>

#include "weft/device/memory.h"
#include "weft/device/mover.h"

namespace weft {

// What the mover needs of devices 0, 1, ... Each call returns when it is done. Any thread. Throws Error.
class MovingDevices {
 public:
  virtual ~MovingDevices() = default;
  virtual int count() const = 0;
  virtual const std::shared_ptr<Memory>& memory(int device) const = 0;
  // In whose memory it lies; -1 where the host reaches.
  virtual int device_of(const void* at) const = 0;
  // Whether kernels of `device` read and write memory of `other`.
  virtual bool reaches(int device, int other) const = 0;
  // Copies by `device`, between its memory and that of any device or the host.
  virtual void copy(int device, void* to, const void* from, int64_t bytes) const = 0;
  // Mover::sum by a kernel of `device`, which reaches all that it is given; `out` null: in place of every one of them.
  virtual void sum(int device, std::span<const void* const> from, DType dtype, int64_t n, void* out) const = 0;
};

// Staging on each device that does not reach every other one; allocated when the mover is made.
inline constexpr int64_t kMoverStaging = int64_t{32} << 20;  // bytes

// The calling rank's device adds: it reads and writes its peers' memory itself. Operands that it does not reach are
// copied to it in parts, and in-place sums copied back, with the same bits. `host` moves what the host reaches.
std::shared_ptr<const Mover> make_device_mover(std::shared_ptr<const MovingDevices> devices,
                                               std::shared_ptr<const Mover> host,
                                               int64_t staging_bytes = kMoverStaging);
// Whether any of them has such a buffer.
bool needs_staging(const MovingDevices& devices);

}  // namespace weft
