// Weights: what they are and how the ranks hold them.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/ops/ops.h"

namespace weft {

// The dtypes of a run: what layers compute in, and what statistics, gradients, master weights and optimizer state use.
struct Precision {
  DType compute = DType::f32;
  DType stat = DType::f32;
  bool operator==(const Precision&) const = default;
};
inline constexpr Precision kF32{DType::f32, DType::f32}, kBf16{DType::bf16, DType::f32}, kF16{DType::f16, DType::f32},
    kF64{DType::f64, DType::f64};

struct Init {
  enum class Kind : uint8_t { normal, uniform, ones, zeros };
  Kind kind = Kind::zeros;
  double std = 0;  // of normal; of uniform, the bound on both sides
};

// Who writes a weight in a step.
enum class Update : uint8_t {
  optimizer,  // by its gradient
  nobody,     // it is frozen: it has neither gradient, optimizer state nor master, and is kept as layers read it
  its_layer   // by what it counts (a router's correction): without gradient, whole on every rank, in the stat dtype
};

// A run of a weight's rows (of its columns, where those are cut) that is cut over the ranks on its own.
struct Part {
  int64_t size;             // rows or columns of the whole weight
  int64_t grain = 1;        // what stays together: cut only at multiples of it (a head)
  bool everywhere = false;  // not cut, though the weight is: whole on every rank (Replicate)
};

struct ParamSpec {
  std::string name;  // global: "blocks.3.attn.qkv.weight"; names its random numbers and its checkpoint entry
  Shape shape;       // global: [out, in], or [n]
  Placement place;
  std::vector<Part> parts =
      {};  // of the dimension that tp cuts (else dim 0); none: one. Of experts: one each, in dim 0
  Init init = {};
  // The pipeline rank that has this weight too (tied embeddings on the first and the last stage), or -1: their
  // gradients are summed, so that both stay equal. One of the two is the copy, which is neither counted nor saved.
  int twin = -1;
  bool copy = false;
  // A matrix that a block multiplies activations with: not a table of tokens or positions, not the head. Such matrices
  // are what an optimizer of matrices (Muon) updates.
  bool linear = false;
  Update update = Update::optimizer;
  // A few rows by which others are chosen or weighed (a router, a gate): kept as layers read it where the matrices
  // beside it are in codes.
  bool always_numbers = false;
  bool is_score = false;    // of a head that gives scores or values: learns in full beside an adapter that trains them
  bool is_adapter = false;  // of a low-rank adapter (adapter_spec.h): learns where the model's own are frozen
  bool in_stat = false;     // layers read it in the stat dtype too: its updates are lost in the compute dtype
  WeightCodes codes = WeightCodes::none;  // how it is kept, if it is frozen: in codes, or as layers read it
  bool learns() const { return update == Update::optimizer; }
  bool in_codes() const { return codes != WeightCodes::none; }
  bool decays() const { return shape.rank() >= 2; }  // weight decay: matrices and tables only
};

// One of `size` ranks of an axis.
struct RankOf {
  int64_t size = 1, rank = 0;
};
// The run of [0, n) that falls to a rank: as even as can be, in order.
struct Run {
  int64_t first = 0, count = 0;
  int64_t end() const { return first + count; }
  bool operator==(const Run&) const = default;
};
inline Run share_of(int64_t n, RankOf r) {
  const int64_t first = n * r.rank / r.size;
  return {first, n * (r.rank + 1) / r.size - first};
}

// A rank among those that hold different parts of the same weights.
struct CutRanks {
  RankOf tp = {}, ep = {};  // ep: experts alone are cut over it
};

// What a rank holds of one part: a block of the whole matrix (a vector is one column), whose rows lie together.
struct HeldPart {
  Run rows, cols;     // of the whole weight
  int64_t local_row;  // its first row on this rank
  Spmd held;          // on tp
  Run part_rows;      // of the whole part
};
// What a rank holds of each part of a weight, in order; nothing of the parts that ep gives to others.
// Throws PlacementError where there are fewer parts than ranks of ep, or a part has fewer grains than ranks of tp.
std::vector<HeldPart> held_parts(const ParamSpec& spec, const CutRanks& at);

// A weight as a layer sees it. Its gradient is summed over exactly the axes where it is Replicate (replica_group.h).
// Owned by a ParamStore, which says when value and grad may be touched.
class Param {
 public:
  Param(ParamSpec spec, const CutRanks& at, DType stat);
  const ParamSpec& spec() const { return spec_; }
  const std::vector<HeldPart>& parts() const { return parts_; }
  const Shape& shape() const { return shape_; }  // here
  // What it has of its flat tensors: its elements, or the bytes of its codes (coded_weight.h).
  int64_t kept_elements() const { return kept_elements_; }
  int64_t most_elements() const { return most_elements_; }  // here or on another rank, where they are not cut evenly

  // From fetch to release. Compute dtype, or stat (in_stat), of its shape; or the bytes of its codes, [kept_elements]
  // u8.
  Tensor value;
  Tensor grad;  // stat dtype; from open_grads to flush
  // Of an expert's weight, where ranks of ep are threads of one process that only read it: the values of each of them,
  // this one's among them (train/forward_rank.h). Else none.
  std::vector<Tensor> of_ranks;

  // Whether it has a gradient at all: layers compute none for others.
  bool learns() const { return spec_.learns(); }
  // Whether the next gradient is to be added to `grad`; false once after each open of a fresh leaf: the first write
  // overwrites, so nothing is zeroed in vain.
  bool accumulates() { return std::exchange(*written_, char(true)); }

 private:
  friend class ParamStore;
  friend class ParamValues;
  friend class GradientSums;
  friend struct FlatParams;
  ParamSpec spec_;
  std::vector<HeldPart> parts_;
  Shape shape_;
  int64_t kept_elements_ = 0, most_elements_ = 0;
  Param* tied_to_ = nullptr;           // owner of the value
  std::optional<int64_t> began_late_;  // ParamStore::begins_late
  int flat_ = -1;                      // its flat parameter, among those of its replica set
  int64_t offset_ = 0;                 // elements into that
  char* written_ = nullptr;            // of the open leaf
};

}  // namespace weft
