#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <string>

#include "weft/ops/cuda/cuda_backend.cuh"
#include "weft/ops/cuda/cuda_workspace.h"

namespace weft {
namespace {

class CudaGraph final : public RecordingBackend::Record {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  void launch(cudaStream_t stream) { check_cuda(cudaGraphLaunch(graph_, stream), "launch a CUDA graph"); }

 private:
  cudaGraphExec_t graph_;
};

void warn(const std::string& what) { std::fputs(("weft: " + what + "\n").c_str(), stderr); }

}  // namespace

CudaBackend::CudaBackend(int device, Arena& workspace, bool cudnn)
    : device_(device), cudnn_(cudnn), workspace_(workspace) {
  use_gpu();
  check_cuda(cudaDeviceGetAttribute(&shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "ask the GPU for its shared memory");
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  staging_.emplace(stream_);
  cublas_.emplace();
  if (!cudnn_) return;
  try {
    attention_.emplace(open_cudnn_attention(stream_), warn);
  } catch (const Error& e) { warn(fmt::format("attention by weft's own kernels: {}", e.what())); }
}

CudaBackend::~CudaBackend() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_);
  attention_.reset();  // which knows the stream
  cudaStreamDestroy(stream_);
}

void CudaBackend::enter(std::string_view region) { nvtxRangePushA(std::string(region).c_str()); }
void CudaBackend::leave() { nvtxRangePop(); }

void CudaBackend::wait_all() {
  use_gpu();
  check_cuda(cudaStreamSynchronize(stream_), "run what the GPU was given");
  staging_->stream_has_passed();
}

// Only this thread's calls are watched: those of other ranks may allocate meanwhile.
RecordingBackend::Recorded CudaBackend::record(const std::function<void()>& give) {
  use_gpu();
  if (!kept_) kept_.emplace(stream_, true);
  const size_t kept_before = kept_->used();
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin a CUDA graph");
  is_recording_ = true;
  bool is_whole = false, cannot_yet = false;
  std::string why;
  try {
    give();
    is_whole = true;
  } catch (const gpu::CannotRecord&) { cannot_yet = true; } catch (const Error& e) {
    why = e.what();
  }
  is_recording_ = false;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runs = nullptr;
  cudaError_t status = cudaStreamEndCapture(stream_, &graph);
  if (is_whole && status == cudaSuccess) status = cudaGraphInstantiate(&runs, graph, 0);
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (is_whole && status == cudaSuccess) return {std::make_unique<CudaGraph>(runs), ""};
  cudaGetLastError();  // the next launch would find it
  kept_->go_back_to(kept_before);
  if (cannot_yet) return {};
  if (why.empty()) why = cudaGetErrorString(status);
  return {nullptr, fmt::format("ops are given to the GPU one by one, not as CUDA graphs: {}", why)};
}

void CudaBackend::replay(Record& record) {
  use_gpu();
  static_cast<CudaGraph&>(record).launch(stream_);
}

void CudaBackend::launch(const Matmul& op) {
  void* memory = workspace_.alloc(DType::u8, {kCublasWorkspace}).data;
  if (cublas_->run(op, memory, stream_)) return;
  auto to = launcher();
  Matmul plain = op;
  plain.bias = {};
  if (op.bias && op.bias.dtype == op.out.dtype && cublas_->run(plain, memory, stream_))
    return gpu::run(to, AddRow{.b = op.bias, .y = op.out});
  gpu::run(to, op);
}

template <class Op>
void CudaBackend::launch_attention(const Op& op) {
  auto to = launcher();
  // A plan knows whole sequences alone: where documents are a batch that takes more, weft's own kernels have it.
  const int64_t bytes = attention_ ? gpu::library_bytes(op) : 0;
  const int64_t with_own = bytes > 0 ? CudaWorkspace(true).of(op) : 0;
  if (bytes > 0 && with_own <= workspace_.capacity() - workspace_.used()) {
    auto* const memory = static_cast<std::byte*>(workspace_.alloc(DType::u8, {bytes}).data);
    const auto own = [&](const Op& same) {
      const Scope scope(workspace_);
      gpu::run(to, same);
    };
    if (attention_->run(to, op, memory, own)) return;
  }
  gpu::run(to, op);
}

void CudaBackend::launch(const Zero& op) {
  const size_t size = size_t(size_of(op.x.dtype));
  if (op.x.contiguous()) return check_cuda(cudaMemsetAsync(op.x.data, 0, size_t(op.x.bytes()), stream_), "zero memory");
  check_cuda(cudaMemset2DAsync(op.x.data, size_t(op.x.row_stride) * size, 0, size_t(op.x.cols()) * size,
                               size_t(op.x.rows()), stream_),
             "zero memory");
}

}  // namespace weft
