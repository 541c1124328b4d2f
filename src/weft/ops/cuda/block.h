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
#define WEFT_UNROLL _Pragma("unroll")
#define WEFT_UNROLL_4 _Pragma("unroll 4")
#define WEFT_UNROLL_8 _Pragma("unroll 8")
#else
#define WEFT_GPU
#define WEFT_BOTH
#define WEFT_UNROLL
#define WEFT_UNROLL_4
#define WEFT_UNROLL_8
#endif

namespace weft::gpu {

inline constexpr int kLanes = 32;     // threads of a warp
inline constexpr int kThreads = 256;  // of a block
inline constexpr int kWarps = kThreads / kLanes;
inline constexpr int kAtOnce = 8;                // items that a thread of `map` reads before it writes
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
  // to(i, from(i)) for i in [0, n): memory is busiest when many reads are under way, so from is called for several
  // items before to is called for the first of them.
  template <class From, class To>
  void map(int64_t n, const From& from, const To& to) const {
    for (int64_t i = 0; i < n; ++i) to(i, from(i));
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
// What the lane `by` further has; of the last ones, anything.
template <class T>
__device__ T of_lane_below(const T& mine, int by) {
  static_assert(sizeof(T) % sizeof(int) == 0);
  constexpr int kWords = int(sizeof(T) / sizeof(int));
  T other = mine;
  int words[kWords];
  memcpy(words, &mine, sizeof(T));
  WEFT_UNROLL
  for (int w = 0; w < kWords; ++w) words[w] = __shfl_down_sync(~0u, words[w], by);
  memcpy(&other, words, sizeof(T));
  return other;
}

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
  template <class From, class To>
  __device__ void map(int64_t n, const From& from, const To& to) const {
    for (int64_t first = threadIdx.x; first < n; first += kAtOnce * kThreads) {
      decltype(from(first)) held[kAtOnce];
      WEFT_UNROLL
      for (int u = 0; u < kAtOnce; ++u)
        if (first + u * kThreads < n) held[u] = from(first + u * kThreads);
      WEFT_UNROLL
      for (int u = 0; u < kAtOnce; ++u)
        if (first + u * kThreads < n) to(first + u * kThreads, held[u]);
    }
    __syncthreads();
  }
  template <class T, class Join, class F>
  __device__ T fold(int64_t n, T none, const Join& join, const F& f) const {
    static_assert(sizeof(T) * kThreads <= kFoldBytes);
    T* parts = static_cast<T*>(fold_);
    T mine = none;
    WEFT_UNROLL_4
    for (int64_t i = threadIdx.x; i < n; i += kThreads) mine = join(mine, f(i));
    parts[threadIdx.x] = mine;
    __syncthreads();
    for (int half = kThreads / 2; half >= kLanes; half /= 2) {
      if (int(threadIdx.x) < half) parts[threadIdx.x] = join(parts[threadIdx.x], parts[threadIdx.x + half]);
      __syncthreads();
    }
    if (int(threadIdx.x) < kLanes) {  // the first warp, which needs no other
      mine = parts[threadIdx.x];
      WEFT_UNROLL
      for (int half = kLanes / 2; half > 0; half /= 2) mine = join(mine, of_lane_below(mine, half));
      if (threadIdx.x == 0) parts[0] = mine;
    }
    __syncthreads();
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
