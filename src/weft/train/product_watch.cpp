#include "weft/train/product_watch.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

bool is_part_of(const Tensor& rows, const Tensor& weight) {
  const auto* begin = static_cast<const std::byte*>(weight.data);
  const auto* at = static_cast<const std::byte*>(rows.data);
  return at >= begin && at < begin + weight.bytes();
}

Tensor square(float* sums, int64_t in) { return {sums, DType::f32, {in, in}}; }

Matmul adds_products(const Tensor& x, const Tensor& sums) {
  return {.a = x, .b = x, .out = sums, .trans_a = true, .accumulate = true};
}
GroupedWeightGrad adds_products(const Tensor& x, const Tensor& offsets, const Tensor& sums) {
  return {.dy = x, .x = x, .offsets = offsets, .dw = sums, .accumulate = true};
}

}  // namespace

void ProductWatch::run(const AnyOp& op) {
  if (const auto* product = op.as<Matmul>()) add(*product);
  if (const auto* product = op.as<GroupedMatmul>()) add(*product);
  inner_.run(op);
}

void ProductWatch::add(const Matmul& product) {
  if (!product.trans_b || product.trans_a) return;
  for (Matrix& m : matrices_) {
    if (m.group >= 0 || !is_part_of(product.b, m.weight)) continue;
    inner_.run(adds_products(product.a, square(m.sums.data(), product.k())));
    m.num_inputs += product.m();
  }
}

void ProductWatch::add(const GroupedMatmul& product) {
  if (product.turned) return;
  for (Matrix& m : matrices_) {
    if (m.group < 0 || !is_part_of(product.w, m.weight)) continue;
    const Tensor offsets = product.offsets.slice_rows(m.group, 2);
    inner_.run(adds_products(product.x, offsets, square(m.sums.data(), product.x.cols())));
    m.num_inputs += offsets.as<int32_t>()[1] - offsets.as<int32_t>()[0];
  }
}

int64_t ProductWatch::workspace_bytes(const WorkspaceModel& model, int64_t in, int64_t inputs) {
  const Tensor x(nullptr, DType::f32, {inputs, in}), offsets(nullptr, DType::i32, {2});
  return std::max(model.of(adds_products(x, square(nullptr, in))),
                  model.of(adds_products(x, offsets, square(nullptr, in))));
}

}  // namespace weft
