// One block of threads, as kernels see it: a real one on a GPU, a stand-in on a CPU, so that every kernel is tested
// without a GPU.
//
// A kernel is a struct with `template <class Block> void operator()(Block& block) const`, called once for each block of
// a grid. It runs in phases: the whole block makes each of the calls below with the same arguments; the call spreads
// its items over the threads and ends when all are done. The next phase sees what this one wrote.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

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
inline constexpr int kAtOnce = 8;                // items that a thread of `map` reads before it writes, of 4 bytes
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

// The order in which the stand-in runs what a GPU runs concurrently: blocks of a grid, items of a phase, warps, lanes.
// A correct kernel gives the same bits in every order; one whose items read each other's writes of the same phase does
// not.
class HostOrder {
 public:
  enum class Kind : uint8_t { ascending, descending, shuffled };
  HostOrder(Kind kind = Kind::ascending) : kind_(kind) {}  // NOLINT: kinds convert
  // f(i) for i in [0, n), each once. Shuffled: in steps of some number that has no divisor in common with n.
  template <class F>
  void play(int64_t n, const F& f) const {
    if (kind_ != Kind::shuffled) {
      for (int64_t i = 0; i < n; ++i) f(kind_ == Kind::ascending ? i : n - 1 - i);
      return;
    }
    int64_t step = n / 3 + ++phases_ % 7 + 2;
    while (greatest_divisor(step, n) != 1) ++step;
    for (int64_t i = 0, at = n / 2; i < n; ++i, at = (at + step) % n) f(at);
  }
  // Whether `map` reads for as many items as possible before it writes for the first.
  bool reads_ahead() const { return kind_ == Kind::shuffled; }

 private:
  static int64_t greatest_divisor(int64_t a, int64_t b) { return b == 0 ? a : greatest_divisor(b, a % b); }
  Kind kind_;
  mutable int64_t phases_ = 0;
};

// The same operations as on a GPU, one thread after the other.
class HostBlock {
 public:
  explicit HostBlock(int64_t index, HostOrder order = {})
      : index_(index), order_(order), numbers_(std::make_unique_for_overwrite<float[]>(kNumbers)) {
    std::memset(numbers_.get(), 0xff, kNumbers * sizeof(float));  // no numbers, till they are written
  }
  int64_t index() const { return index_; }
  float* numbers() const { return numbers_.get(); }  // kNumbers, which the block's threads share
  // f(i) for i in [0, n).
  template <class F>
  void each(int64_t n, const F& f) const {
    order_.play(n, f);
  }
  // to(i, from(i)) for i in [0, n): memory is busiest when many reads are under way, so from is called for several
  // items before to is called for the first of them.
  template <int kHeld = kAtOnce, class From, class To>
  void map(int64_t n, const From& from, const To& to) const {
    move<int64_t{kHeld} * kThreads>(n, from, to);
  }
  // The same for `count` rows of n items each, to(r, i, from(r, i)): a row is one warp's.
  template <int kHeld = kAtOnce, class From, class To>
  void map_rows(int64_t count, int64_t n, const From& from, const To& to) const {
    order_.play(count, [&](int64_t r) {
      move<int64_t{kHeld} * kLanes>(
          n, [&](int64_t i) { return from(r, i); }, [&](int64_t i, const auto& held) { to(r, i, held); });
    });
  }
  // Thread t folds f(t), f(t + kThreads), ...; then neighbours are joined in a tree. `none` is what joins as nothing.
  template <class T, class Join, class F>
  T fold(int64_t n, T none, const Join& join, const F& f) const {
    T parts[kThreads];
    order_.play(kThreads, [&](int64_t t) {
      parts[t] = none;
      for (int64_t i = t; i < n; i += kThreads) parts[t] = join(parts[t], f(i));
    });
    for (int half = kThreads / 2; half > 0; half /= 2)
      order_.play(half, [&](int64_t t) { parts[t] = join(parts[t], parts[t + half]); });
    return parts[0];
  }
  // to(r, what f(r, 0) ... f(r, n - 1) are folded to) for r in [0, count). A row is one warp's: lane t folds f(r, t),
  // f(r, t + kLanes), ...; then lanes are joined in a tree.
  template <class T, class Join, class F, class To>
  void fold_rows(int64_t count, int64_t n, T none, const Join& join, const F& f, const To& to) const {
    order_.play(count, [&](int64_t r) {
      T parts[kLanes];
      order_.play(kLanes, [&](int64_t t) {
        parts[t] = none;
        for (int64_t i = t; i < n; i += kLanes) parts[t] = join(parts[t], f(r, i));
      });
      for (int half = kLanes / 2; half > 0; half /= 2)
        for (int t = 0; t < half; ++t) parts[t] = join(parts[t], parts[t + half]);
      to(r, parts[0]);
    });
  }

 private:
  template <int64_t kRun, class From, class To>
  void move(int64_t n, const From& from, const To& to) const {
    if (!order_.reads_ahead()) return order_.play(n, [&](int64_t i) { to(i, from(i)); });
    using Held = decltype(from(n));
    for (int64_t first = 0; first < n; first += kRun) {
      std::vector<Held> held(size_t(n - first < kRun ? n - first : kRun));
      order_.play(int64_t(held.size()), [&](int64_t i) { held[size_t(i)] = from(first + i); });
      order_.play(int64_t(held.size()), [&](int64_t i) { to(first + i, held[size_t(i)]); });
    }
  }

  int64_t index_;
  HostOrder order_;
  std::unique_ptr<float[]> numbers_;  // as many as there are, so that a sanitizer sees one too many
};

#ifdef __CUDACC__
// The value of the lane `by` further; undefined for the last lanes.
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
  template <int kHeld = kAtOnce, class From, class To>
  __device__ void map(int64_t n, const From& from, const To& to) const {
    move<kHeld, kThreads>(int(threadIdx.x), n, from, to);
    __syncthreads();
  }
  template <int kHeld = kAtOnce, class From, class To>
  __device__ void map_rows(int64_t count, int64_t n, const From& from, const To& to) const {
    for (int64_t r = threadIdx.x / kLanes; r < count; r += kWarps)
      move<kHeld, kLanes>(
          int(threadIdx.x) % kLanes, n, [&](int64_t i) { return from(r, i); },
          [&](int64_t i, const auto& held) { to(r, i, held); });
    __syncthreads();
  }
  template <class T, class Join, class F, class To>
  __device__ void fold_rows(int64_t count, int64_t n, T none, const Join& join, const F& f, const To& to) const {
    const int lane = int(threadIdx.x) % kLanes;
    for (int64_t r = threadIdx.x / kLanes; r < count; r += kWarps) {
      T mine = none;
      WEFT_UNROLL_4
      for (int64_t i = lane; i < n; i += kLanes) mine = join(mine, f(r, i));
      WEFT_UNROLL
      for (int half = kLanes / 2; half > 0; half /= 2) mine = join(mine, of_lane_below(mine, half));
      if (lane == 0) to(r, mine);
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
  template <int kHeld, int kApart, class From, class To>
  static __device__ void move(int me, int64_t n, const From& from, const To& to) {
    for (int64_t first = me; first < n; first += kHeld * kApart) {
      decltype(from(first)) held[kHeld];
      WEFT_UNROLL
      for (int u = 0; u < kHeld; ++u)
        if (first + u * kApart < n) held[u] = from(first + u * kApart);
      WEFT_UNROLL
      for (int u = 0; u < kHeld; ++u)
        if (first + u * kApart < n) to(first + u * kApart, held[u]);
    }
  }

  void* fold_;
  float* numbers_;
};
#endif

}  // namespace weft::gpu
