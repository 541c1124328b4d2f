// All ops on one queue of a GPU.
#pragma once
#include <optional>

#include "weft/ops/cuda/cublas_matmul.h"
#include "weft/ops/cuda/cuda_device.h"
#include "weft/ops/cuda/cuda_events.h"
#include "weft/ops/cuda/fast_attention.h"
#include "weft/ops/cuda/marked_queue.h"
#include "weft/ops/cuda/queue_launcher.cuh"
#include "weft/ops/cuda/queue_times.h"
#include "weft/ops/cuda/run_kernels.h"
#include "weft/ops/replayed.h"

namespace weft {

class CudaBackend final : public RecordingBackend, private IssuedOps {
 public:
  // Uses cuDNN for attention if it is wanted and there. `products`: the known ways to multiply matrices.
  CudaBackend(int device, Arena& workspace, std::shared_ptr<ProductCache> products, CudnnUse cudnn = CudnnUse::none);
  ~CudaBackend() override;

  void run(const AnyOp& op) override;
  void enter(std::string_view region) override;
  void leave() override;
  void wait_all() override;
  IssuedOps* issued() override { return this; }
  // As a CUDA graph.
  Recorded record(const std::function<void()>& give) override;
  void replay(Record& record) override;

 private:
  template <class Op>
  void apply(const Op& op) {
    if (!is_recording_) {
      count_ahead(1);
      use_gpu();
    }
    const Scope scope(workspace_);  // the next op runs behind this one, so it may have the same bytes
    launch(op);
    num_recorded_ += is_recording_;
  }
  DeviceQueue* issue_all() override { return &*marks_; }
  void call_before_waits(std::function<void()> call) override { before_wait_ = std::move(call); }
  Stamp stamp() override;
  int64_t take_time_ns(Stamp stamp) override;
  // With too many launches queued, the next one blocks, and meanwhile the host polls nothing.
  static constexpr int64_t kMostAhead = 256;
  void count_ahead(int64_t ops) {
    if ((num_ahead_ += ops) >= kMostAhead) before_wait();
  }
  void before_wait() {
    num_ahead_ = 0;
    if (before_wait_) before_wait_();
  }
  // Selects this GPU for the calling thread, which may have used another one.
  void use_gpu() const { check_cuda(cudaSetDevice(device_), "use the GPU"); }
  gpu::QueueLauncher launcher() { return {queue_, workspace_, is_recording_ ? *kept_ : *staging_, shared_bytes_}; }
  template <class Op>
  void launch(const Op& op) {
    auto to = launcher();
    gpu::run(to, op);
  }
  void launch(const Matmul& op);
  void multiply(const Matmul& op, void* memory);  // of the library
  void launch(const Zero& op);
  void launch(const Attention& op) { launch_attention(op); }
  void launch(const AttentionBackward& op) { launch_attention(op); }
  template <class Op>
  void launch_attention(const Op& op);

  int device_, shared_bytes_ = 0;
  CudnnUse cudnn_;
  Arena& workspace_;
  cudaStream_t queue_ = nullptr;
  std::optional<gpu::Staging> staging_;
  std::optional<gpu::Staging> kept_;  // of what has been recorded
  bool is_recording_ = false;
  std::function<void()> before_wait_;
  int64_t num_ahead_ = 0;  // ops since before_wait, also within graphs
  int64_t num_recorded_ = 0;
  std::optional<CublasMatmul> cublas_;  // of the device, which is set before
  std::optional<gpu::FastAttention<gpu::QueueLauncher>> attention_;
  std::optional<gpu::QueueTimes<gpu::CudaEvents>> times_;  // once asked for
  std::optional<gpu::MarkedQueue<gpu::CudaMarks>> marks_;
};

}  // namespace weft
