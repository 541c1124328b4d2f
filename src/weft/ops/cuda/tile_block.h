// A block whose warps multiply tiles in shared memory (block.h: one on a GPU, a stand-in on a CPU). A kernel of tiles
// is a struct with `kSharedBytes` and `template <class Block> void operator()(const Block& block) const`.
#pragma once
#include <cstring>
#include <memory>
#include <vector>

#include "weft/ops/cuda/warp.h"

namespace weft::gpu {

inline constexpr int kCopyBytes = 16;  // that one thread copies at a time

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
  HostTileBlock(int64_t index, int64_t shared_bytes, HostOrder order = {})
      : index_(index), order_(order), shared_(size_t(shared_bytes), std::byte{0xff}) {}
  int64_t index() const { return index_; }
  void* shared() const { return shared_.data(); }  // kSharedBytes, aligned to kCopyBytes
  // f(warp) for each of kWarps; ends when all have done it.
  template <class F>
  void warps(const F& f) const {
    WEFT_CHECK(!unseen_, "warps read what `each` wrote, before `fetched` has made the block's threads wait");
    order_.play(kWarps, [&](int64_t w) { f(Warp(int(w), order_)); });
  }
  // f(i) for i in [0, n), spread over the threads. The others see it after `fetched`.
  template <class F>
  void each(int n, const F& f) const {
    order_.play(n, [&](int64_t i) { f(int(i)); });
    unseen_ = true;
  }
  // Begins to copy `rows` rows of kCopies times 16 bytes to shared memory, `stride` elements apart: from(r), or
  // zeros where it is null; from the copy `some` on, zeros. One batch with all that was begun before the next
  // `end_of_batch`. Here nothing but bytes of ones is there until it is fetched.
  template <int kCopies, class T, class From>
  void fetch(T* to, int stride, int rows, int some, const From& from) const {
    constexpr int kEach = kCopyBytes / int(sizeof(T));
    order_.play(rows * kCopies, [&](int64_t i) {
      const int r = int(i) / kCopies, p = int(i) % kCopies;
      const T* row = p < some ? from(r) : nullptr;
      Copy copy{batch_, to + r * stride + p * kEach, row == nullptr ? nullptr : row + p * kEach};
      WEFT_CHECK(reinterpret_cast<uintptr_t>(copy.to) % kCopyBytes == 0 &&
                     reinterpret_cast<uintptr_t>(copy.from) % kCopyBytes == 0,
                 "{} bytes are copied from or to a place between multiples of them", kCopyBytes);
      std::memset(copy.to, 0xff, kCopyBytes);
      under_way_.push_back(copy);
    });
  }
  void end_of_batch() const { ++batch_; }
  // All batches are there, for all threads; but not yet the last `kBut`.
  template <int kBut>
  void fetched() const {
    std::erase_if(under_way_, [&](const Copy& copy) {
      if (copy.batch >= batch_ - kBut) return false;
      if (copy.from != nullptr)
        std::memcpy(copy.to, copy.from, kCopyBytes);
      else
        std::memset(copy.to, 0, kCopyBytes);
      return true;
    });
    unseen_ = false;
  }

 private:
  struct Copy {
    int64_t batch;
    void* to;
    const void* from;  // null: zeros
  };
  int64_t index_;
  HostOrder order_;
  mutable std::vector<std::byte> shared_;  // of the size that is launched, so that a sanitizer sees a byte too many
  mutable std::vector<Copy> under_way_;
  mutable int64_t batch_ = 0;
  mutable bool unseen_ = false;  // has `each` written, and no thread waited for the others since
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
  template <int kCopies, class T, class From>
  __device__ void fetch(T* to, int stride, int rows, int some, const From& from) const {
    constexpr int kEach = kCopyBytes / int(sizeof(T));
    for (int i = int(threadIdx.x); i < rows * kCopies; i += kThreads) {
      const int r = i / kCopies, p = i % kCopies;
      const T* row = p < some ? from(r) : nullptr;
      const unsigned at = unsigned(__cvta_generic_to_shared(to + r * stride + p * kEach));
      const void* source = row != nullptr ? row + p * kEach : static_cast<const void*>(from(0));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(source),
                   "r"(row != nullptr ? kCopyBytes : 0)
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
