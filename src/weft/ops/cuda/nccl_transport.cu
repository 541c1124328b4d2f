#include "weft/ops/cuda/nccl_transport.cuh"

#include <algorithm>
#include <cstring>
#include <exception>

#include "weft/base/error.h"
#include "weft/ops/cuda/queue_launcher.cuh"
#include "weft/ops/cuda/rank_sum.h"

namespace weft {
namespace {

// Blocks of a kernel of NCCL's, each of which takes a multiprocessor while it waits for its peers. All groups of a rank
// together, seven at most, leave some of the 108 of an A100 to what they wait for.
constexpr int kBlocksOfGroup = 12, kBlocksOfPair = 4;

template <class T>
void launch_sum(std::span<const void* const> from, int64_t n, void* out, cudaStream_t queue) {
  gpu::RankSum<T> kernel = {.from = {}, .num_ranks = int(from.size()), .out = static_cast<T*>(out), .n = n};
  std::transform(from.begin(), from.end(), kernel.from, [](const void* at) { return static_cast<const T*>(at); });
  const int64_t blocks = (n + kernel.kRun - 1) / kernel.kRun;
  gpu::run_block<<<unsigned(blocks), gpu::kThreads, 0, queue>>>(kernel);
  check_cuda(cudaGetLastError(), "launch a kernel");
}

}  // namespace

void NcclTransport::connect(const Fabric::End& end) {
  use_gpu();
  int least = 0, greatest = 0;  // so that a sum need not wait for the end of a product
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for the priorities of queues");
  check_cuda(cudaStreamCreateWithPriority(&queue_, cudaStreamNonBlocking, greatest), "make a queue");
  marks_.emplace(gpu::CudaMarks(ordinal_, queue_));
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, size_t(end.staging_bytes)), "take memory of the GPU for sums over ranks");
  staging_ = {static_cast<std::byte*>(memory), size_t(end.staging_bytes)};
  ncclUniqueId id;
  WEFT_CHECK(end.name.size() == sizeof id, "a name of {} bytes for NCCL", end.name.size());
  std::memcpy(&id, end.name.data(), sizeof id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.maxCTAs = end.only_messages ? kBlocksOfPair : kBlocksOfGroup;
  nccl_.check(nccl_.comm_init_rank_config(&comm_, end.size, id, end.rank, &config), "connect GPUs");
}

NcclTransport::~NcclTransport() {
  cudaSetDevice(ordinal_);
  if (std::uncaught_exceptions() > 0) abort();
  if (comm_ != nullptr) {
    cudaStreamSynchronize(queue_);
    nccl_.comm_destroy(comm_);
  }
  marks_.reset();
  times_.reset();
  if (queue_ != nullptr) cudaStreamDestroy(queue_);
  cudaFree(staging_.data());
}

void NcclTransport::exchange(std::span<const Message> sent, std::span<const Message> received) {
  use_gpu();
  nccl_.check(nccl_.group_start(), "begin a group of messages");
  ncclResult_t status = ncclSuccess;  // a group is ended whatever happens in it
  const auto add = [&](const auto& call, const Message& m) {
    if (status == ncclSuccess) status = call(m.data, size_t(m.bytes), ncclUint8, m.peer, comm_, queue_);
  };
  for (const Message& m : sent) add(nccl_.send, m);
  for (const Message& m : received) add(nccl_.recv, m);
  const ncclResult_t ended = nccl_.group_end();
  nccl_.check(status, "add to a group of messages");
  nccl_.check(ended, "send a group of messages");
}

void NcclTransport::all_gather(const void* mine, void* all, int64_t bytes) {
  use_gpu();
  nccl_.check(nccl_.all_gather(mine, all, size_t(bytes), ncclUint8, comm_, queue_), "gather what GPUs have");
}

void NcclTransport::sum(std::span<const void* const> from, DType dtype, int64_t n, void* out) {
  use_gpu();
  WEFT_CHECK(n > 0 && from.size() <= size_t(gpu::kMostRanks), "a sum of {} over {} ranks", n, from.size());
  if (dtype == DType::f64) return launch_sum<double>(from, n, out, queue_);
  gpu::by_float(dtype, [&](auto t) { launch_sum<decltype(t)>(from, n, out, queue_); });
}

Stamp NcclTransport::stamp() {
  if (!times_) times_.emplace(gpu::CudaEvents(ordinal_, queue_));
  return times_->stamp();
}

int64_t NcclTransport::take_time_ns(Stamp stamp) {
  WEFT_CHECK(times_, "the time of stamp {}, of none", int64_t(stamp));
  times_->queue_has_passed(stamp);
  return times_->take_ns(stamp);
}

std::string NcclTransport::failure() {
  if (comm_ == nullptr) return "it has been aborted";
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.comm_get_async_error(comm_, &state);
  if (asked != ncclSuccess) return nccl_.text_of(asked);
  return state == ncclSuccess || state == ncclInProgress ? "" : nccl_.text_of(state);
}

// NCCL's kernels stop, and the work queued behind them finishes.
void NcclTransport::abort() noexcept {
  if (comm_ == nullptr) return;
  cudaSetDevice(ordinal_);
  nccl_.comm_abort(comm_);
  comm_ = nullptr;
  cudaStreamSynchronize(queue_);
  marks_->queue_has_passed();
}

}  // namespace weft
