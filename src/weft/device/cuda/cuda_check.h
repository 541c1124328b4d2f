// What CUDA's calls return, as errors.
#pragma once
#include <cuda_runtime_api.h>

namespace weft {

// Throws Error "cannot launch a kernel: an illegal memory access was encountered (cudaErrorIllegalAddress)".
void check_cuda(cudaError_t status, const char* what);

}  // namespace weft
