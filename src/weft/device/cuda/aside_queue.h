// An idle queue of a GPU.
#pragma once
#include <cuda_runtime_api.h>

namespace weft {

// One per GPU and process, never destroyed: made at the first call, which must come before kernels wait for other GPUs.
// Any thread. Throws Error.
cudaStream_t aside_queue(int device);

}  // namespace weft
