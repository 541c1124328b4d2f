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
    : tokens_(&params.add(table_spec(spec, plan))),
      leave_(Axis::tp, plan.cut_vocabulary ? Spmd::Partial : plan.stream, plan.stream),
      scale_(spec.scale),
      dropout_("embed", spec.dropout) {
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
  Scope temporaries(*p.scratch);
  Tensor rows = leave_.operand_for(p.mesh, x, *p.scratch);
  p.be.run(Embed{.ids = p.batch.ids, .table = tokens_->value, .out = rows, .first = tokens_->pieces()[0].rows.first});
  leave_.forward_into(p.mesh, rows, x);
  scale_.forward(p, x);
  if (positions_)
    p.be.run(Embed{.ids = p.batch.stream_positions(), .table = positions_->value, .out = x, .accumulate = true});
  dropout_.forward(p, x);
}

void Embedding::wgrad(Pass& p, Tensor dx) const {
  Region region(p.be, "embed");
  Scope temporaries(*p.scratch);
  Tensor dy = dropout_.backward(p, dx, *p.scratch);
  const auto add_rows = [&](Param& table, Tensor ids, Tensor rows) {
    if (!table.accumulates()) p.be.run(Zero{.x = table.grad});
    p.be.run(EmbedBackward{.ids = ids, .dy = rows, .dtable = table.grad, .first = table.pieces()[0].rows.first});
  };
  if (positions_) add_rows(*positions_, p.batch.stream_positions(), dy);
  dy = scale_.backward(p, dy, *p.scratch);
  add_rows(*tokens_, p.batch.ids, leave_.backward(p.mesh, dy, *p.scratch));
}

}  // namespace weft
