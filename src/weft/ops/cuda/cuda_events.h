// Events of a stream of a GPU that keep the time at which it passed them.
#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>

#include "weft/device/cuda/cuda_check.h"

namespace weft::gpu {

class CudaEvents {
 public:
  using Event = cudaEvent_t;
  CudaEvents(int device, cudaStream_t stream) : device_(device), stream_(stream) {}

  Event make() const {
    Event event = nullptr;
    check_cuda(cudaSetDevice(device_), "use the GPU");
    check_cuda(cudaEventCreate(&event), "make an event");
    return event;
  }
  void end(Event event) const { cudaEventDestroy(event); }
  void record(Event event) const { check_cuda(cudaEventRecord(event, stream_), "mark a stream"); }
  void wait(Event event) const { check_cuda(cudaEventSynchronize(event), "run what the GPU was given"); }
  double ns_between(Event from, Event to) const {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, from, to), "ask the GPU when it passed an event");
    return double(ms) * 1e6;
  }
  int64_t now_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  int device_;
  cudaStream_t stream_;
};

}  // namespace weft::gpu
