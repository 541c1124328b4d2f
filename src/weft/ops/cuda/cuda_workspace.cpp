#include "weft/ops/cuda/cuda_workspace.h"

#include "weft/device/arena.h"
#include "weft/ops/cuda/attention_batch.h"
#include "weft/ops/cuda/cut_matmul.h"
#include "weft/ops/cuda/run_kernels.h"

namespace weft {
namespace {

class Counter {
 public:
  template <class Kernel>
  void launch(int64_t, const Kernel&) {}
  template <class Kernel>
  void launch_tiles(int64_t, const Kernel&) {}
  bool has_shared(int64_t) const { return true; }
  template <class E>
  E* memory(int64_t count) {
    return static_cast<E*>(arena_.alloc(DType::u8, {count * int64_t(sizeof(E))}).data);
  }
  template <class E>
  const E* copied(std::span<const E> from) {
    return memory<E>(int64_t(from.size()));
  }
  int64_t bytes() const { return arena_.peak(); }

 private:
  Arena arena_{"workspace"};
};

// `first`: bytes that come before.
template <class Op>
int64_t count(const Op& op, int64_t first = 0) {
  Counter counter;
  if (first > 0) counter.memory<std::byte>(first);
  gpu::run(counter, op);
  return counter.bytes();
}

template <class Op>
int64_t library_bytes(const Op& op, CudnnUse cudnn) {
  return cudnn == CudnnUse::none ? 0 : gpu::library_bytes(op, limits_of(cudnn));
}

}  // namespace

gpu::AttentionLimits limits_of(CudnnUse cudnn) { return {.repeats = cudnn != CudnnUse::any}; }

int64_t CudaWorkspace::bytes(const Matmul& op) const {
  Counter counter;
  counter.memory<std::byte>(kCublasWorkspace);
  if (cuts_depth(op)) counter.memory<float>(op.m() * op.n());
  return counter.bytes();
}
int64_t CudaWorkspace::bytes(const BiasGrad& op) const { return count(op); }
int64_t CudaWorkspace::bytes(const EmbedBackward& op) const { return count(op); }
int64_t CudaWorkspace::bytes(const NormBackward& op) const { return count(op); }
int64_t CudaWorkspace::bytes(const HeadNormBackward& op) const { return count(op); }
int64_t CudaWorkspace::bytes(const Attention& op) const { return count(op, library_bytes(op, cudnn_)); }
int64_t CudaWorkspace::bytes(const AttentionBackward& op) const { return count(op, library_bytes(op, cudnn_)); }
int64_t CudaWorkspace::bytes(const AttentionSinkBackward& op) const { return count(op); }
int64_t CudaWorkspace::bytes(const Sum& op) const { return count(op); }
int64_t CudaWorkspace::bytes(const SumSquares& op) const { return count(op); }
int64_t CudaWorkspace::bytes(const CountNonfinite& op) const { return count(op); }
int64_t CudaWorkspace::bytes(const GroupRows& op) const { return count(op); }

}  // namespace weft
