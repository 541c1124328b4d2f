// Memory of a GPU, and memory of the host that a GPU reaches.
#pragma once
#include "weft/base/error.h"
#include "weft/device/memory.h"

namespace weft {

class NoMemory : public Error {
 public:
  using Error::Error;
};

// Memory of GPU `device`, which the host does not reach; its `shared` is pinned memory of the host, at the same
// addresses on the GPU. take throws NoMemory where there is less than is asked for.
std::shared_ptr<Memory> make_cuda_memory(int device);

}  // namespace weft
