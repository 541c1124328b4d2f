// Weights: what they are and how the ranks hold them.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "weft/tensor/tensor.h"

namespace weft {

// The dtypes of a run: what layers compute in, and what statistics, gradients, master weights and optimizer state use.
struct Precision {
  DType compute = DType::f32;
  DType stat = DType::f32;
  bool operator==(const Precision&) const = default;
};
inline constexpr Precision kF32{DType::f32, DType::f32}, kBf16{DType::bf16, DType::f32}, kF64{DType::f64, DType::f64};

struct Init {
  enum class Kind : uint8_t { normal, ones, zeros };
  Kind kind = Kind::zeros;
  double std = 0;  // of normal
};

struct ParamSpec {
  std::string name;  // global: "blocks.3.attn.qkv.weight"; names its random numbers and its checkpoint entry
  Shape shape;       // global: [out, in], or [n]
  Placement place;
  std::vector<int64_t> parts = {};  // rows of matrices stacked along dim 0, each cut on its own; none: one
  Init init = {};
  bool decays() const { return shape.rank() >= 2; }  // weight decay: matrices and tables only
};

// A weight as a layer sees it. Its gradient is summed over exactly the axes where it is Replicate; nothing else in the
// program says which gradients to reduce. Owned by a ParamStore, which says when value and grad may be touched.
class Param {
 public:
  explicit Param(ParamSpec spec) : spec_(std::move(spec)) {}
  const ParamSpec& spec() const { return spec_; }

  Tensor value;  // compute dtype; from fetch to release
  Tensor grad;   // stat dtype; from open_grads to flush

  // Whether the next gradient is to be added to `grad`; false once after each open of a fresh leaf: the first write
  // overwrites, so nothing is zeroed in vain.
  bool accumulates() { return std::exchange(*written_, char(true)); }

 private:
  friend class ParamStore;
  ParamSpec spec_;
  Param* tied_to_ = nullptr;  // owner of the value
  int unit_ = -1;
  int64_t offset_ = 0;       // elements into the unit's flat tensors
  char* written_ = nullptr;  // of the open leaf
};

}  // namespace weft
