// Kernels on a queue, one after the other.
#pragma once
#include <cuda_runtime.h>

#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "weft/device/arena.h"
#include "weft/device/cuda/cuda_check.h"
#include "weft/ops/cuda/cannot_record.h"
#include "weft/ops/cuda/tile_block.h"

namespace weft::gpu {

template <class Kernel>
__global__ void __launch_bounds__(kThreads) run_block(const Kernel kernel) {
  __shared__ double fold[kFoldBytes / sizeof(double)];
  __shared__ float numbers[kNumbers];
  kernel(GpuBlock(fold, numbers));
}

// How many blocks of a kernel of tiles a multiprocessor should have at once, which bounds their registers.
template <class Kernel>
constexpr int least_blocks() {
  if constexpr (requires { Kernel::kLeastBlocks; })
    return Kernel::kLeastBlocks;
  else
    return 1;
}
template <class Kernel>
__global__ void __launch_bounds__(kThreads, least_blocks<Kernel>()) run_tiles(const Kernel kernel) {
  extern __shared__ __align__(128) std::byte shared[];
  kernel(GpuTileBlock(shared));
}

inline constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // of a grid, in x

// Pinned memory that the GPU copies from, so that no copy waits for the queue. Belongs to one queue; not thread-safe.
class Staging {
 public:
  // `before_wait` is called where it is about to wait. `for_records`: what it keeps stays as long as it does, for
  // copies that are made again and again.
  Staging(cudaStream_t queue, std::function<void()> before_wait, bool for_records = false)
      : queue_(queue), before_wait_(std::move(before_wait)), for_records_(for_records) {
    check_cuda(cudaMallocHost(&memory_, kBytes), "take pinned memory of the host");
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { cudaFreeHost(memory_); }
  // A copy of `bytes` that stays till the queue has passed here. Where all is in use, waits for the queue; one for
  // records throws CannotRecord.
  const void* keep(const void* from, size_t bytes) {
    WEFT_CHECK(bytes <= kBytes, "{} bytes at once for a kernel", bytes);
    if (used_ + bytes > kBytes) {
      if (for_records_) throw CannotRecord();
      wait();
      used_ = 0;
    }
    void* to = static_cast<std::byte*>(memory_) + used_;
    std::memcpy(to, from, bytes);
    used_ += (bytes + 15) / 16 * 16;
    return to;
  }
  // For the queue.
  void wait() const {
    before_wait_();
    check_cuda(cudaStreamSynchronize(queue_), "run what the GPU was given");
  }
  void queue_has_passed() { used_ = 0; }
  bool for_records() const { return for_records_; }
  size_t used() const { return used_; }
  void go_back_to(size_t used) { used_ = used; }

 private:
  static constexpr size_t kBytes = size_t{4} << 20;
  cudaStream_t queue_;
  std::function<void()> before_wait_;
  bool for_records_;
  void* memory_ = nullptr;
  size_t used_ = 0;
};

class QueueLauncher {
 public:
  QueueLauncher(cudaStream_t queue, Arena& workspace, Staging& staging, int shared_bytes)
      : queue_(queue), workspace_(workspace), staging_(staging), shared_bytes_(shared_bytes) {}

  template <class Kernel>
  void launch(int64_t blocks, const Kernel& kernel) {
    if (blocks == 0) return;
    WEFT_CHECK(blocks <= kMostBlocks, "{} blocks in a grid", blocks);
    run_block<<<unsigned(blocks), kThreads, 0, queue_>>>(kernel);
    check_cuda(cudaGetLastError(), "launch a kernel");
  }
  template <class Kernel>
  void launch_tiles(int64_t blocks, const Kernel& kernel) {
    if (blocks == 0) return;
    WEFT_CHECK(blocks <= kMostBlocks, "{} blocks in a grid", blocks);
    const auto bytes = int(Kernel::kSharedBytes);
    check_cuda(cudaFuncSetAttribute(run_tiles<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               "give a kernel its shared memory");
    run_tiles<<<unsigned(blocks), kThreads, size_t(bytes), queue_>>>(kernel);
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
    const void* kept = staging_.keep(from.data(), from.size_bytes());
    check_cuda(cudaMemcpyAsync(to, kept, from.size_bytes(), cudaMemcpyHostToDevice, queue_), "copy to the GPU");
    return to;
  }
  // Before what must `fetch`: throws CannotRecord while the queue is being recorded.
  void expect_to_wait() const {
    if (staging_.for_records()) throw CannotRecord();
  }
  // Waits for all that was launched.
  void fetch(void* to, const void* from, int64_t bytes) const {
    expect_to_wait();
    check_cuda(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDeviceToHost, queue_), "copy from the GPU");
    staging_.wait();
  }

 private:
  cudaStream_t queue_;
  Arena& workspace_;
  Staging& staging_;
  int shared_bytes_;  // that a block may have
};

}  // namespace weft::gpu
