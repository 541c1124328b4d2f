#include "weft/nn/score_head.h"

namespace weft {

ScoreHead::ScoreHead(ParamStore& params, const Spec& spec, const LayerPlan& plan)
    : w_(&params.add({.name = spec.name + ".weight",
                      .shape = {1, spec.width},
                      .place = weights(plan.whole()),
                      .init = {Init::Kind::normal, spec.init_std},
                      .is_score = true})),
      join_(Axis::tp, plan.stream, loss_place(plan).tp()) {
  if (spec.bias)
    b_ = &params.add({.name = spec.name + ".bias", .shape = {1}, .place = weights(plan.whole()), .is_score = true});
}

// factor * the weights of the stream's tokens here: [t] stat, in scratch.
Tensor ScoreHead::times(Pass& p, double factor, Tensor weights, Placement place) {
  const Run here = p.batch.stream;
  Tensor product = p.stat(p.scratch, {here.count}, place);
  p.be.run(Axpby{.x = weights.slice_rows(here.first, here.count).placed(place), .out = product, .a = factor});
  return product;
}

// [T, 1] stat, in scratch.
Tensor ScoreHead::losses(Pass& p, Tensor h, Tensor weights) const {
  Tensor scores = p.stat(p.scratch, {h.rows(), 1}, h.place);
  p.be.run(Matmul{.a = h, .b = w_->value, .out = scores, .trans_b = true, .bias = b_ ? b_->value : Tensor()});
  p.be.run(ScaleRows{.x = scores, .scale = times(p, -1, weights, h.place), .y = scores});
  return join_.forward(p.mesh, scores, *p.scratch);
}

void ScoreHead::token_losses(Pass& p, Tensor h, const TokenLosses& to) const {
  Scope temporaries(*p.scratch);
  p.be.run(Copy{.from = losses(p, h, p.batch.weights), .to = to.nll});
}

Tensor ScoreHead::loss_and_backward(Pass& p, Tensor h, const HeadTargets& targets) const {
  {
    Scope temporaries(*p.scratch);
    p.be.run(Sum{.x = losses(p, h, targets.weights), .out = targets.loss});
  }
  return backward(p, h, targets.weights, targets.scale);
}

Tensor ScoreHead::backward(Pass& p, Tensor h, Tensor weights, double scale) const {
  const Placement place = h.place.dual();
  Tensor dh = p.compute(p.scratch, {h.rows(), h.cols()}, place);
  Scope temporaries(*p.scratch);
  Tensor dscores = p.compute(p.scratch, {h.rows(), 1}, place);
  p.be.run(Copy{.from = times(p, -scale, weights, place), .to = dscores});
  p.be.run(Matmul{.a = dscores, .b = w_->value, .out = dh});
  if (b_ && b_->learns()) p.be.run(BiasGrad{.dy = dscores, .db = b_->grad, .accumulate = b_->accumulates()});
  if (w_->learns())
    p.be.run(Matmul{.a = dscores, .b = h, .out = w_->grad, .trans_a = true, .accumulate = w_->accumulates()});
  return dh;
}

}  // namespace weft
