#include "weft/nn/embedding.h"

namespace weft {

ParamSpec Embedding::table_spec(const Spec& spec, const LayerPlan& plan) {
  return {.name = std::string(kTable),
          .shape = {spec.vocab_size, spec.width},
          .place = weights(plan.table()),
          .init = {Init::Kind::normal, spec.init_std},
          .twin = spec.twin};
}

Embedding::Embedding(ParamStore& params, const Spec& spec, const LayerPlan& plan)
    : tokens_(tokens_of(params, spec, plan)), dropout_("embed", spec.dropout) {
  units_.push_back(params.close_unit("embed", 0));
  if (spec.positions == 0) return;
  positions_ = &params.add({.name = "embed.positions",
                            .shape = {spec.positions, spec.width},
                            .place = weights(plan.whole()),
                            .init = {Init::Kind::normal, spec.init_std}});
  units_.push_back(params.close_unit("embed.positions", 1));
}

TableRows Embedding::tokens_of(ParamStore& params, const Spec& spec, const LayerPlan& plan) {
  Param& table = params.add(table_spec(spec, plan));
  return TableRows(table, spec.scale, plan, TableAdapter::make(params, table));
}

void Embedding::forward(Pass& p, Saved& s, Tensor x) const {
  Region region(p.be, "embed");
  tokens_.forward(p, s, p.batch.ids, x);
  if (positions_)
    p.be.run(Embed{.ids = p.batch.stream_positions(), .table = positions_->value, .out = x, .accumulate = true});
  dropout_.forward(p, x);
}

void Embedding::wgrad(Pass& p, const Saved& s, Tensor dx) const {
  Region region(p.be, "embed");
  Scope temporaries(*p.scratch);
  const Tensor dy = dropout_.backward(p, dx, *p.scratch);
  if (positions_) add_table_rows(p, *positions_, p.batch.stream_positions(), dy);
  tokens_.wgrad(p, s, p.batch.ids, dy);
}

}  // namespace weft
