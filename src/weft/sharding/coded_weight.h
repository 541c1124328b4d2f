// How a frozen weight that is kept in codes lies in bytes, which move, are cut by ZeRO and are written like the
// elements of other weights.
#pragma once
#include <vector>

#include "weft/sharding/param.h"

namespace weft {

// What a rank has of one part of a weight, a matrix of its own (q of a fused qkv): three runs of the weight's bytes,
// each from a multiple of kCodedAlignment on.
struct CodedPart {
  CodedRectangle at;
  Run codes, maxima, scales;  // bytes

  // The same of the tensor of all bytes of the weight [coded_bytes] u8: operands of Dequantise.
  Tensor codes_in(const Tensor& bytes) const { return bytes.slice_rows(codes.first, codes.count); }
  Tensor maxima_in(const Tensor& bytes) const {
    return maxima.count > 0 ? bytes.slice_rows(maxima.first, maxima.count) : Tensor{};
  }
  Tensor scales_in(const Tensor& bytes, DType stat) const;
};
inline constexpr int64_t kCodedAlignment = 64;

// Where the codes of these parts of the weight lie, in their order. `stat`: the dtype of scales.
std::vector<CodedPart> coded_parts(const ParamSpec& weight, const std::vector<HeldPart>& parts, DType stat);
int64_t coded_bytes(const ParamSpec& weight, const std::vector<HeldPart>& parts, DType stat);

}  // namespace weft
