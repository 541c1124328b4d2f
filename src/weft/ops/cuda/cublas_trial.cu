#include "weft/ops/cuda/cublas_trial.h"

#include <algorithm>
#include <optional>

#include "weft/ops/cuda/bits_compared.h"
#include "weft/ops/cuda/queue_launcher.cuh"

namespace weft {
namespace {

constexpr double kLong = 1e-3;  // seconds: of a run that needs no other behind it to be timed
constexpr int kRunsBehind = 4;  // of a short one, so that its launch is not what is timed

bool good(cudaError_t status) {
  if (status == cudaSuccess) return true;
  cudaGetLastError();  // which would else be the next call's
  return false;
}

// Allocates in queue order: unlike cudaFree, it never waits for other work of the GPU, such as a transfer that waits
// for a peer.
class Scratch {
 public:
  explicit Scratch(cudaStream_t queue) : queue_(queue) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (memory_ == nullptr) return;
    good(cudaFreeAsync(memory_, queue_));
    good(cudaStreamSynchronize(queue_));  // then the driver has it back
  }
  bool take(size_t bytes) {
    size_t free = 0, total = 0;
    if (!good(cudaMemGetInfo(&free, &total)) || free < kReservedFromTrials || free - kReservedFromTrials < bytes)
      return false;
    void* memory = nullptr;
    if (!good(cudaMallocAsync(&memory, bytes, queue_))) return false;
    memory_ = static_cast<std::byte*>(memory);
    return true;
  }
  std::byte* at(size_t offset) const { return memory_ + offset; }

 private:
  cudaStream_t queue_;
  std::byte* memory_ = nullptr;
};

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) good(cudaEventDestroy(event_));
  }
  bool make() { return good(cudaEventCreate(&event_)); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Launcher {
  cudaStream_t queue;
  template <class Kernel>
  void launch(int64_t blocks, const Kernel& kernel) const {
    gpu::run_block<<<unsigned(blocks), gpu::kThreads, 0, queue>>>(kernel);
    check_cuda(cudaGetLastError(), "launch a kernel");
  }
  void fetch(void* to, const void* from, int64_t bytes) const {
    check_cuda(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDeviceToHost, queue), "copy from the GPU");
    check_cuda(cudaStreamSynchronize(queue), "run what the GPU was given");
  }
};

class TrialOnQueue final : public ProductTrial {
 public:
  TrialOnQueue(CublasTrial trial, cudaStream_t queue)
      : trial_(std::move(trial)), queue_(queue), scratch_(queue), of_first_(trial_.out), of_other_(trial_.out) {}

  bool begin() {
    const Tensor& out = trial_.out;
    const auto elements = size_t((out.rows() - 1) * out.row_stride + out.cols());
    bytes_ = rounded(elements * size_t(size_of(out.dtype)));
    if (!scratch_.take(2 * bytes_ + gpu::kMostBitsReports * sizeof(gpu::BitsReport))) return false;
    of_first_.data = scratch_.at(0);
    of_other_.data = scratch_.at(bytes_);
    reports_ = reinterpret_cast<gpu::BitsReport*>(scratch_.at(2 * bytes_));
    return begun_.make() && ended_.make();
  }

  std::vector<ProductWay> ways() override { return trial_.ways(); }
  int64_t telling() override {
    if (!run_whole(trial_.first, of_first_)) return 0;
    const auto report = compare(of_first_);
    return report && report->wild == 0 ? report->telling : 0;
  }
  std::optional<double> seconds_of(const ProductWay& way) override {
    if (!run(way, of_other_)) return {};  // the first time the library may have to load it
    auto best = seconds_of_run(way, 1);
    for (int more = best && *best < kLong ? 2 : 1; best && more > 0; --more) {
      const auto again = seconds_of_run(way, *best < kLong ? kRunsBehind : 1);
      best = again ? std::optional(std::min(*best, *again)) : std::nullopt;
    }
    return best;
  }
  bool same_bits(const ProductWay& way) override {
    if (!run_whole(way, of_other_)) return false;
    const auto report = compare(of_other_);
    return report && report->apart == 0;
  }

 private:
  static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }
  // Issues it. Later errors appear at the wait.
  bool run(const ProductWay& way, const Tensor& to) const {
    const bool issued = trial_.run(way, to.data);
    return good(cudaGetLastError()) && issued;
  }
  // Elements that it does not write stay non-finite in any type, which shows.
  bool run_whole(const ProductWay& way, const Tensor& to) const {
    return good(cudaMemsetAsync(to.data, 0xff, bytes_, queue_)) && run(way, to);
  }
  std::optional<double> seconds_of_run(const ProductWay& way, int times) const {
    if (!good(cudaEventRecord(begun_.get(), queue_))) return {};
    for (int i = 0; i < times; ++i)
      if (!run(way, of_other_)) return {};
    float ms = 0;
    if (!good(cudaEventRecord(ended_.get(), queue_)) || !good(cudaEventSynchronize(ended_.get())) ||
        !good(cudaEventElapsedTime(&ms, begun_.get(), ended_.get())))
      return {};
    return double(ms) * 1e-3 / times;
  }
  std::optional<gpu::BitsReport> compare(const Tensor& other) const {
    const Launcher launcher{queue_};
    try {
      return gpu::compare_bits(launcher, of_first_, other, trial_.anyway, reports_);
    } catch (const Error&) {
      cudaGetLastError();
      return {};
    }
  }

  CublasTrial trial_;
  cudaStream_t queue_;
  Scratch scratch_;
  Event begun_, ended_;
  Tensor of_first_, of_other_;
  size_t bytes_ = 0;  // of each
  gpu::BitsReport* reports_ = nullptr;
};

}  // namespace

std::unique_ptr<ProductTrial> begin_trial(CublasTrial trial, cudaStream_t queue) {
  auto begun = std::make_unique<TrialOnQueue>(std::move(trial), queue);
  if (!begun->begin()) return nullptr;
  return begun;
}

}  // namespace weft
