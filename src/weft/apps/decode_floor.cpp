#include "weft/apps/decode_floor.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"

namespace weft {
namespace {

const StepOp::Operand& operand(const StepOp& op, std::string_view field) {
  const auto found =
      std::find_if(op.operands.begin(), op.operands.end(), [&](const auto& x) { return x.field == field; });
  WEFT_CHECK(found != op.operands.end(), "{} without {}", op.name, field);
  return *found;
}
Tensor dry(const StepOp::Operand& x) { return {nullptr, x.dtype, x.shape}; }

// The part of the experts that `tokens` tokens choose, on average.
double chosen_part(const ExpertsSpec& experts, int64_t tokens) {
  return 1 - std::pow(1 - double(experts.chosen) / double(experts.count), double(tokens));
}

}  // namespace

std::vector<Matmul> products_of(const PassData& pass) {
  std::vector<Matmul> products;
  for (const StepOp& op : pass.ops)
    if (op.name == Matmul::kName)
      products.push_back({.a = dry(operand(op, "a")),
                          .b = dry(operand(op, "b")),
                          .out = dry(operand(op, "out")),
                          .trans_a = op.product.trans_a,
                          .trans_b = op.product.trans_b});
  return products;
}

double pass_flops(const PassData& pass) {
  double flops = 0;
  for (const StepOp& op : pass.ops) flops += op.flops;
  return flops;
}

double weight_bytes_of(const PassData& token, const ModelSpec& model, int64_t texts) {
  double bytes = 0;
  for (const StepOp& op : token.ops) {
    if (op.name == Matmul::kName) bytes += double(dry(operand(op, "b")).bytes());
    if (op.name == GroupedMatmul::kName)
      bytes += double(dry(operand(op, "w")).bytes()) * chosen_part(model.experts, texts);
  }
  return bytes;
}

double rows_seen(const ModelSpec& model, int64_t first, int64_t last) {
  double rows = 0;
  for (int64_t l = 0; l < model.num_layers; ++l) {
    const int64_t window = model.layer(l).window;
    for (int64_t at = first; at < last; ++at) rows += double(window > 0 ? std::min(window, at + 1) : at + 1);
  }
  return rows / double(model.num_layers * (last - first));
}

}  // namespace weft
