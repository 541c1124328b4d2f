// Tensors of ranks that are threads, moved by their GPUs.
#pragma once
#include "weft/ops/cuda/cuda_device.h"

namespace weft {

// Between the memories of these GPUs, and the host's. Where one does not reach another's memory, or its kernels read
// there other bytes than were written, a note says so.
CudaMover make_cuda_mover(std::span<const int> gpus, std::shared_ptr<const Mover> host);

}  // namespace weft
