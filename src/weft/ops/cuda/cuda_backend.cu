#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <string>

#include "weft/ops/cuda/cuda_backend.cuh"
#include "weft/ops/cuda/cuda_workspace.h"
#include "weft/ops/cuda/cut_matmul.h"

namespace weft {
namespace {

// Records one queue, and calls of this thread only: other ranks may allocate meanwhile.
class Capture {
 public:
  Capture(cudaStream_t queue, bool& is_recording) : queue_(queue), is_recording_(is_recording) { is_recording_ = true; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (is_recording_) end();
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  cudaError_t end() {
    is_recording_ = false;
    return cudaStreamEndCapture(queue_, &graph_);
  }
  cudaGraph_t graph() const { return graph_; }

 private:
  cudaStream_t queue_;
  bool& is_recording_;
  cudaGraph_t graph_ = nullptr;
};

class CudaGraph final : public RecordingBackend::Record {
 public:
  explicit CudaGraph(int64_t num_ops) : num_ops_(num_ops) {}
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }
  // Takes its memory here, where there may be too little.
  cudaError_t prepare(cudaGraph_t graph, cudaStream_t queue) {
    cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    if (status == cudaSuccess) status = cudaGraphUpload(graph_, queue);
    if (status == cudaSuccess) status = cudaStreamSynchronize(queue);
    return status;
  }
  int64_t num_ops() const { return num_ops_; }
  void launch(cudaStream_t queue) { check_cuda(cudaGraphLaunch(graph_, queue), "launch a CUDA graph"); }

 private:
  int64_t num_ops_;
  cudaGraphExec_t graph_ = nullptr;
};

void warn(const std::string& what) { std::fputs(("weft: " + what + "\n").c_str(), stderr); }

}  // namespace

void CudaBackend::run(const AnyOp& op) {
  op.visit([&](const auto& o) { apply(o); });
}

CudaBackend::CudaBackend(int device, Arena& workspace, std::shared_ptr<ProductCache> products, CudnnUse cudnn)
    : device_(device), cudnn_(cudnn), workspace_(workspace) {
  use_gpu();
  aside_queue(device);
  check_cuda(cudaDeviceGetAttribute(&shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "ask the GPU for its shared memory");
  check_cuda(cudaStreamCreateWithFlags(&queue_, cudaStreamNonBlocking), "make a queue");
  marks_.emplace(gpu::CudaMarks(device, queue_));
  const auto before = [this] { before_wait(); };
  staging_.emplace(queue_, before);
  kept_.emplace(queue_, before, true);
  cublas_.emplace(std::move(products), before);
  if (cudnn_ == CudnnUse::none) return;
  try {
    attention_.emplace(open_cudnn_attention(queue_), warn, limits_of(cudnn_));
  } catch (const Error& e) { warn(fmt::format("attention by weft's own kernels: {}", e.what())); }
}

CudaBackend::~CudaBackend() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(queue_);
  attention_.reset();  // which knows the queue
  marks_.reset();
  cudaStreamDestroy(queue_);
}

void CudaBackend::enter(std::string_view region) { nvtxRangePushA(std::string(region).c_str()); }
void CudaBackend::leave() { nvtxRangePop(); }

void CudaBackend::wait_all() {
  before_wait();
  use_gpu();
  check_cuda(cudaStreamSynchronize(queue_), "run what the GPU was given");
  staging_->queue_has_passed();
  marks_->queue_has_passed();
  if (times_) times_->queue_has_passed();
}

Stamp CudaBackend::stamp() {
  if (!times_) times_.emplace(gpu::CudaEvents(device_, queue_));
  if (times_->is_full()) wait_all();
  return times_->stamp();
}

int64_t CudaBackend::take_time_ns(Stamp stamp) {
  WEFT_CHECK(times_, "the time of stamp {}, of none", int64_t(stamp));
  return times_->take_ns(stamp);
}

RecordingBackend::Recorded CudaBackend::record(const std::function<void()>& give) {
  use_gpu();
  const auto none = [](const std::string& why) {
    cudaGetLastError();  // the next launch would find it
    return Recorded{nullptr, fmt::format("ops are given to the GPU one by one, not as CUDA graphs: {}", why)};
  };
  const size_t kept_before = kept_->used();
  num_recorded_ = 0;
  cudaError_t status = cudaStreamBeginCapture(queue_, cudaStreamCaptureModeThreadLocal);
  if (status != cudaSuccess) return none(cudaGetErrorString(status));
  Capture capture(queue_, is_recording_);
  std::string why;
  try {
    give();
  } catch (const gpu::CannotRecord&) {
    capture.end();
    cudaGetLastError();
    kept_->go_back_to(kept_before);
    return {};
  } catch (const Error& e) { why = e.what(); }
  status = capture.end();
  if (why.empty() && status == cudaSuccess) {
    auto record = std::make_unique<CudaGraph>(num_recorded_);
    status = record->prepare(capture.graph(), queue_);
    if (status == cudaSuccess) return {std::move(record), ""};
  }
  kept_->go_back_to(kept_before);
  return none(why.empty() ? cudaGetErrorString(status) : why);
}

void CudaBackend::replay(Record& record) {
  auto& graph = static_cast<CudaGraph&>(record);
  count_ahead(graph.num_ops());
  use_gpu();
  graph.launch(queue_);
}

void CudaBackend::launch(const Matmul& op) {
  void* const memory = workspace_.alloc(DType::u8, {kCublasWorkspace}).data;
  if (cuts_depth(op)) {
    const Tensor sum = workspace_.alloc(DType::f32, {op.m(), op.n()});
    multiply(part_of_depth(op, 0, whole_part(op.k()), sum), memory);
    Matmul rest = part_of_depth(op, whole_part(op.k()), op.k() % kWholeMultiple, sum);
    rest.accumulate = true;
    multiply(rest, memory);
    auto to = launcher();
    gpu::run(to, Copy{.from = sum, .to = op.out});
  } else if (cuts_columns(op)) {
    multiply(part_of_columns(op, 0, whole_part(op.n())), memory);
    multiply(part_of_columns(op, whole_part(op.n()), op.n() % kWholeMultiple), memory);
  } else {
    multiply(op, memory);
  }
}

void CudaBackend::multiply(const Matmul& op, void* memory) {
  if (cublas_->run(op, memory, queue_)) return;
  auto to = launcher();
  Matmul plain = op;
  plain.bias = {};
  // 16 bits would be rounded before the bias is added, and after.
  if (op.bias && op.out.dtype == DType::f32 && cublas_->run(plain, memory, queue_))
    return gpu::run(to, AddRow{.b = op.bias, .y = op.out});
  gpu::run(to, op);
}

template <class Op>
void CudaBackend::launch_attention(const Op& op) {
  auto to = launcher();
  // A plan knows whole sequences alone: where documents are a batch that takes more, weft's own kernels have it.
  const int64_t bytes = attention_ ? gpu::library_bytes(op, limits_of(cudnn_)) : 0;
  const int64_t with_own = bytes > 0 ? CudaWorkspace(cudnn_).of(op) : 0;
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
  if (op.x.contiguous()) return check_cuda(cudaMemsetAsync(op.x.data, 0, size_t(op.x.bytes()), queue_), "zero memory");
  check_cuda(cudaMemset2DAsync(op.x.data, size_t(op.x.row_stride) * size, 0, size_t(op.x.cols()) * size,
                               size_t(op.x.rows()), queue_),
             "zero memory");
}

}  // namespace weft
