// What a device does one after the other, later than it is given it.
#pragma once
#include <cstdint>

namespace weft {

// A place among what a device was given.
enum class Stamp : int64_t { none = 0 };

// Streams of one device go on beside each other, and can wait for each other while no host does. For its rank's thread.
// Throws Error.
class Stream {
 public:
  virtual ~Stream() = default;
  // Where everything has been done that was given before the call.
  virtual int64_t mark() = 0;
  // Does not block.
  virtual bool passed(int64_t mark) = 0;
  // What is given from now on begins when `other`, of the same device, has passed its mark. Does not block.
  virtual void wait_for(Stream& other, int64_t mark) = 0;
  // Bytes between its device's memory and the host's that is shared with it (Memory::shared), either way. Does not
  // block: they must stay as they are till the stream has passed.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
};

}  // namespace weft
