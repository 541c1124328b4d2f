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
  // Gives back what take returned, with the same `bytes`. Does not throw.
  virtual void give(std::byte* memory, size_t bytes) = 0;
  // A hint: all of it will be written soon, so what its first writing costs (a page fault each 4 KiB to 2 MiB on a
  // host) is paid now and not in the first pass. It keeps its zeros. Does not throw; does nothing where it is not
  // known.
  virtual void touch(std::byte* memory, size_t bytes) const;
  // Whether the host may touch what was taken here. If not, use `copy` (device/host_parts.h).
  virtual bool host_reaches() const { return true; }
  // Memory that both the host and kernels may touch: for small values that kernels write and the host reads, and for
  // copies. On a GPU it is pinned, and slow to allocate.
  virtual std::shared_ptr<Memory> shared() const;
  // Each side lies here or where the host may touch it. Does not wait for kernels: wait for them first. Returns when
  // the copy is done. Any thread. Throws Error.
  virtual void copy(void* to, const void* from, size_t bytes) const;
};

// The one for all that runs on cores.
const std::shared_ptr<Memory>& host_memory();

}  // namespace weft
