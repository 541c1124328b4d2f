#include <algorithm>
#include <vector>

#include "weft/base/error.h"
#include "weft/device/arena.h"
#include "weft/device/cuda/cuda_memory.h"
#include "weft/device/device_mover.h"
#include "weft/ops/cuda/cuda_mover.cuh"
#include "weft/ops/cuda/queue_launcher.cuh"
#include "weft/ops/cuda/rank_sum.h"

namespace weft {
namespace {

void use_gpu(int ordinal) { check_cuda(cudaSetDevice(ordinal), "use the GPU"); }
void finish() { check_cuda(cudaStreamSynchronize(cudaStreamPerThread), "move tensors of ranks"); }

template <class T>
void launch_sum(std::span<const void* const> from, int64_t n, void* out) {
  gpu::RankSum<T> kernel = {.from = {}, .num_ranks = int(from.size()), .out = static_cast<T*>(out), .n = n};
  std::transform(from.begin(), from.end(), kernel.from, [](const void* at) { return static_cast<const T*>(at); });
  const int64_t blocks = (n + kernel.kRun - 1) / kernel.kRun;
  if (blocks == 0) return;
  gpu::run_block<<<unsigned(blocks), gpu::kThreads, 0, cudaStreamPerThread>>>(kernel);
  check_cuda(cudaGetLastError(), "launch a kernel");
  finish();
}

// From now on kernels of `gpu` reach the memory of `other`; false where they cannot.
bool open_access(int gpu, int other) {
  int can = 0;
  check_cuda(cudaDeviceCanAccessPeer(&can, gpu, other), "ask whether GPUs reach each other's memory");
  if (can == 0) return false;
  use_gpu(gpu);
  const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
  if (status == cudaSuccess) return true;
  cudaGetLastError();  // which would else be the next call's
  return status == cudaErrorPeerAccessAlreadyEnabled;
}

class CudaDevices final : public MovingDevices {
 public:
  explicit CudaDevices(std::span<const int> gpus) : gpus_(gpus.begin(), gpus.end()), reached_(gpus.size()) {
    for (const int gpu : gpus_) memories_.push_back(make_cuda_memory(gpu));
    for (int device = 0; device < count(); ++device)
      for (int other = 0; other < count(); ++other) reached_[size_t(device)].push_back(opens(device, other));
  }

  int count() const override { return int(gpus_.size()); }
  const std::shared_ptr<Memory>& memory(int device) const override { return memories_[size_t(device)]; }
  bool reaches(int device, int other) const override { return reached_[size_t(device)][size_t(other)]; }
  int device_of(const void* at) const override {
    cudaPointerAttributes found;
    check_cuda(cudaPointerGetAttributes(&found, at), "ask where a tensor lies");
    if (found.type != cudaMemoryTypeDevice) return -1;
    const auto gpu = std::find(gpus_.begin(), gpus_.end(), found.device);
    WEFT_CHECK(gpu != gpus_.end(), "a tensor on GPU {}, which no rank has", found.device);
    return int(gpu - gpus_.begin());
  }
  void copy(int device, void* to, const void* from, int64_t bytes) const override {
    use_gpu(gpus_[size_t(device)]);
    check_cuda(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDefault, cudaStreamPerThread), "copy a tensor");
    finish();
  }
  void sum(int device, std::span<const void* const> from, DType dtype, int64_t n, void* out) const override {
    if (from.size() > size_t(gpu::kMostRanks))
      throw Error(
          fmt::format("{} ranks of one axis are threads with GPUs; at most {} can be: use more processes "
                      "(run.ranks = \"mpi\")",
                      from.size(), gpu::kMostRanks));
    use_gpu(gpus_[size_t(device)]);
    if (dtype == DType::f64) return launch_sum<double>(from, n, out);
    gpu::by_float(dtype, [&](auto t) { launch_sum<decltype(t)>(from, n, out); });
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> all = notes_;
    if (needs_staging(*this))
      all.push_back(
          fmt::format("GPUs that do not reach each other's memory (`nvidia-smi topo -p2p rw` shows which) "
                      "add what their ranks have by {} MiB of each, beside the plan",
                      kMoverStaging >> 20));
    return all;
  }

 private:
  bool opens(int device, int other) {
    if (device == other) return true;
    const int gpu = gpus_[size_t(device)], of = gpus_[size_t(other)];
    if (!open_access(gpu, of)) return false;
    if (adds_there(device, other)) return true;
    use_gpu(gpu);
    check_cuda(cudaDeviceDisablePeerAccess(of), "close the way between two GPUs");
    notes_.push_back(
        fmt::format("GPU {} says that it reaches the memory of GPU {}, but did not find there what was "
                    "written: this way is not used",
                    gpu, of));
    return false;
  }

  // Some drivers promise access that does not work, so test it: a sum in both memories, by a kernel of `device`.
  bool adds_there(int device, int other) const {
    constexpr int64_t kElements = 1 << 16;
    std::vector<float> written(kElements), found(kElements), expected(kElements);
    for (int64_t i = 0; i < kElements; ++i) written[size_t(i)] = float(i), expected[size_t(i)] = float(2 * i);
    std::vector<Arena> arenas;
    std::vector<const void*> ranks;
    for (const int of : {device, other}) {
      const std::shared_ptr<Memory>& memory = memories_[size_t(of)];
      arenas.emplace_back("numbers to try the way between two GPUs", kElements * int64_t(sizeof(float)), memory);
      const Tensor x = arenas.back().alloc(DType::f32, {kElements});
      memory->copy(x.data, written.data(), size_t(x.bytes()));
      ranks.push_back(x.data);
    }
    sum(device, ranks, DType::f32, kElements, nullptr);
    for (const void* x : ranks) {
      memories_[size_t(x == ranks[0] ? device : other)]->copy(found.data(), x, kElements * sizeof(float));
      if (found != expected) return false;
    }
    return true;
  }

  std::vector<int> gpus_;  // their numbers for CUDA
  std::vector<std::shared_ptr<Memory>> memories_;
  std::vector<std::vector<bool>> reached_;
  std::vector<std::string> notes_;
};

}  // namespace

CudaMover make_cuda_mover(std::span<const int> gpus, std::shared_ptr<const Mover> host) {
  const auto devices = std::make_shared<const CudaDevices>(gpus);
  return {make_device_mover(devices, std::move(host)), devices->notes()};
}

}  // namespace weft
