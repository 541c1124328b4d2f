// One block of threads, as kernels see it: on a GPU it is one, on a CPU it stands for one, so that every kernel is
// tested where there is no GPU.
//
// A kernel is a struct with `template <class Block> void operator()(Block& block) const`, called once for each block of
// a grid. It goes in phases: each of the calls below is made by the whole block with the same arguments, spreads its
// items over the threads, and ends with all of them done. What a phase leaves in memory the next one sees.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define WEFT_GPU __device__            // called by kernels
#define WEFT_BOTH __host__ __device__  // and by what launches them
#else
#define WEFT_GPU
#define WEFT_BOTH
#endif

namespace weft::gpu {

inline constexpr int kLanes = 32;     // threads of a warp
inline constexpr int kThreads = 256;  // of a block
inline constexpr int kWarps = kThreads / kLanes;
inline constexpr int kFoldBytes = 8 * kThreads;  // of shared memory: what sums of a block are made in
inline constexpr int kNumbers = 6 * kThreads;    // floats of shared memory that a kernel has for itself

struct AddUp {
  template <class T>
  WEFT_GPU T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  WEFT_GPU T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// The same order of operations as on a GPU, one thread after the other.
class HostBlock {
 public:
  explicit HostBlock(int64_t index) : index_(index) {}
  int64_t index() const { return index_; }
  float* numbers() const { return numbers_; }  // kNumbers, which the block's threads share
  // f(i) for i in [0, n).
  template <class F>
  void each(int64_t n, const F& f) const {
    for (int64_t i = 0; i < n; ++i) f(i);
  }
  // Thread t folds f(t), f(t + kThreads), ...; then neighbours are joined in a tree. `none` is what joins as nothing.
  template <class T, class Join, class F>
  T fold(int64_t n, T none, const Join& join, const F& f) const {
    T parts[kThreads];
    for (int t = 0; t < kThreads; ++t) {
      parts[t] = none;
      for (int64_t i = t; i < n; i += kThreads) parts[t] = join(parts[t], f(i));
    }
    for (int half = kThreads / 2; half > 0; half /= 2)
      for (int t = 0; t < half; ++t) parts[t] = join(parts[t], parts[t + half]);
    return parts[0];
  }

 private:
  int64_t index_;
  mutable float numbers_[kNumbers];
};

#ifdef __CUDACC__
class GpuBlock {
 public:
  __device__ GpuBlock(void* fold, float* numbers) : fold_(fold), numbers_(numbers) {}
  __device__ int64_t index() const { return blockIdx.x; }
  __device__ float* numbers() const { return numbers_; }
  template <class F>
  __device__ void each(int64_t n, const F& f) const {
    for (int64_t i = threadIdx.x; i < n; i += kThreads) f(i);
    __syncthreads();
  }
  template <class T, class Join, class F>
  __device__ T fold(int64_t n, T none, const Join& join, const F& f) const {
    static_assert(sizeof(T) * kThreads <= kFoldBytes);
    T* parts = static_cast<T*>(fold_);
    T mine = none;
    for (int64_t i = threadIdx.x; i < n; i += kThreads) mine = join(mine, f(i));
    parts[threadIdx.x] = mine;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (int(threadIdx.x) < half) parts[threadIdx.x] = join(parts[threadIdx.x], parts[threadIdx.x + half]);
      __syncthreads();
    }
    const T all = parts[0];
    __syncthreads();  // before the next fold writes there
    return all;
  }

 private:
  void* fold_;
  float* numbers_;
};
#endif

}  // namespace weft::gpu
