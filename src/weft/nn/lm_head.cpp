#include "weft/nn/lm_head.h"

namespace weft {

LmHead::LmHead(ParamStore& params, const Spec& spec, const LayerPlan& plan)
    : norm_(params, "final_norm", spec.norm), output_(params, spec.output, plan) {}

void LmHead::predict_further(ParamStore& params, const MultiTokenPrediction::Spec& spec, const LayerPlan& plan) {
  further_.emplace(params, spec, plan);
}

// In scratch.
Tensor LmHead::normed(Pass& p, StreamNorm::Saved& s, Tensor x) const {
  Tensor h = p.compute(p.scratch, {x.rows(), x.cols()}, x.place);
  norm_.forward(p, s, x, h);
  return h;
}

void LmHead::loss_and_backward(Pass& p, Tensor x, Tensor dx) const {
  Region region(p.be, "head");
  Scope temporaries(*p.scratch), gradients(*p.dgrad_till_wgrad);
  StreamNorm::Saved saved;
  const Tensor h = normed(p, saved, x);
  const MicroBatch& b = p.batch;
  Tensor dh =
      output_.loss_and_backward(p, h, {.ids = b.targets, .weights = b.weights, .loss = b.loss, .scale = b.loss_scale});
  if (further_) dh = further_->loss_and_backward(p, h, dh, output_);
  norm_.dgrad(p, saved, dh, {}, dx);
  norm_.wgrad(p, saved);
}

void LmHead::logits(Pass& p, Tensor x, Tensor logits) const {
  Scope temporaries(*p.scratch);
  StreamNorm::Saved saved;
  output_.logits(p, normed(p, saved, x), logits);
}

void LmHead::token_losses(Pass& p, Tensor x, Tensor nll) const {
  Region region(p.be, "head");
  Scope temporaries(*p.scratch);
  StreamNorm::Saved saved;
  output_.token_losses(p, normed(p, saved, x), nll);
}

}  // namespace weft
