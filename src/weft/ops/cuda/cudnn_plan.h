// An attention graph in cuDNN's form, and a plan to run it.
#pragma once
#include "weft/ops/cuda/attention_library.h"
#include "weft/ops/cuda/cudnn_library.h"

namespace weft {

// Needs no GPU without a handle. Throws CudnnError where the library does not know what is asked.
class CudnnGraph {
 public:
  CudnnGraph(const Cudnn& cudnn, const gpu::AttentionGraph& graph, cudnnHandle_t handle = nullptr);
  const CudnnDescriptor& whole() const { return parts_.back(); }

 private:
  std::vector<CudnnDescriptor> parts_;  // the graph last
};

struct CudnnWay {
  CudnnDescriptor config;
  int64_t engine, workspace_bytes;
  bool repeats;  // its bits
};
// The engines that the library's heuristics advise, best first: for the handle's GPU, or for one that is only
// described. Throws CudnnError.
std::vector<CudnnWay> ways_to_compute(const Cudnn& cudnn, const CudnnGraph& graph, const CudnnDescriptor* described);

struct CudnnTerms {
  int64_t most_workspace;  // bytes
  bool repeats = true;     // gives the same bits each time
};
class CudnnPlan {
 public:
  // Takes the first way that meets these terms. If there is none, throws CudnnError with the reason for each way.
  CudnnPlan(Cudnn cudnn, const gpu::AttentionGraph& graph, cudnnHandle_t handle, const CudnnTerms& terms);
  // Issues it on the handle's queue. Numbers on the host are read before this returns. Throws CudnnError.
  void run(cudnnHandle_t handle, const AttentionData& data, void* workspace) const;

 private:
  bool take(const CudnnDescriptor& config, cudnnHandle_t handle, int64_t most_workspace, std::string& why);

  Cudnn cudnn_;
  CudnnGraph graph_;
  std::vector<CudnnDescriptor> config_, plan_;  // one of each
};

}  // namespace weft
