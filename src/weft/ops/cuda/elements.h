// Elements as kernels read and write them: numbers in memory are f32, bf16 or f16, in registers float.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "weft/ops/cuda/block.h"
#include "weft/tensor/tensor.h"

namespace weft::gpu {

WEFT_GPU inline float load(const float* at) { return *at; }
WEFT_GPU inline float load(const bf16* at) { return float(*at); }
WEFT_GPU inline void store(float* at, float x) { *at = x; }
#ifdef __CUDACC__  // instructions that round alike
WEFT_GPU inline float load(const f16* at) { return __half2float(*reinterpret_cast<const __half*>(at)); }
WEFT_GPU inline void store(bf16* at, float x) { *reinterpret_cast<__nv_bfloat16*>(at) = __float2bfloat16_rn(x); }
WEFT_GPU inline void store(f16* at, float x) { *reinterpret_cast<__half*>(at) = __float2half_rn(x); }
#else
WEFT_GPU inline float load(const f16* at) { return float(*at); }
WEFT_GPU inline void store(bf16* at, float x) { *at = bf16(x); }
WEFT_GPU inline void store(f16* at, float x) { *at = f16(x); }
#endif

// N neighbours in a row, which move together: 16 bytes at a time where N is kPack, so that memory is busy.
inline constexpr int kPack = 8, kPackBytes = 16;
template <int N>
struct Pack {
  float v[N];
};
template <class T>
struct alignas(kPackBytes) Packed {
  T x[kPackBytes / sizeof(T)];
};
template <int N, class T>
WEFT_GPU Pack<N> load_pack(const T* at) {
  using E = std::remove_const_t<T>;
  Pack<N> all;
  if constexpr (N == 1) {
    all.v[0] = load(at);
  } else {
    constexpr int kEach = kPackBytes / int(sizeof(E));
    WEFT_UNROLL
    for (int first = 0; first < N; first += kEach) {
      Packed<E> part;
#ifdef __CUDACC__
      *reinterpret_cast<uint4*>(&part) = *reinterpret_cast<const uint4*>(at + first);
#else
      WEFT_CHECK(reinterpret_cast<uintptr_t>(at + first) % kPackBytes == 0, "a pack begins between 16 bytes");
      std::copy_n(at + first, kEach, part.x);
#endif
      WEFT_UNROLL
      for (int u = 0; u < kEach; ++u) all.v[first + u] = load(&part.x[u]);
    }
  }
  return all;
}
template <int N, class T>
WEFT_GPU void store_pack(T* at, const Pack<N>& all) {
  if constexpr (N == 1) {
    store(at, all.v[0]);
  } else {
    constexpr int kEach = kPackBytes / int(sizeof(T));
    WEFT_UNROLL
    for (int first = 0; first < N; first += kEach) {
      Packed<T> part;
      WEFT_UNROLL
      for (int u = 0; u < kEach; ++u) store(&part.x[u], all.v[first + u]);
#ifdef __CUDACC__
      *reinterpret_cast<uint4*>(at + first) = *reinterpret_cast<const uint4*>(&part);
#else
      WEFT_CHECK(reinterpret_cast<uintptr_t>(at + first) % kPackBytes == 0, "a pack begins between 16 bytes");
      std::copy_n(part.x, kEach, at + first);
#endif
    }
  }
}
// The same of a row's last `count` numbers where they are fewer than N; beside them are `none`s, or nothing is written.
template <int N, class T>
WEFT_GPU Pack<N> load_some(const T* at, int64_t count, float none) {
  if (count >= N) return load_pack<N>(at);
  Pack<N> all;
  for (int u = 0; u < N; ++u) all.v[u] = u < count ? load(at + u) : none;
  return all;
}
template <int N, class T>
WEFT_GPU void store_some(T* at, const Pack<N>& all, int64_t count) {
  if (count >= N) return store_pack(at, all);
  for (int u = 0; u < N; ++u)
    if (u < count) store(at + u, all.v[u]);
}
// f of the first numbers of all packs, of the second ones, ...
template <class F, int N, class... Packs>
WEFT_GPU Pack<N> each_of(const F& f, const Pack<N>& first, const Packs&... rest) {
  Pack<N> all;
  WEFT_UNROLL
  for (int u = 0; u < N; ++u) all.v[u] = f(first.v[u], rest.v[u]...);
  return all;
}
template <int N>
WEFT_GPU float sum_of(const Pack<N>& all) {
  float sum = 0;
  WEFT_UNROLL
  for (int u = 0; u < N; ++u) sum += all.v[u];
  return sum;
}

// A matrix, or a vector as one row; `at` is null where the tensor does not exist.
template <class T>
struct Rows {
  T* at = nullptr;
  int64_t cols = 0, stride = 0;
  WEFT_GPU T* operator[](int64_t i) const { return at + i * stride; }
  WEFT_GPU explicit operator bool() const { return at != nullptr; }
};
inline bool is_vector(const Tensor& t) { return t.shape.rank() == 1; }
// A vector as a matrix of one column; a matrix as it is.
inline Tensor as_column(Tensor t) {
  if (!is_vector(t)) return t;
  const int64_t n = t.elements();
  t.shape = {n, 1}, t.row_stride = 1;
  return t;
}
template <class T>
Rows<T> rows(const Tensor& t) {
  if (!t) return {};
  const int64_t cols = is_vector(t) ? t.elements() : t.cols();
  return {t.as<std::remove_const_t<T>>(), cols, is_vector(t) ? cols : t.row_stride};
}
template <class T>
T* flat(const Tensor& t) {
  return t ? t.as<T>() : nullptr;
}

// Whether rows of all of them begin where packs may. Those that do not exist do.
inline bool begin_packs(std::initializer_list<const Tensor*> all) {
  return std::all_of(all.begin(), all.end(), [](const Tensor* x) {
    if (!*x) return true;
    const int64_t apart = is_vector(*x) ? 0 : x->row_stride * size_of(x->dtype);
    return apart % kPackBytes == 0 && reinterpret_cast<uintptr_t>(x->data) % kPackBytes == 0;
  });
}
// Whether rows of all of them are packs of kPack and no more.
inline bool in_packs(std::initializer_list<const Tensor*> all) {
  return begin_packs(all) && std::all_of(all.begin(), all.end(), [](const Tensor* x) {
           return !*x || (is_vector(*x) ? x->elements() : x->cols()) % kPack == 0;
         });
}
// f.template operator()<N>() with N = kPack or 1.
template <class F>
void by_pack(bool packs, const F& f) {
  packs ? f.template operator()<kPack>() : f.template operator()<1>();
}

// f(T{}) of the element type that a dtype stands for.
template <class F>
void by_float(DType t, const F& f) {
  if (t == DType::f32) return f(float{});
  if (t == DType::bf16) return f(bf16{});
  WEFT_CHECK(t == DType::f16, "a GPU computes in f32, bf16 and f16, not {}", name_of(t));
  f(f16{});
}

}  // namespace weft::gpu
