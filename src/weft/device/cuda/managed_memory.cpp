#include "weft/device/cuda/managed_memory.h"

#include "weft/base/error.h"
#include "weft/device/cuda/cuda_check.h"

namespace weft {
namespace {

class ManagedMemory final : public Memory {
 public:
  explicit ManagedMemory(int device) : device_(device) {}

  std::byte* take(size_t bytes, const std::string& what) override {
    check_cuda(cudaSetDevice(device_), "use the GPU");
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "ask the GPU for its free memory");
    if (bytes > free)
      throw NoMemory(
          fmt::format("no memory for {}: {:.2f} GiB, GPU {} has {:.2f} of {:.2f} GiB free; `weft plan` shows "
                      "what the recipe needs and why",
                      what, gib(bytes), device_, gib(free), gib(total)));
    void* p = nullptr;
    check_cuda(cudaMallocManaged(&p, bytes), "take memory of the GPU");
    try {
      check_cuda(cudaMemAdvise(p, bytes, cudaMemAdviseSetPreferredLocation, location()), "keep memory on the GPU");
      check_cuda(cudaMemset(p, 0, bytes), "fill memory of the GPU");  // and so the pages are there, and counted as used
    } catch (...) {
      cudaFree(p);
      throw;
    }
    return static_cast<std::byte*>(p);
  }
  void give(std::byte* memory, size_t) override { cudaFree(memory); }

 private:
#if CUDART_VERSION >= 13000
  cudaMemLocation location() const { return {.type = cudaMemLocationTypeDevice, .id = device_}; }
#else
  int location() const { return device_; }
#endif
  static double gib(size_t bytes) { return double(bytes) / double(1 << 30); }
  int device_;
};

}  // namespace

std::shared_ptr<Memory> make_managed_memory(int device) { return std::make_shared<ManagedMemory>(device); }

}  // namespace weft
