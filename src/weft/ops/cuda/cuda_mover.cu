#include <algorithm>

#include "weft/base/error.h"
#include "weft/ops/cuda/cuda_mover.cuh"
#include "weft/ops/cuda/rank_sum.h"
#include "weft/ops/cuda/stream_launcher.cuh"

namespace weft {
namespace {

void finish() { check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "move tensors of ranks"); }

bool is_on_gpu(const void* at) {
  cudaPointerAttributes found;
  check_cuda(cudaPointerGetAttributes(&found, at), "ask where a tensor lies");
  return found.type == cudaMemoryTypeDevice;
}

// Tensors of all ranks lie alike.
template <class Pointer>
bool are_on_gpu(std::span<Pointer const> all) {
  if (all.empty() || !is_on_gpu(all.front())) return false;
  if (all.size() > size_t(gpu::kMostRanks))
    throw Error(
        fmt::format("{} ranks of one axis share a GPU; at most {} can: use more processes (run.ranks = \"mpi\")",
                    all.size(), gpu::kMostRanks));
  return true;
}

template <class T, class Pointer>
void launch_sum(std::span<Pointer const> from, int64_t n, void* out) {
  gpu::RankSum<T> kernel = {.from = {}, .num_ranks = int(from.size()), .out = static_cast<T*>(out), .n = n};
  std::transform(from.begin(), from.end(), kernel.from, [](const void* at) { return static_cast<const T*>(at); });
  const int64_t blocks = (n + kernel.kRun - 1) / kernel.kRun;
  if (blocks == 0) return;
  gpu::run_block<<<unsigned(blocks), gpu::kThreads, 0, cudaStreamPerThread>>>(kernel);
  check_cuda(cudaGetLastError(), "launch a kernel");
  finish();
}

template <class Pointer>
void sum_all(std::span<Pointer const> from, DType dtype, int64_t n, void* out) {
  if (dtype == DType::f64) return launch_sum<double>(from, n, out);
  gpu::by_float(dtype, [&](auto t) { launch_sum<decltype(t)>(from, n, out); });
}

class CudaMover final : public Mover {
 public:
  CudaMover(int device, std::shared_ptr<const Mover> host) : device_(device), host_(std::move(host)) {}
  bool host_reaches(const void* at) const override { return !is_on_gpu(at); }
  void copy(void* to, const void* from, int64_t bytes) const override {
    if (bytes == 0) return;
    use_device();
    check_cuda(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, cudaStreamPerThread), "copy a tensor");
    finish();
  }
  void sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) const override {
    if (n == 0) return;
    use_device();
    if (are_on_gpu(from))
      sum_all(from, dtype, n, out);
    else
      host_->sum(from, dtype, n, out);
  }
  void sum_in_place(std::span<void* const> ranks, DType dtype, int64_t n) const override {
    if (n == 0) return;
    use_device();
    if (are_on_gpu(ranks))
      sum_all(ranks, dtype, n, nullptr);
    else
      host_->sum_in_place(ranks, dtype, n);
  }

 private:
  void use_device() const { check_cuda(cudaSetDevice(device_), "use the GPU"); }
  int device_;
  std::shared_ptr<const Mover> host_;
};

}  // namespace

std::shared_ptr<const Mover> make_cuda_mover(int device, std::shared_ptr<const Mover> host) {
  return std::make_shared<CudaMover>(device, std::move(host));
}

}  // namespace weft
