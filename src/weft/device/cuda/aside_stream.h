// A stream of a GPU that has nothing to do.
#pragma once
#include <cuda_runtime_api.h>

namespace weft {

// The one of this GPU for all of the process, to its end: made at the first call, which is to come before kernels wait
// for other GPUs. Any thread. Throws Error.
cudaStream_t aside_stream(int device);

}  // namespace weft
