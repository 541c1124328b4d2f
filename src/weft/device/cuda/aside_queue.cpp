#include "weft/device/cuda/aside_queue.h"

#include <map>
#include <mutex>

#include "weft/device/cuda/cuda_check.h"

namespace weft {

cudaStream_t aside_queue(int device) {
  static std::mutex mutex;
  static std::map<int, cudaStream_t> queues;
  const std::lock_guard lock(mutex);
  if (const auto made = queues.find(device); made != queues.end()) return made->second;
  cudaStream_t queue = nullptr;
  check_cuda(cudaSetDevice(device), "use the GPU");
  check_cuda(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking), "make a queue");
  return queues[device] = queue;
}

}  // namespace weft
