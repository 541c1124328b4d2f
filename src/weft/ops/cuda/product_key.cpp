#include "weft/ops/cuda/product_key.h"

namespace weft {

uint32_t alignment_of(const Tensor& t) {
  constexpr uintptr_t kMost = 256;
  const auto address = reinterpret_cast<uintptr_t>(t.data) | kMost;
  return uint32_t(address & ~(address - 1));
}

ProductKey product_key_of(const Matmul& op) {
  return {.m = op.m(),
          .n = op.n(),
          .k = op.k(),
          .a_stride = op.a.row_stride,
          .b_stride = op.b.row_stride,
          .out_stride = op.out.row_stride,
          .a_alignment = alignment_of(op.a),
          .b_alignment = alignment_of(op.b),
          .out_alignment = alignment_of(op.out),
          .bias_alignment = op.bias ? alignment_of(op.bias) : 0,
          .dtype = op.a.dtype,
          .out_dtype = op.out.dtype,
          .trans_a = op.trans_a,
          .trans_b = op.trans_b,
          .accumulate = op.accumulate};
}

std::string text_of(const ProductKey& k) {
  return fmt::format("{}x{}x{} {} to {}, a{} b{}, strides {} {} {}, aligned {} {} {} {}{}", k.m, k.n, k.k,
                     name_of(k.dtype), name_of(k.out_dtype), k.trans_a ? "^T" : "", k.trans_b ? "^T" : "", k.a_stride,
                     k.b_stride, k.out_stride, k.a_alignment, k.b_alignment, k.out_alignment, k.bias_alignment,
                     k.accumulate ? ", added" : "");
}

}  // namespace weft
