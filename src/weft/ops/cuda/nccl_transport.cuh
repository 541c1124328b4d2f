// A group of ranks, one GPU each, whose bytes NCCL moves on a stream of their own.
#pragma once
#include <deque>
#include <vector>

#include "weft/device/cuda/cuda_check.h"
#include "weft/device/fabric.h"
#include "weft/ops/cuda/nccl_library.h"

namespace weft {

class NcclTransport final : public Transport {
 public:
  NcclTransport(const NcclLibrary& nccl, int ordinal) : nccl_(nccl), ordinal_(ordinal) {}
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override;
  // Once, before all else.
  void connect(const Fabric::End& end);

  void exchange(std::span<const Piece> sent, std::span<const Piece> received) override;
  void all_gather(const void* mine, void* all, int64_t bytes) override;
  void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) override;
  std::span<std::byte> staging() const override { return staging_; }
  int64_t mark() override;
  bool passed(int64_t mark) override;
  std::string failure() override;
  void abort() noexcept override;

 private:
  struct Mark {
    int64_t number;
    cudaEvent_t event;
  };
  void use_gpu() const { check_cuda(cudaSetDevice(ordinal_), "use the GPU"); }

  const NcclLibrary& nccl_;
  const int ordinal_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;  // none once it has been aborted
  std::span<std::byte> staging_;
  std::deque<Mark> marks_;  // not passed when last looked at, oldest first
  std::vector<cudaEvent_t> free_;
  int64_t marked_ = 0, passed_ = 0;
};

}  // namespace weft
