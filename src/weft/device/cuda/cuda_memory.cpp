#include "weft/device/cuda/cuda_memory.h"

#include <cstring>

#include "weft/base/error.h"
#include "weft/device/cuda/cuda_check.h"

namespace weft {
namespace {

double gib(size_t bytes) { return double(bytes) / double(1 << 30); }

// `taken`: the result of the allocation.
void require_memory(cudaError_t taken, size_t bytes, const std::string& what, const std::string& where) {
  if (taken == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // which would else be the next call's
    throw NoMemory(fmt::format("no memory for {}: {:.2f} GiB, {}; `weft plan` shows what the recipe needs and why",
                               what, gib(bytes), where));
  }
  check_cuda(taken, "take memory");
}

class PinnedMemory final : public Memory {
 public:
  explicit PinnedMemory(int device) : device_(device) {}
  std::byte* take(size_t bytes, const std::string& what) override {
    check_cuda(cudaSetDevice(device_), "use the GPU");
    void* p = nullptr;
    require_memory(cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped), bytes, what,
                   "pinned, of the host's");
    std::memset(p, 0, bytes);
    return static_cast<std::byte*>(p);
  }
  void give(std::byte* memory, size_t) override {
    cudaSetDevice(device_);
    cudaFreeHost(memory);
  }

 private:
  int device_;
};

class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(int device) : device_(device), shared_(std::make_shared<PinnedMemory>(device)) {}

  std::byte* take(size_t bytes, const std::string& what) override {
    check_cuda(cudaSetDevice(device_), "use the GPU");
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "ask the GPU for its free memory");
    void* p = nullptr;
    require_memory(cudaMalloc(&p, bytes), bytes, what,
                   fmt::format("GPU {} has {:.2f} of {:.2f} GiB free", device_, gib(free), gib(total)));
    try {
      check_cuda(cudaMemset(p, 0, bytes), "fill memory of the GPU");
      check_cuda(cudaStreamSynchronize(cudaStreamLegacy), "fill memory of the GPU");
    } catch (...) {
      cudaFree(p);
      throw;
    }
    return static_cast<std::byte*>(p);
  }
  void give(std::byte* memory, size_t) override {
    cudaSetDevice(device_);
    cudaFree(memory);
  }
  bool host_reaches() const override { return false; }
  std::shared_ptr<Memory> shared() const override { return shared_; }
  // By the calling thread's own queue: ranks do not wait for each other.
  void copy(void* to, const void* from, size_t bytes) const override {
    if (bytes == 0) return;
    check_cuda(cudaSetDevice(device_), "use the GPU");
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread), "copy between GPU and host");
    check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "copy between GPU and host");
  }

 private:
  int device_;
  std::shared_ptr<Memory> shared_;
};

}  // namespace

std::shared_ptr<Memory> make_cuda_memory(int device) { return std::make_shared<CudaMemory>(device); }

}  // namespace weft
