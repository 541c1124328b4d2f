#include "weft/ops/cuda/attention_library.h"
#include "weft/ops/cuda/cudnn_plan.h"

namespace weft {
namespace {

class CudnnAttention final : public AttentionLibrary {
 public:
  explicit CudnnAttention(cudaStream_t queue) : cudnn_(CudnnLibrary::open()) {
    cudnn_->check(cudnn_->create(&handle_), "begin with cuDNN");
    try {
      cudnn_->check(cudnn_->set_stream(handle_, queue), "give cuDNN its queue");
    } catch (...) {
      cudnn_->destroy(handle_);
      throw;
    }
  }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;
  ~CudnnAttention() override {
    plans_.clear();
    cudnn_->destroy(handle_);
  }

  void plan(const gpu::AttentionShape& shape, int64_t most_workspace) override {
    plans_.try_emplace(shape, cudnn_, gpu::attention_graph(shape), handle_, CudnnTerms{most_workspace, shape.repeats});
  }
  void run(const gpu::AttentionShape& shape, const AttentionData& data, void* workspace) override {
    plans_.at(shape).run(handle_, data, workspace);
  }

 private:
  Cudnn cudnn_;
  cudnnHandle_t handle_ = nullptr;
  std::map<gpu::AttentionShape, CudnnPlan> plans_;
};

}  // namespace

bool knows_cudnn() { return true; }
std::string cudnn_name() { return "cuDNN " + CudnnLibrary::open()->version(); }
std::unique_ptr<AttentionLibrary> open_cudnn_attention(void* queue) {
  return std::make_unique<CudnnAttention>(static_cast<cudaStream_t>(queue));
}

}  // namespace weft
