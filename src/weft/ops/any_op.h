// An op of any type.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/ops/ops.h"

namespace weft {

struct OpCost;
class WorkspaceModel;

template <class... Ops>
struct OpList {
  using Any = std::variant<Ops...>;
  using AnyRef = std::variant<const Ops*...>;
};
using AllOps =
    OpList<Matmul, BiasGrad, Embed, EmbedBackward, Norm, NormApply, NormBackward, HeadNorm, HeadNormBackward, RowDots,
           Rope, LatentKeys, LatentKeysBackward, Attention, AttentionBackward, AttentionMerge, AttentionSink,
           AttentionSinkBackward, GatedUnit, GatedUnitBackward, Gelu, GeluBackward, SoftCap, SoftCapBackward, Dropout,
           CrossEntropy, CrossEntropyPart, CrossEntropyJoin, DistillPart, DistillJoin, DistillTopPart, DistillTopJoin,
           Add, Axpby, AddRow, ScaleColumns, Copy, Zero, Ones, Sum, SumSquares, CountNonfinite, AdamW, AdamW8Max,
           AdamW8, MaxRows, Sgd, Dequantise, Route, RouteBackward, RouterSums, ExpertLoad, GroupRows, GatherRows,
           SumRows, ScaleRows, ScaleRowsBackward, GroupedMatmul, GroupedWeightGrad>;

// By reference: the op must outlive it. What differs from type to type is compiled once, in any_op.cpp, and not for
// each backend that asks.
class AnyOp {
 public:
  template <class Op>
  requires requires { Op::kName; }
  AnyOp(const Op& op) : op_(std::in_place_type<const Op*>, &op) {}  // NOLINT: ops convert
  std::string_view name() const;
  std::vector<Field> fields() const;             // its operands
  std::span<const AttentionSpan> spans() const;  // of attention; of others none
  OpCost cost() const;
  double flops() const;
  int64_t workspace_bytes(const WorkspaceModel& model) const;
  void check() const;  // rules::check

  // Null where it is an op of another type.
  template <class Op>
  const Op* as() const {
    const auto* op = std::get_if<const Op*>(&op_);
    return op != nullptr ? *op : nullptr;
  }
  // f(op), of its own type.
  template <class F>
  decltype(auto) visit(const F& f) const {
    return std::visit([&](const auto* op) -> decltype(auto) { return f(*op); }, op_);
  }

 private:
  AllOps::AnyRef op_;
};

}  // namespace weft
