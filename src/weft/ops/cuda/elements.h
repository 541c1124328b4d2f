// Elements as kernels read and write them: numbers in memory are f32, bf16 or f16, in registers float.
#pragma once
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

// A matrix, or a vector as one row; `at` is null where the tensor does not exist.
template <class T>
struct Rows {
  T* at = nullptr;
  int64_t cols = 0, stride = 0;
  WEFT_GPU T* operator[](int64_t i) const { return at + i * stride; }
  WEFT_GPU explicit operator bool() const { return at != nullptr; }
};
inline bool is_vector(const Tensor& t) { return t.shape.rank() == 1; }
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

// f(T{}) of the element type that a dtype stands for.
template <class F>
void by_float(DType t, const F& f) {
  if (t == DType::f32) return f(float{});
  if (t == DType::bf16) return f(bf16{});
  WEFT_CHECK(t == DType::f16, "a GPU computes in f32, bf16 and f16, not {}", name_of(t));
  f(f16{});
}

}  // namespace weft::gpu
