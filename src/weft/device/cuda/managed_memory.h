// Memory of a GPU that the host can touch.
#pragma once
#include "weft/base/error.h"
#include "weft/device/memory.h"

namespace weft {

class NoMemory : public Error {
 public:
  using Error::Error;
};

// Pages that lie on GPU `device` and come to the host only where the host touches them: when weights are read or
// written, for batches and for losses. Between two steps nothing moves but those. Throws NoMemory where the GPU has
// less free than is asked for, as pages beyond that would wander for the rest of the run.
std::shared_ptr<Memory> make_managed_memory(int device);

}  // namespace weft
