#include "weft/nn/grouped_linear.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

ParamSpec weight_spec(const std::string& name, const GroupedLinear::Spec& spec) {
  const int64_t out = std::accumulate(spec.out.begin(), spec.out.end(), int64_t{0});
  ParamSpec w{.name = name + ".weight",
              .shape = {spec.experts * out, spec.in},
              .place = expert_weights(spec.held),
              .init = {Init::Kind::normal, spec.init_std},
              .linear = true};
  for (int64_t e = 0; e < spec.experts; ++e)
    for (const int64_t rows : spec.out) w.parts.push_back({.size = rows, .grain = spec.grain});
  return w;
}

}  // namespace

GroupedLinear::GroupedLinear(ParamStore& params, const std::string& name, const Spec& spec)
    : w_(&params.add(weight_spec(name, spec))) {
  const auto& parts = w_->parts();  // those of a rank's experts are alike
  const auto first = std::find_if(parts.begin(), parts.end(), [](const HeldPart& p) { return p.rows.count > 0; });
  for (size_t i = 0; i < spec.out.size(); ++i) out_ += first[std::ptrdiff_t(i)].rows.count;
}

void GroupedLinear::forward(Pass& p, Tensor x, Tensor offsets, Tensor y) const {
  p.be.run(GroupedMatmul{.x = x, .w = w_->value, .offsets = offsets, .out = y});
}

void GroupedLinear::dgrad(Pass& p, Tensor dy, Tensor offsets, Tensor dx) const {
  p.be.run(GroupedMatmul{.x = dy, .w = w_->value, .offsets = offsets, .out = dx, .turned = true});
}

void GroupedLinear::wgrad(Pass& p, Tensor x, Tensor dy, Tensor offsets) const {
  if (!w_->learns()) return;
  p.be.run(GroupedWeightGrad{.dy = dy, .x = x, .offsets = offsets, .dw = w_->grad, .accumulate = w_->accumulates()});
}

}  // namespace weft
