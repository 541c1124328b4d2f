// Kernels on a stream, one after the other.
#pragma once
#include <cuda_runtime.h>

#include <span>

#include "weft/device/arena.h"
#include "weft/device/cuda/cuda_check.h"
#include "weft/ops/cuda/block.h"

namespace weft::gpu {

template <class Kernel>
__global__ void __launch_bounds__(kThreads) run_block(const Kernel kernel) {
  __shared__ double fold[kFoldBytes / sizeof(double)];
  __shared__ float numbers[kNumbers];
  kernel(GpuBlock(fold, numbers));
}

inline constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // of a grid, in x

class StreamLauncher {
 public:
  StreamLauncher(cudaStream_t stream, Arena& workspace) : stream_(stream), workspace_(workspace) {}

  template <class Kernel>
  void launch(int64_t blocks, const Kernel& kernel) {
    if (blocks == 0) return;
    WEFT_CHECK(blocks <= kMostBlocks, "{} blocks in a grid", blocks);
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
