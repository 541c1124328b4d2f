// A group of ranks, one GPU each, whose bytes NCCL moves on a queue of their own.
#pragma once
#include <optional>

#include "weft/device/cuda/cuda_check.h"
#include "weft/device/fabric.h"
#include "weft/ops/cuda/cuda_events.h"
#include "weft/ops/cuda/marked_queue.h"
#include "weft/ops/cuda/nccl_library.h"
#include "weft/ops/cuda/queue_times.h"

namespace weft {

class NcclTransport final : public Transport {
 public:
  NcclTransport(const NcclLibrary& nccl, int ordinal) : nccl_(nccl), ordinal_(ordinal) {}
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override;
  // Once, before all else.
  void connect(const Fabric::End& end);

  void exchange(std::span<const Message> sent, std::span<const Message> received) override;
  void all_gather(const void* mine, void* all, int64_t bytes) override;
  void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) override;
  std::span<std::byte> staging() const override { return staging_; }
  DeviceQueue& queue() override { return *marks_; }
  Stamp stamp() override;
  int64_t take_time_ns(Stamp stamp) override;
  std::string failure() override;
  void abort() noexcept override;

 private:
  void use_gpu() const { check_cuda(cudaSetDevice(ordinal_), "use the GPU"); }

  const NcclLibrary& nccl_;
  const int ordinal_;
  cudaStream_t queue_ = nullptr;
  ncclComm_t comm_ = nullptr;  // none once it has been aborted
  std::span<std::byte> staging_;
  std::optional<gpu::MarkedQueue<gpu::CudaMarks>> marks_;
  std::optional<gpu::QueueTimes<gpu::CudaEvents>> times_;  // once asked for
};

}  // namespace weft
