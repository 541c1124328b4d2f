#include "weft/nn/grouped_linear.h"

#include <algorithm>
#include <numeric>

#include "weft/nn/products_by_owner.h"

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
    : w_(&params.add(weight_spec(name, spec))),
      numbers_(*w_, params.precision().stat),
      adapter_(GroupedAdapter::make(params, name, *w_, spec.experts)) {
  const auto& parts = w_->parts();  // those of a rank's experts are alike
  const auto first = std::find_if(parts.begin(), parts.end(), [](const HeldPart& p) { return p.rows.count > 0; });
  for (size_t i = 0; i < spec.out.size(); ++i) out_ += first[std::ptrdiff_t(i)].rows.count;
}

// Those of all experts here: the numbers of codes in scratch, till the caller's Scope ends.
Tensor GroupedLinear::matrices(Pass& p) const { return numbers_.in_codes() ? numbers_.whole(p) : w_->value; }

void GroupedLinear::forward(Pass& p, Saved& s, Tensor x, const Dispatch::Routes& routes, Tensor y) const {
  {
    Scope temporaries(*p.scratch);
    multiply_by_owner(p, routes, *w_, matrices(p), x, y);
  }
  if (adapter_ && p.adapters) adapter_->forward(p, s.adapter, x, routes, y);
}

void GroupedLinear::dgrad(Pass& p, Saved& s, Tensor dy, const Dispatch::Routes& routes, Tensor dx) const {
  {
    Scope temporaries(*p.scratch);
    p.be.run(GroupedMatmul{.x = dy, .w = matrices(p), .offsets = routes.offsets, .out = dx, .turned = true});
  }
  if (adapter_) adapter_->dgrad(p, s.adapter, dy, routes, dx);
}

void GroupedLinear::wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy, const Dispatch::Routes& routes) const {
  if (adapter_) adapter_->wgrad(p, s.adapter, x, dy, routes);
  if (!w_->learns()) return;
  p.be.run(
      GroupedWeightGrad{.dy = dy, .x = x, .offsets = routes.offsets, .dw = w_->grad, .accumulate = w_->accumulates()});
}

}  // namespace weft
