// A block whose warps multiply tiles in shared memory (block.h: one on a GPU, a stand-in on a CPU). A kernel of tiles
// is a struct with `kSharedBytes` and `template <class Block> void operator()(const Block& block) const`.
#pragma once
#include <memory>
#include <vector>

#include "weft/ops/cuda/warp.h"

namespace weft::gpu {

inline constexpr int kPieceBytes = 16;  // that one thread copies at a time

class HostTileBlock {
 public:
  using Warp = HostWarp;
  // What each warp keeps from phase to phase.
  template <class S>
  class PerWarp {
   public:
    S& operator[](const Warp& warp) const { return (*all_)[size_t(warp.index())]; }

   private:
    std::unique_ptr<std::vector<S>> all_ = std::make_unique<std::vector<S>>(kWarps);
  };
  HostTileBlock(int64_t index, int64_t shared_bytes) : index_(index), shared_(size_t(shared_bytes), std::byte{0xff}) {}
  int64_t index() const { return index_; }
  void* shared() const { return shared_.data(); }  // kSharedBytes, aligned to kPieceBytes
  // f(warp) for each of kWarps; ends when all have done it.
  template <class F>
  void warps(const F& f) const {
    for (int w = 0; w < kWarps; ++w) f(Warp(w));
  }
  // f(i) for i in [0, n), spread over the threads. The others see it after `fetched`.
  template <class F>
  void each(int n, const F& f) const {
    for (int i = 0; i < n; ++i) f(i);
  }
  // Begins to copy `rows` rows of kPieces pieces of 16 bytes to shared memory, `stride` elements apart: from(r), or
  // zeros where it is null; from piece `some` on, zeros. One batch with all that was begun before the next
  // `end_of_batch`.
  template <int kPieces, class T, class From>
  void fetch(T* to, int stride, int rows, int some, const From& from) const {
    constexpr int kEach = kPieceBytes / int(sizeof(T));
    for (int r = 0; r < rows; ++r) {
      for (int p = 0; p < kPieces; ++p) {
        const T* at = p < some ? from(r) : nullptr;
        for (int i = 0; i < kEach; ++i) to[r * stride + p * kEach + i] = at != nullptr ? at[p * kEach + i] : T(0.0f);
      }
    }
  }
  void end_of_batch() const {}
  // All batches are there, for all threads; but not yet the last `kBut`.
  template <int kBut>
  void fetched() const {}

 private:
  int64_t index_;
  mutable std::vector<std::byte> shared_;
};

#ifdef __CUDACC__
class GpuTileBlock {
 public:
  using Warp = GpuWarp;
  template <class S>
  class PerWarp {
   public:
    __device__ S& operator[](const Warp&) const { return mine_; }

   private:
    mutable S mine_;
  };
  __device__ explicit GpuTileBlock(void* shared) : shared_(shared) {}
  __device__ int64_t index() const { return blockIdx.x; }
  __device__ void* shared() const { return shared_; }
  template <class F>
  __device__ void warps(const F& f) const {
    f(Warp());
    __syncthreads();
  }
  template <class F>
  __device__ void each(int n, const F& f) const {
    for (int i = int(threadIdx.x); i < n; i += kThreads) f(i);
  }
  template <int kPieces, class T, class From>
  __device__ void fetch(T* to, int stride, int rows, int some, const From& from) const {
    constexpr int kEach = kPieceBytes / int(sizeof(T));
    for (int i = int(threadIdx.x); i < rows * kPieces; i += kThreads) {
      const int r = i / kPieces, p = i % kPieces;
      const T* row = p < some ? from(r) : nullptr;
      const unsigned at = unsigned(__cvta_generic_to_shared(to + r * stride + p * kEach));
      const void* source = row != nullptr ? row + p * kEach : static_cast<const void*>(from(0));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(source),
                   "r"(row != nullptr ? kPieceBytes : 0)
                   : "memory");
    }
  }
  __device__ void end_of_batch() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int kBut>
  __device__ void fetched() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kBut) : "memory");
    __syncthreads();
  }

 private:
  void* shared_;
};
#endif

}  // namespace weft::gpu
