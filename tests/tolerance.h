// How far a backend's results may be from the exact ones: one rule, and one table of what each op sums and rounds.
//   |got - exact| <= tolerance * (|exact| + rms of the exact tensor)
//   tolerance = u(stored) + u(summed in) (roundings + 2 sqrt(depth)) + u(compute) narrow
// and beside it u(compute) narrow / 2 of the size of weighted terms, where the weights may be rounded to the compute
// type: what a query of two keys gets is a difference of numbers as large as v, however small the rms of all results.
// u(type) is the unit roundoff. Random terms make a sum of n of them, of size rms sqrt(n), wrong by about u sqrt(n) of
// that; a plain f32 loop over many equal signs errs by u n and is found out.
#pragma once
#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>

#include "weft/ops/ops.h"

namespace weft::testing {

constexpr double unit_roundoff(DType t) {
  return t == DType::f64 ? 0x1p-53 : t == DType::bf16 ? 0x1p-8 : t == DType::f16 ? 0x1p-11 : 0x1p-24;
}

struct Accuracy {
  int64_t depth = 1;     // terms of the longest sum
  double roundings = 4;  // of values kept in the stat type: products, exp, division, ...
  double narrow = 0;     // of values that a backend may keep in the compute type on the way
};

// The table.   Functions of a difference of large numbers (exp(x - max)) count one rounding per unit of that
// difference.
inline Accuracy accuracy(const Matmul& op) { return {.depth = op.k() + 1}; }
inline Accuracy accuracy(const BiasGrad& op) { return {.depth = op.dy.rows() + 1}; }
inline Accuracy accuracy(const Embed&) { return {}; }
inline Accuracy accuracy(const EmbedBackward& op) { return {.depth = op.dy.rows() + 1}; }
inline Accuracy accuracy(
    const Norm& op) {  // statistics are of the sum as it is stored, so that y can be computed again
  return {.depth = op.x.cols(), .roundings = 16, .narrow = op.delta ? 1.0 : 0.0};
}
inline Accuracy accuracy(const NormApply&) { return {.roundings = 16}; }
inline Accuracy accuracy(const NormBackward& op) {
  return {.depth = std::max(op.x.cols(), op.x.rows() + 1), .roundings = 32};
}
inline Accuracy accuracy(const HeadNorm& op) { return {.depth = op.w.elements(), .roundings = 16}; }
inline Accuracy accuracy(const HeadNormBackward& op) {
  return {.depth = op.x.elements() / op.w.elements() + op.w.elements(), .roundings = 32};
}
inline Accuracy accuracy(const RowDots& op) { return {.depth = op.x.cols(), .roundings = 8}; }
inline Accuracy accuracy(const Rope&) { return {}; }
inline Accuracy accuracy(const LatentKeys&) { return {}; }
inline Accuracy accuracy(const LatentKeysBackward& op) { return {.depth = op.heads}; }
inline int64_t widest(const AttentionHeads& h) { return std::max(h.dim, h.value_dim()); }
inline Accuracy accuracy(const Attention& op) {
  return {.depth = op.k.rows() + widest(op.heads), .roundings = 64, .narrow = 2};
}
// A probability exp(score - lse) has the absolute error of both as its relative one: each is rounded a few times at its
// own size, which lse bounds.
inline double largest_lse(const Tensor& lse) {
  double most = 0;
  for (int64_t i = 0; i < lse.rows(); ++i) {
    for (int64_t j = 0; j < lse.cols(); ++j) {
      const int64_t at = i * lse.row_stride + j;
      most = std::max(most, std::abs(lse.dtype == DType::f64 ? lse.as<double>()[at] : double(lse.as<float>()[at])));
    }
  }
  return most;
}
inline Accuracy accuracy(const AttentionBackward& op) {
  return {
      .depth = op.k.rows() + op.q.rows() + widest(op.heads), .roundings = 128 + 4 * largest_lse(op.lse), .narrow = 4};
}
inline Accuracy accuracy(const AttentionMerge& op) { return {.roundings = 16 + 4 * largest_lse(op.lse)}; }
inline Accuracy accuracy(const AttentionSink&) { return {.roundings = 32}; }
inline Accuracy accuracy(const AttentionSinkBackward& op) {
  return {.depth = op.o.rows() + op.o.cols() / op.sinks.elements(), .roundings = 32};
}
inline Accuracy accuracy(const GatedUnit&) { return {.roundings = 16}; }
inline Accuracy accuracy(const GatedUnitBackward&) { return {.roundings = 16}; }
inline Accuracy accuracy(const Gelu&) { return {.roundings = 16}; }
inline Accuracy accuracy(const GeluBackward&) { return {.roundings = 16}; }
inline Accuracy accuracy(const SoftCap&) { return {.roundings = 16}; }
inline Accuracy accuracy(const SoftCapBackward&) { return {.roundings = 16}; }
inline Accuracy accuracy(const Dropout&) { return {}; }
inline Accuracy accuracy(const CrossEntropy& op) { return {.depth = op.logits.cols(), .roundings = 64}; }
inline Accuracy accuracy(const CrossEntropyPart& op) { return {.depth = op.logits.cols(), .roundings = 64}; }
inline Accuracy accuracy(const CrossEntropyJoin&) { return {.roundings = 64}; }
inline Accuracy accuracy(const DistillPart& op) { return {.depth = op.logits.cols(), .roundings = 64}; }
inline Accuracy accuracy(const DistillJoin&) { return {.roundings = 64}; }
inline Accuracy accuracy(const DistillTopPart& op) { return {.depth = op.logits.cols(), .roundings = 64}; }
inline Accuracy accuracy(const DistillTopJoin&) { return {.roundings = 64}; }
inline Accuracy accuracy(const Add&) { return {}; }
inline Accuracy accuracy(const Axpby&) { return {}; }
inline Accuracy accuracy(const AddRow&) { return {}; }
inline Accuracy accuracy(const ScaleColumns&) { return {.roundings = 8}; }
inline Accuracy accuracy(const Copy&) { return {}; }
inline Accuracy accuracy(const Zero&) { return {}; }
inline Accuracy accuracy(const Ones&) { return {}; }
inline Accuracy accuracy(const Sum& op) { return {.depth = op.x.elements()}; }
inline Accuracy accuracy(const SumSquares& op) { return {.depth = op.x.elements()}; }
inline Accuracy accuracy(const CountNonfinite&) { return {}; }
inline Accuracy accuracy(const AdamW&) { return {.roundings = 16}; }
inline Accuracy accuracy(const AdamW8Max&) { return {.roundings = 16}; }
inline Accuracy accuracy(const AdamW8&) { return {.roundings = 16}; }
inline Accuracy accuracy(const MaxRows&) { return {}; }
inline Accuracy accuracy(const Dequantise&) { return {.roundings = 8}; }
inline Accuracy accuracy(const Sgd&) { return {.roundings = 8}; }
inline Accuracy accuracy(const Route& op) { return {.depth = op.logits.cols(), .roundings = 64}; }
inline Accuracy accuracy(const RouteBackward& op) { return {.depth = op.logits.cols(), .roundings = 128}; }
inline Accuracy accuracy(const RouterSums& op) { return {.depth = op.logits.elements(), .roundings = 64}; }
inline Accuracy accuracy(const ExpertLoad& op) { return {.depth = op.ids.elements()}; }
inline Accuracy accuracy(const GroupRows&) { return {}; }
inline Accuracy accuracy(const GatherRows&) { return {}; }
inline Accuracy accuracy(const SumRows& op) { return {.depth = op.places.cols()}; }
inline Accuracy accuracy(const ScaleRows&) { return {.roundings = 8}; }
inline Accuracy accuracy(const ScaleRowsBackward& op) { return {.depth = op.x.cols(), .roundings = 16}; }
inline Accuracy accuracy(const GroupedMatmul& op) { return {.depth = op.x.cols() + 1}; }
inline Accuracy accuracy(const GroupedWeightGrad& op) { return {.depth = op.x.rows() + 1}; }

inline double rms_of(const Tensor& exact) {  // f64
  const double* x = exact.as<double>();
  double squares = 0;
  for (int64_t i = 0; i < exact.rows(); ++i)
    for (int64_t j = 0; j < exact.cols(); ++j) squares += x[i * exact.row_stride + j] * x[i * exact.row_stride + j];
  return exact.elements() > 0 ? std::sqrt(squares / double(exact.elements())) : 0;
}

// The size of the terms of a sum whose weights may be rounded, which the result named `field` of an exact op may be;
// else 0. Probabilities are up to 1; the gradient of a score is of the size of a product dout v, times the scale.
template <class Op>
double weighted_terms(const Op& op, std::string_view field) {
  if constexpr (std::is_same_v<Op, Attention>) return field == "o" ? rms_of(op.v) : 0;
  if constexpr (std::is_same_v<Op, AttentionBackward>) {
    const double score = op.heads.scale * std::sqrt(double(op.heads.value_dim())) * rms_of(op.dout) * rms_of(op.v);
    if (field == "dq") return score * rms_of(op.k);
    if (field == "dk") return score * rms_of(op.q);
    if (field == "dv") return rms_of(op.dout);
  }
  return 0;
}

inline double tolerance(DType stored, DType compute, const Accuracy& a) {
  const DType summed_in = compute == DType::f64 ? DType::f64 : DType::f32;
  return unit_roundoff(stored) + unit_roundoff(summed_in) * (a.roundings + 2 * std::sqrt(double(a.depth))) +
         unit_roundoff(compute) * a.narrow;
}

}  // namespace weft::testing
