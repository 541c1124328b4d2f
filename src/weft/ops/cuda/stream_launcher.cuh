// Kernels on a stream, one after the other.
#pragma once
#include <cuda_runtime.h>

#include <span>

#include "weft/device/arena.h"
#include "weft/device/cuda/cuda_check.h"
#include "weft/ops/cuda/tile_block.h"

namespace weft::gpu {

template <class Kernel>
__global__ void __launch_bounds__(kThreads) run_block(const Kernel kernel) {
  __shared__ double fold[kFoldBytes / sizeof(double)];
  __shared__ float numbers[kNumbers];
  kernel(GpuBlock(fold, numbers));
}

template <class Kernel>
__global__ void __launch_bounds__(kThreads, 1) run_tiles(const Kernel kernel) {
  extern __shared__ __align__(128) std::byte shared[];
  kernel(GpuTileBlock(shared));
}

inline constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // of a grid, in x

class StreamLauncher {
 public:
  StreamLauncher(cudaStream_t stream, Arena& workspace, int shared_bytes)
      : stream_(stream), workspace_(workspace), shared_bytes_(shared_bytes) {}

  template <class Kernel>
  void launch(int64_t blocks, const Kernel& kernel) {
    if (blocks == 0) return;
    WEFT_CHECK(blocks <= kMostBlocks, "{} blocks in a grid", blocks);
    run_block<<<unsigned(blocks), kThreads, 0, stream_>>>(kernel);
    check_cuda(cudaGetLastError(), "launch a kernel");
  }
  template <class Kernel>
  void launch_tiles(int64_t blocks, const Kernel& kernel) {
    if (blocks == 0) return;
    WEFT_CHECK(blocks <= kMostBlocks, "{} blocks in a grid", blocks);
    const auto bytes = int(Kernel::kSharedBytes);
    check_cuda(cudaFuncSetAttribute(run_tiles<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               "give a kernel its shared memory");
    run_tiles<<<unsigned(blocks), kThreads, size_t(bytes), stream_>>>(kernel);
    check_cuda(cudaGetLastError(), "launch a kernel");
  }
  bool has_shared(int64_t bytes) const { return bytes <= shared_bytes_; }
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
  int shared_bytes_;  // that a block may have
};

}  // namespace weft::gpu
