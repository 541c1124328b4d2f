// Tensors of ranks that share GPUs, moved by the GPU of the rank that asks.
#pragma once
#include <memory>

#include "weft/device/mover.h"

namespace weft {

// What does not lie in a GPU's memory is summed by `host`.
std::shared_ptr<const Mover> make_cuda_mover(int device, std::shared_ptr<const Mover> host);

}  // namespace weft
