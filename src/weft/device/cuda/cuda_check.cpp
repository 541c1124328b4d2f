#include "weft/device/cuda/cuda_check.h"

#include "weft/base/error.h"

namespace weft {

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(fmt::format("cannot {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status)));
}

}  // namespace weft
