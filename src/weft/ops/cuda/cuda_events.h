// Events of a queue of a GPU: those that keep the time at which it passed them, and those that others wait for.
#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>

#include "weft/device/cuda/aside_queue.h"
#include "weft/device/cuda/cuda_check.h"

namespace weft::gpu {

// The common part of both kinds of events.
class QueueEvents {
 public:
  using Event = cudaEvent_t;
  QueueEvents(int device, cudaStream_t queue) : device_(device), queue_(queue) {}
  void end(Event event) const { cudaEventDestroy(event); }
  void record(Event event) const {
    use_gpu();
    check_cuda(cudaEventRecord(event, queue_), "mark a queue");
  }

 protected:
  // Selects this GPU for the calling thread, which may have used another one.
  void use_gpu() const { check_cuda(cudaSetDevice(device_), "use the GPU"); }
  cudaStream_t queue() const { return queue_; }

 private:
  int device_;
  cudaStream_t queue_;
};

class CudaEvents : public QueueEvents {
 public:
  CudaEvents(int device, cudaStream_t queue) : QueueEvents(device, queue), aside_(aside_queue(device)) {}

  Event make() const {
    Event event = nullptr;
    use_gpu();
    check_cuda(cudaEventCreate(&event), "make an event");
    return event;
  }
  void record_aside(Event event) const {
    use_gpu();
    check_cuda(cudaEventRecord(event, aside_), "mark a queue");
  }
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
  cudaStream_t aside_;
};

class CudaMarks : public QueueEvents {
 public:
  using QueueEvents::QueueEvents;

  Event make() const {
    Event event = nullptr;
    use_gpu();
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    return event;
  }
  bool passed(Event event) const {
    const cudaError_t status = cudaEventQuery(event);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // not a failure, but the next launch would report it as one
      return false;
    }
    check_cuda(status, "run what the GPU was given");
    return true;
  }
  void hold_for(Event event) const {
    use_gpu();
    check_cuda(cudaStreamWaitEvent(queue(), event, 0), "let a queue wait for another");
  }
  void copy(void* to, const void* from, int64_t bytes) const {
    use_gpu();
    check_cuda(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, queue()), "copy between GPU and host");
  }
};

}  // namespace weft::gpu
