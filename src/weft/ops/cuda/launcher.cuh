// Kernels on a stream, one after the other.
#pragma once
#include <cuda_runtime.h>

#include <span>

#include "weft/device/arena.h"
#include "weft/ops/cuda/block.h"

namespace weft::gpu {

// Throws Error with the name of what failed and CUDA's word for it.
void check_cuda(cudaError_t status, const char* what);

template <class Kernel>
__global__ void __launch_bounds__(kThreads) run_block(const Kernel kernel) {
  __shared__ double fold[kFoldBytes / sizeof(double)];
  __shared__ float numbers[kNumbers];
  kernel(GpuBlock(fold, numbers));
}

class StreamLauncher {
 public:
  StreamLauncher(cudaStream_t stream, Arena& workspace) : stream_(stream), workspace_(workspace) {}

  template <class Kernel>
  void launch(int64_t blocks, const Kernel& kernel) {
    if (blocks == 0) return;
    run_block<<<unsigned(blocks), kThreads, 0, stream_>>>(kernel);
    check_cuda(cudaGetLastError(), "launch a kernel");
  }
  template <class E>
  E* memory(int64_t count) {
    return static_cast<E*>(workspace_.alloc(DType::u8, {count * int64_t(sizeof(E))}).data);
  }
  template <class E>
  const E* copied(std::span<const E> from) {
    E* to = memory<E>(int64_t(from.size()));
    check_cuda(cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream_), "copy to the GPU");
    return to;
  }

 private:
  cudaStream_t stream_;
  Arena& workspace_;
};

}  // namespace weft::gpu
