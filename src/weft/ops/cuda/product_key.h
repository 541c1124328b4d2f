// All that a library's way to multiply matrices depends on. Plain C++.
#pragma once
#include <compare>
#include <string>

#include "weft/ops/ops.h"

namespace weft {

// Bytes that a tensor's address is a multiple of; more than 256 mean nothing to libraries.
uint32_t alignment_of(const Tensor& t);

// All that a description and its algorithm depend on, but where the operands are.
struct ProductKey {
  int64_t m, n, k, a_stride, b_stride, out_stride;
  uint32_t a_alignment, b_alignment, out_alignment, bias_alignment;  // bytes; of the bias 0: there is none
  DType dtype, out_dtype;
  bool trans_a, trans_b, accumulate;
  auto operator<=>(const ProductKey&) const = default;
};
ProductKey product_key_of(const Matmul& op);
// "8192x4096x14336 bf16 to f32, a^T b, strides 8192 4096 4096, aligned 256 256 256 0, added": another for each key.
std::string text_of(const ProductKey& key);

}  // namespace weft
