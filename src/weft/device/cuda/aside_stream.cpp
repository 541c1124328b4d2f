#include "weft/device/cuda/aside_stream.h"

#include <map>
#include <mutex>

#include "weft/device/cuda/cuda_check.h"

namespace weft {

cudaStream_t aside_stream(int device) {
  static std::mutex mutex;
  static std::map<int, cudaStream_t> streams;
  const std::lock_guard lock(mutex);
  if (const auto made = streams.find(device); made != streams.end()) return made->second;
  cudaStream_t stream = nullptr;
  check_cuda(cudaSetDevice(device), "use the GPU");
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  return streams[device] = stream;
}

}  // namespace weft
