// Where arenas take their bytes from: the host, or a device.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

namespace weft {

class Memory {
 public:
  virtual ~Memory() = default;
  // `bytes` (at least one), zero, aligned to kArenaAlignment. Throws Error, which names `what`, where there is not
  // enough. Any thread.
  virtual std::byte* take(size_t bytes, const std::string& what) = 0;
  // Of take, with its bytes. Does not throw.
  virtual void give(std::byte* memory, size_t bytes) = 0;
  // Whether the host may touch what was taken here. What it may not goes by `copy` (device/host_parts.h).
  virtual bool host_reaches() const { return true; }
  // Memory that both the host and kernels may touch, for what is small and read by the host as often as it is written
  // by kernels, and for what is copied. Of a GPU it is pinned: taking it takes long.
  virtual std::shared_ptr<Memory> shared() const;
  // Of bytes that lie here or where the host may touch them, either side. Finds done what was computed only where that
  // has been waited for; returns when done. Any thread. Throws Error.
  virtual void copy(void* to, const void* from, size_t bytes) const;
};

// The one for all that runs on cores.
const std::shared_ptr<Memory>& host_memory();

}  // namespace weft
