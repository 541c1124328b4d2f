// How much of its workspace each op takes on a GPU: its own way to its kernels, with a launcher that counts.
#pragma once
#include "weft/ops/cuda/attention_batch.h"
#include "weft/ops/cuda/cuda_device.h"

namespace weft {

inline constexpr int64_t kCublasWorkspace = int64_t{32} << 20;  // bytes: what NVIDIA advises for Hopper

gpu::AttentionLimits limits_of(CudnnUse cudnn);

class CudaWorkspace final : public WorkspaceModel {
 public:
  explicit CudaWorkspace(CudnnUse cudnn) : cudnn_(cudnn) {}
  using WorkspaceModel::bytes;
  int64_t bytes(const Matmul& op) const override;
  int64_t bytes(const BiasGrad& op) const override;
  int64_t bytes(const EmbedBackward& op) const override;
  int64_t bytes(const NormBackward& op) const override;
  int64_t bytes(const HeadNormBackward& op) const override;
  int64_t bytes(const Attention& op) const override;
  int64_t bytes(const AttentionBackward& op) const override;
  int64_t bytes(const AttentionSinkBackward& op) const override;
  int64_t bytes(const Sum& op) const override;
  int64_t bytes(const SumSquares& op) const override;
  int64_t bytes(const CountNonfinite& op) const override;
  int64_t bytes(const GroupRows& op) const override;

 private:
  CudnnUse cudnn_;
};

}  // namespace weft
