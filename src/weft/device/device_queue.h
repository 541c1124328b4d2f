// A queue of work that a device runs in order, asynchronously.
#pragma once
#include <cstdint>

namespace weft {

// A place among what a device was given.
enum class Stamp : int64_t { none = 0 };

// Queues of one device run concurrently, and can wait for each other without the host. For its rank's thread. Throws
// Error.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // The place behind all work given before the call.
  virtual int64_t mark() = 0;
  // Does not block.
  virtual bool passed(int64_t mark) = 0;
  // Later work begins when `other`, of the same device, has passed its mark. Does not block.
  virtual void wait_for(DeviceQueue& other, int64_t mark) = 0;
  // Bytes between its device's memory and the host's that is shared with it (Memory::shared), either way. Does not
  // block: they must stay as they are till the queue has passed.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
};

}  // namespace weft
