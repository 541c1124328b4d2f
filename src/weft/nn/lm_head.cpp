#include "weft/nn/lm_head.h"

namespace weft {
namespace {

std::variant<VocabularyHead, ScoreHead> made(ParamStore& params, const decltype(LmHead::Spec::output)& spec,
                                             const LayerPlan& plan) {
  if (const auto* score = std::get_if<ScoreHead::Spec>(&spec)) return ScoreHead(params, *score, plan);
  return VocabularyHead(params, std::get<VocabularyHead::Spec>(spec), plan);
}

}  // namespace

LmHead::LmHead(ParamStore& params, const Spec& spec, const LayerPlan& plan)
    : norm_(params, "final_norm", spec.norm), output_(made(params, spec.output, plan)) {
  if (spec.value) value_.emplace(params, *spec.value, plan);
}

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
  const HeadTargets targets{.ids = b.targets,
                            .weights = b.weights,
                            .loss = b.loss,
                            .scale = b.loss_scale,
                            .teaching = b.teaching ? &*b.teaching : nullptr};
  Tensor dh = std::visit([&](const auto& head) { return head.loss_and_backward(p, h, targets); }, output_);
  if (value_) p.be.run(Add{.x = dh, .y = value_->backward(p, h, b.value_weights, b.loss_scale), .out = dh});
  if (further_) dh = further_->loss_and_backward(p, h, dh, vocabulary());
  norm_.dgrad(p, saved, dh, {}, dx);
  norm_.wgrad(p, saved);
}

void LmHead::logits(Pass& p, Tensor x, Tensor logits) const {
  Scope temporaries(*p.scratch);
  StreamNorm::Saved saved;
  vocabulary().logits(p, normed(p, saved, x), logits);
}

void LmHead::token_losses(Pass& p, Tensor x, const TokenLosses& to) const {
  Region region(p.be, "head");
  Scope temporaries(*p.scratch);
  StreamNorm::Saved saved;
  const Tensor h = normed(p, saved, x);
  std::visit([&](const auto& head) { head.token_losses(p, h, to); }, output_);
  if (value_ && to.values) value_->token_losses(p, h, {.nll = to.values});
}

void LmHead::states(Pass& p, Tensor x, Tensor to) const {
  Region region(p.be, "head");
  Scope temporaries(*p.scratch);
  StreamNorm::Saved saved;
  norm_.forward(p, saved, x, to);
}

const VocabularyHead& LmHead::vocabulary() const {
  const auto* head = std::get_if<VocabularyHead>(&output_);
  WEFT_CHECK(head != nullptr, "a model that scores tokens has no logits");
  return *head;
}

}  // namespace weft
