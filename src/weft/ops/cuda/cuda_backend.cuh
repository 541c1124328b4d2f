// All ops on one stream of a GPU.
#pragma once
#include <optional>

#include "weft/ops/backend.h"
#include "weft/ops/cuda/cublas_matmul.h"
#include "weft/ops/cuda/fast_attention.h"
#include "weft/ops/cuda/run_kernels.h"
#include "weft/ops/cuda/stream_launcher.cuh"

namespace weft {

class CudaBackend final : public UniformBackend<CudaBackend> {
 public:
  // With cuDNN for attention where it is wanted and there. `products`: ways to multiply matrices that are known.
  CudaBackend(int device, Arena& workspace, std::shared_ptr<ProductCache> products, bool cudnn = false);
  ~CudaBackend() override;

  template <class Op>
  void apply(const Op& op) {
    const Scope scope(workspace_);  // the next op runs behind this one, so it may have the same bytes
    launch(op);
  }
  void enter(std::string_view region) override;
  void leave() override;
  void wait_all() override;

 private:
  template <class Op>
  void launch(const Op& op) {
    gpu::StreamLauncher launcher(stream_, workspace_, *staging_, shared_bytes_);
    gpu::run(launcher, op);
  }
  void launch(const Matmul& op);
  void launch(const Zero& op);
  void launch(const Attention& op) { launch_attention(op); }
  void launch(const AttentionBackward& op) { launch_attention(op); }
  template <class Op>
  void launch_attention(const Op& op);

  int device_, shared_bytes_ = 0;
  bool cudnn_;
  Arena& workspace_;
  cudaStream_t stream_ = nullptr;
  std::optional<gpu::Staging> staging_;
  std::optional<CublasMatmul> cublas_;  // of the device, which is set before
  std::optional<gpu::FastAttention<gpu::StreamLauncher>> attention_;
};

}  // namespace weft
