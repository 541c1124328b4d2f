#include "weft/nn/embedding.h"

namespace weft {

Embedding::Embedding(ParamStore& params, const Spec& spec, const LayerPlan& plan)
    : leave_(Axis::tp, plan.cut_vocabulary ? Spmd::Partial : plan.stream, plan.stream),
      dropout_("embed", spec.dropout) {
  const auto table = [&](const char* name, int64_t rows, Spmd held) {
    return &params.add({.name = name,
                        .shape = {rows, spec.width},
                        .place = weights(held),
                        .init = {Init::Kind::normal, spec.init_std}});
  };
  tokens_ = table("embed.tokens", spec.vocab_size, plan.table());
  if (spec.positions > 0) positions_ = table("embed.positions", spec.positions, plan.whole());
}

void Embedding::forward(Pass& p, Tensor x) const {
  Region region(p.be, "embed");
  Scope temporaries(*p.scratch);
  Tensor rows = leave_.operand_for(p.mesh, x, *p.scratch);
  p.be.run(Embed{.ids = p.batch.ids, .table = tokens_->value, .out = rows, .first = tokens_->pieces()[0].rows.first});
  leave_.forward_into(p.mesh, rows, x);
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
  add_rows(*tokens_, p.batch.ids, leave_.backward(p.mesh, dy, *p.scratch));
}

}  // namespace weft
