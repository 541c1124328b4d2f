#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <string>

#include "weft/ops/cuda/cuda_backend.cuh"
#include "weft/ops/cuda/cuda_workspace.h"

namespace weft {
namespace {

void warn(const std::string& what) { std::fputs(("weft: " + what + "\n").c_str(), stderr); }

}  // namespace

CudaBackend::CudaBackend(int device, Arena& workspace, std::shared_ptr<ProductCache> products, bool cudnn)
    : device_(device), cudnn_(cudnn), workspace_(workspace) {
  check_cuda(cudaSetDevice(device_), "use the GPU");
  check_cuda(cudaDeviceGetAttribute(&shared_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "ask the GPU for its shared memory");
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  staging_.emplace(stream_);
  cublas_.emplace(std::move(products));
  if (!cudnn_) return;
  try {
    attention_.emplace(open_cudnn_attention(stream_), warn);
  } catch (const Error& e) { warn(fmt::format("attention by weft's own kernels: {}", e.what())); }
}

CudaBackend::~CudaBackend() {
  cudaStreamSynchronize(stream_);
  attention_.reset();  // which knows the stream
  cudaStreamDestroy(stream_);
}

void CudaBackend::enter(std::string_view region) { nvtxRangePushA(std::string(region).c_str()); }
void CudaBackend::leave() { nvtxRangePop(); }

void CudaBackend::wait_all() {
  check_cuda(cudaStreamSynchronize(stream_), "run what the GPU was given");
  staging_->stream_has_passed();
}

void CudaBackend::launch(const Matmul& op) {
  void* memory = workspace_.alloc(DType::u8, {kCublasWorkspace}).data;
  if (cublas_->run(op, memory, stream_)) return;
  gpu::StreamLauncher launcher(stream_, workspace_, *staging_, shared_bytes_);
  Matmul plain = op;
  plain.bias = {};
  if (op.bias && op.bias.dtype == op.out.dtype && cublas_->run(plain, memory, stream_))
    return gpu::run(launcher, AddRow{.b = op.bias, .y = op.out});
  gpu::run(launcher, op);
}

template <class Op>
void CudaBackend::launch_attention(const Op& op) {
  gpu::StreamLauncher launcher(stream_, workspace_, *staging_, shared_bytes_);
  // A plan knows whole sequences alone: where documents are a batch that takes more, weft's own kernels have it.
  const int64_t bytes = attention_ ? gpu::library_bytes(op) : 0;
  const int64_t with_own = bytes > 0 ? CudaWorkspace(true).of(op) : 0;
  if (bytes > 0 && with_own <= workspace_.capacity() - workspace_.used()) {
    auto* const memory = static_cast<std::byte*>(workspace_.alloc(DType::u8, {bytes}).data);
    const auto own = [&](const Op& same) {
      const Scope scope(workspace_);
      gpu::run(launcher, same);
    };
    if (attention_->run(launcher, op, memory, own)) return;
  }
  gpu::run(launcher, op);
}

void CudaBackend::launch(const Zero& op) {
  const size_t size = size_t(size_of(op.x.dtype));
  if (op.x.contiguous()) return check_cuda(cudaMemsetAsync(op.x.data, 0, size_t(op.x.bytes()), stream_), "zero memory");
  check_cuda(cudaMemset2DAsync(op.x.data, size_t(op.x.row_stride) * size, 0, size_t(op.x.cols()) * size,
                               size_t(op.x.rows()), stream_),
             "zero memory");
}

}  // namespace weft
