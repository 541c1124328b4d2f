// The inner part of a product of a few rows with a transposed matrix, compiled for each kind of CPU; the best for this
// one is chosen at run time.
#pragma once
#include <cstdint>

#include "weft/tensor/dtype.h"

namespace weft {

// c[i, j] = start[i, j] + a[i] . b[j] for `rows` rows of a and `cols` rows of b: start is c itself, the bias of j, or
// zero. b is read once, in the order of memory.
template <class T, class A = float>
struct FewRows {
  const A* a;  // f32: of T where that is f32, else widened
  const T* b;
  void* c;        // of c_type: T or f32
  const T* bias;  // [cols] or null
  int64_t a_stride, b_stride, c_stride, rows, cols, k;
  DType c_type;
  bool add_to_c;
};

struct FewRowsKernels {
  void (*f32)(const FewRows<float>& product);
  void (*bf16)(const FewRows<weft::bf16>& product);
  void (*f16)(const FewRows<weft::f16>& product);
};

// The best kernels for this CPU.
FewRowsKernels few_rows_kernels();

// bf16 that is not widened: pairs of values are multiplied and added to a sum in f32 (VDPBF16PS; denormal values count
// as zero). Only where isa_of_kernels() is CpuIsa::avx512_bf16 at least: a program for another kind of CPU ends here.
void few_rows_in_pairs(const FewRows<weft::bf16, weft::bf16>& product);

}  // namespace weft
