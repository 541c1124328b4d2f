#include "weft/ops/cuda/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "weft/base/error.h"
#include "weft/device/cuda/cuda_memory.h"
#include "weft/ops/cuda/cuda_backend.cuh"
#include "weft/ops/cuda/cuda_mover.cuh"
#include "weft/ops/cuda/cuda_workspace.h"
#include "weft/ops/cuda/nccl_fabric.h"

namespace weft {
namespace {

constexpr int kOldest = 80;                        // compute capability 8.0: the first with bf16
constexpr int64_t kSide = 8192, kLeastSide = 512;  // of the matrices that the rate is measured with
constexpr int64_t kElements = int64_t{1} << 28, kLeastElements = int64_t{1} << 20;  // of arrays, for the bandwidth
constexpr int kTimes = 10;

std::string version_text(int version, int thousand) {
  return fmt::format("{}.{}", version / thousand, version % thousand / (thousand / 100));
}

// Numbers in [-0.5, 0.5): zeros would draw less power, and be multiplied faster than real data.
struct Noise {
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    return float(gpu::random_bits(uint64_t(i), uint64_t(j)) >> 8) * 0x1p-24f - 0.5f;
  }
};
void fill_with_noise(const Tensor& x) {
  gpu::by_float(x.dtype, [&](auto t) {
    using T = decltype(t);
    const gpu::EachElement<T, Noise> kernel{gpu::rows<T>(x), {}};
    const int64_t rows = gpu::is_vector(x) ? 1 : x.rows();
    gpu::run_block<<<unsigned(rows * kernel.runs_of_row()), gpu::kThreads>>>(kernel);
  });
  check_cuda(cudaDeviceSynchronize(), "fill memory");
}

// The fastest of kTimes runs, after a warm-up run.
template <class F>
double seconds_of(Backend& backend, const F& issue) {
  issue();
  backend.wait_all();
  double best = 1e30;
  for (int i = 0; i < kTimes; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    issue();
    backend.wait_all();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

class Gpu final : public CudaDevice {
 public:
  Gpu(int ordinal, const CudaSettings& settings)
      : ordinal_(ordinal), cudnn_(knows_cudnn() ? settings.cudnn : CudnnUse::none), memory_(make_cuda_memory(ordinal)) {
    check_cuda(cudaGetDeviceProperties(&properties_, ordinal), "ask the GPU what it is");
    const int capability = 10 * properties_.major + properties_.minor;
    if (capability < kOldest)
      throw Error(fmt::format("GPU {}, {}, has compute capability {}.{}; weft needs 8.0 (A100) or newer", ordinal,
                              properties_.name, properties_.major, properties_.minor));
    if (properties_.canMapHostMemory == 0 || properties_.unifiedAddressing == 0)
      throw Error(
          fmt::format("GPU {}, {}: this system does not let the GPU reach memory of the host (canMapHostMemory or "
                      "unifiedAddressing is 0), which weft needs for losses and norms: use 64-bit Linux",
                      ordinal, properties_.name));
    const ProductMachine machine{.gpu = properties_.name,
                                 .compute_capability = fmt::format("{}.{}", properties_.major, properties_.minor),
                                 .library_version = int64_t(cublasLtGetVersion())};
    const auto warn = [](const std::string& what) { std::fputs(("weft: " + what + "\n").c_str(), stderr); };
    products_ = std::make_shared<ProductCache>(settings.cache_folder, machine, warn);
  }

  int ordinal() const override { return ordinal_; }
  std::vector<std::string> kinds() const override {
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "look for GPUs");
    std::vector<std::string> all;
    for (int gpu = 0; gpu < count; ++gpu) {
      cudaDeviceProp p;
      check_cuda(cudaGetDeviceProperties(&p, gpu), "ask a GPU what it is");
      all.push_back(fmt::format("{}, compute capability {}.{}", p.name, p.major, p.minor));
    }
    return all;
  }
  void begin() const override {
    cudaError_t status = cudaSetDevice(ordinal_);
    if (status == cudaSuccess) status = cudaFree(nullptr);  // makes its context
    if (status == cudaSuccess) return;
    cudaGetLastError();
    throw Error(fmt::format(
        "GPU {}, {}, cannot be used: {} ({}){}; `nvidia-smi` shows its state, and "
        "CUDA_VISIBLE_DEVICES chooses others",
        ordinal_, properties_.name, cudaGetErrorString(status), cudaGetErrorName(status), why_unavailable(status)));
  }
  int64_t free_bytes() const override {
    if (properties_.integrated != 0) return int64_t(properties_.totalGlobalMem);  // the host's, which makes room
    check_cuda(cudaSetDevice(ordinal_), "use the GPU");
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "ask the GPU for its free memory");
    return int64_t(free);
  }

  std::string description() const override {
    int driver = 0;
    check_cuda(cudaDriverGetVersion(&driver), "ask for the driver's version");
    return fmt::format("{}, {:.0f} GiB, compute capability {}.{}, CUDA {} (driver {}), cuBLASLt {}, {}",
                       properties_.name, double(properties_.totalGlobalMem) / double(1 << 30), properties_.major,
                       properties_.minor, version_text(CUDART_VERSION, 1000), version_text(driver, 1000),
                       version_text(int(cublasLtGetVersion()), 10000), cudnn_text());
  }
  std::shared_ptr<Memory> memory() const override { return memory_; }
  std::shared_ptr<const WorkspaceModel> workspace_model() const override {
    return std::make_shared<CudaWorkspace>(cudnn_);
  }
  CudaMover make_mover(std::span<const int> gpus, std::shared_ptr<const Mover> host) const override {
    return make_cuda_mover(gpus, std::move(host));
  }
  std::shared_ptr<Fabric> make_fabric() const override { return make_nccl_fabric(ordinal_); }
  std::unique_ptr<RecordingBackend> make_backend(Arena& workspace) const override {
    return std::make_unique<CudaBackend>(ordinal_, workspace, products_, cudnn_);
  }

  double measure_matmul_rate(DType dtype) const override {
    return largest_that_fits(kSide, kLeastSide, [&](int64_t side) { return matmul_rate(dtype, side); });
  }
  double measure_bandwidth() const override {
    return largest_that_fits(kElements, kLeastElements, [&](int64_t n) { return bandwidth(n); });
  }

 private:
  std::string why_unavailable(cudaError_t status) const {
    if (status == cudaErrorMemoryAllocation) return ": other programs have its memory";
    int mode = 0;
    if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, ordinal_) != cudaSuccess) return "";
    if (mode == cudaComputeModeProhibited) return ": its compute mode is Prohibited (`nvidia-smi -c DEFAULT`)";
    if (mode == cudaComputeModeExclusiveProcess)
      return ": its compute mode is Exclusive_Process, and another process has it (`nvidia-smi -c DEFAULT`)";
    return "";
  }
  // Opened as a backend opens it.
  std::string cudnn_text() const {
    if (cudnn_ == CudnnUse::none) return knows_cudnn() ? "without cuDNN (WEFT_CUDNN=off)" : "without cuDNN";
    try {
      check_cuda(cudaSetDevice(ordinal_), "use the GPU");
      open_cudnn_attention(nullptr);
      return cudnn_name() + (cudnn_ == CudnnUse::any ? " (nondeterministic)" : "");
    } catch (const Error& e) { return fmt::format("without cuDNN ({})", e.what()); }
  }
  // f(size) of the first size, halved while the GPU has no room beside what is there already; 0 if never.
  template <class F>
  static double largest_that_fits(int64_t size, int64_t least, const F& f) {
    for (; size >= least; size /= 2) {
      try {
        return f(size);
      } catch (const NoMemory&) {}
    }
    return 0;
  }
  double matmul_rate(DType dtype, int64_t side) const {
    Arena arena("matrices to measure", 3 * side * side * size_of(dtype), memory_);
    Arena workspace("workspace to measure", kCublasWorkspace, memory_);
    CudaBackend backend(ordinal_, workspace, products_);
    const Tensor a = arena.alloc(dtype, {side, side}), b = arena.alloc(dtype, {side, side}),
                 out = arena.alloc(dtype, {side, side});
    fill_with_noise(a);
    fill_with_noise(b);
    const Matmul op{.a = a, .b = b, .out = out};
    return 2.0 * double(side) * double(side) * double(side) / seconds_of(backend, [&] { backend.run(op); });
  }
  double bandwidth(int64_t n) const {
    Arena arena("memory to measure", 2 * n * int64_t(sizeof(float)), memory_);
    Arena workspace("workspace to measure", kArenaAlignment, memory_);
    CudaBackend backend(ordinal_, workspace, products_);
    const Tensor from = arena.alloc(DType::f32, {n}), to = arena.alloc(DType::f32, {n});
    fill_with_noise(from);
    const auto copy = [&] {  // the driver's own, which weft's kernels are measured against
      check_cuda(cudaMemcpy(to.data, from.data, size_t(to.bytes()), cudaMemcpyDeviceToDevice), "copy memory");
      check_cuda(cudaDeviceSynchronize(), "copy memory");
    };
    return double(from.bytes() + to.bytes()) / seconds_of(backend, copy);
  }

  int ordinal_;
  CudnnUse cudnn_;
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<ProductCache> products_;
  cudaDeviceProp properties_ = {};
};

int count_of_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    throw Error(driver == 0
                    ? std::string("there is no NVIDIA driver on this machine; install one, or in a container "
                                  "start it with its GPUs (docker run --gpus all)")
                    : fmt::format("the NVIDIA driver is of CUDA {}, and weft was built with CUDA {}; update the "
                                  "driver, or build weft with an older toolkit",
                                  version_text(driver, 1000), version_text(CUDART_VERSION, 1000)));
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    throw Error("the NVIDIA driver sees no GPU (nvidia-smi shows what it sees; CUDA_VISIBLE_DEVICES may hide them)");
  check_cuda(status, "look for GPUs");
  return count;
}

}  // namespace
}  // namespace weft

extern "C" weft::CudaDevice* weft_open_cuda_device(int ordinal, const weft::CudaSettings& settings) {
  const int count = weft::count_of_gpus();
  return new weft::Gpu(ordinal % count, settings);
}
extern "C" weft::WorkspaceModel* weft_make_cuda_workspace(weft::CudnnUse cudnn) {
  return new weft::CudaWorkspace(weft::knows_cudnn() ? cudnn : weft::CudnnUse::none);
}
