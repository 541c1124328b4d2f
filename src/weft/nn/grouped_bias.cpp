#include "weft/nn/grouped_bias.h"

#include <algorithm>

#include "weft/nn/products_by_owner.h"

namespace weft {
namespace {

Tensor as_column(const Tensor& b) { return b.reshape({b.elements(), 1}); }

}  // namespace

GroupedBias::GroupedBias(ParamStore& params, const std::string& name, const Spec& spec) {
  if (!spec.exists) return;
  ParamSpec b{.name = name + ".bias",
              .shape = {spec.experts * spec.width},
              .place = expert_weights(Spmd::Shard0),
              .parts = std::vector<Part>(size_t(spec.experts), {.size = spec.width, .grain = spec.grain})};
  b_ = &params.add(b);
  const auto& parts = b_->parts();  // those of a rank's experts are alike
  const auto mine = std::find_if(parts.begin(), parts.end(), [](const HeldPart& p) { return p.rows.count > 0; });
  first_ = mine->rows.first - mine->part_rows.first;
  width_ = mine->rows.count;
}

Tensor GroupedBias::columns_of(const Tensor& y) const {
  return y.slice_cols(y.cols() == width_ ? 0 : first_, width_).placed(expert_rows(Spmd::Shard1));
}

void GroupedBias::forward(Pass& p, Tensor scale, const Dispatch::Routes& routes, Tensor y) const {
  if (!b_) return;
  const Tensor mine = columns_of(y);
  Tensor added = Dispatch::alloc_rows(*p.scratch, p.precision.compute, routes, mine.cols(), mine.place);
  multiply_by_owner(p, routes, *b_, b_->value, scale, added);
  p.be.run(Add{.x = mine, .y = added, .out = mine});
}

void GroupedBias::dgrad(Pass& p, Tensor dy, const Dispatch::Routes& routes, Tensor dscale) const {
  if (!b_) return;
  Tensor dot = Dispatch::alloc_rows(*p.scratch, p.precision.compute, routes, 1, expert_rows(Spmd::Partial));
  p.be.run(GroupedMatmul{
      .x = columns_of(dy), .w = as_column(b_->value), .offsets = routes.offsets, .out = dot, .turned = true});
  Tensor more = Dispatch::alloc_rows(*p.scratch, p.precision.stat, routes, 1, dscale.place);
  p.be.run(Copy{.from = dot, .to = more});
  const Tensor sum = as_column(dscale);
  p.be.run(Add{.x = sum, .y = more, .out = sum});
}

void GroupedBias::wgrad(Pass& p, Tensor scale, Tensor dy, const Dispatch::Routes& routes) const {
  if (!learns()) return;
  p.be.run(GroupedWeightGrad{.dy = columns_of(dy),
                             .x = scale,
                             .offsets = routes.offsets,
                             .dw = as_column(b_->grad),
                             .accumulate = b_->accumulates()});
}

}  // namespace weft
