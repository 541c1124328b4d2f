#include "weft/nn/embedding.h"

namespace weft {

ParamSpec Embedding::table_spec(const Spec& spec, const LayerPlan& plan) {
  return {.name = "embed.tokens",
          .shape = {spec.vocab_size, spec.width},
          .place = weights(plan.table()),
          .init = {Init::Kind::normal, spec.init_std},
          .twin = spec.twin};
}

Embedding::Embedding(ParamStore& params, const Spec& spec, const LayerPlan& plan)
    : tokens_(params.add(table_spec(spec, plan)), spec.scale, plan), dropout_("embed", spec.dropout) {
  units_.push_back(params.close_unit("embed", 0));
  if (spec.positions == 0) return;
  positions_ = &params.add({.name = "embed.positions",
                            .shape = {spec.positions, spec.width},
                            .place = weights(plan.whole()),
                            .init = {Init::Kind::normal, spec.init_std}});
  units_.push_back(params.close_unit("embed.positions", 1));
}

void Embedding::forward(Pass& p, Tensor x) const {
  Region region(p.be, "embed");
  tokens_.forward(p, p.batch.ids, x);
  if (positions_)
    p.be.run(Embed{.ids = p.batch.stream_positions(), .table = positions_->value, .out = x, .accumulate = true});
  dropout_.forward(p, x);
}

void Embedding::wgrad(Pass& p, Tensor dx) const {
  Region region(p.be, "embed");
  Scope temporaries(*p.scratch);
  const Tensor dy = dropout_.backward(p, dx, *p.scratch);
  if (positions_) add_table_rows(p, *positions_, p.batch.stream_positions(), dy);
  tokens_.wgrad(p, p.batch.ids, dy);
}

}  // namespace weft
