// Where arenas take their bytes from: the host, or a device whose memory the host can touch too.
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
};

// The one for all that runs on cores.
const std::shared_ptr<Memory>& host_memory();

}  // namespace weft
