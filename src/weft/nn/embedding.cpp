#include "weft/nn/embedding.h"

namespace weft {

Embedding::Embedding(ParamStore& params, const Spec& spec, const LayerPlan& plan) : dropout_("embed", spec.dropout) {
  const auto table = [&](const char* name, int64_t rows) {
    return &params.add({.name = name,
                        .shape = {rows, spec.width},
                        .place = weights(plan.whole()),
                        .init = {Init::Kind::normal, spec.init_std}});
  };
  tokens_ = table("embed.tokens", spec.vocab_size);
  if (spec.positions > 0) positions_ = table("embed.positions", spec.positions);
}

void Embedding::forward(Pass& p, Tensor x) const {
  Region region(p.be, "embed");
  p.be.run(Embed{.ids = p.batch.ids, .table = tokens_->value, .out = x});
  if (positions_) p.be.run(Embed{.ids = p.batch.positions, .table = positions_->value, .out = x, .accumulate = true});
  dropout_.forward(p, x);
}

void Embedding::wgrad(Pass& p, Tensor dx) const {
  Region region(p.be, "embed");
  Scope temporaries(*p.scratch);
  Tensor dy = dropout_.backward(p, dx, *p.scratch);
  add_rows(p, *tokens_, p.batch.ids, dy);
  if (positions_) add_rows(p, *positions_, p.batch.positions, dy);
}

void Embedding::add_rows(Pass& p, Param& table, Tensor ids, Tensor dx) const {
  if (!table.accumulates()) p.be.run(Zero{.x = table.grad});
  p.be.run(EmbedBackward{.ids = ids, .dy = dx, .dtable = table.grad});
}

}  // namespace weft
