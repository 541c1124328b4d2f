// Stands for nccl_fabric.cu where NCCL was not found.
#include "weft/base/error.h"
#include "weft/ops/cuda/nccl_fabric.h"

namespace weft {

std::shared_ptr<Fabric> make_nccl_fabric(int) {
  throw Error(
      "weft's module for GPUs was built where there was no NCCL (nccl.h and libnccl.so.2; docs/gpu.md says where CMake "
      "looks)");
}

}  // namespace weft
