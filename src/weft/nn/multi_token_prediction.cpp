#include "weft/nn/multi_token_prediction.h"

namespace weft {

MultiTokenPrediction::MultiTokenPrediction(ParamStore& params, const Spec& spec, const LayerPlan& plan)
    : loss_coef_(spec.loss_coef),
      tokens_(*spec.table, spec.embedding_scale, plan),
      token_norm_(params, spec.name + ".token_norm", spec.norm),
      state_norm_(params, spec.name + ".state_norm", spec.norm),
      project_(params, spec.name + ".project",
               {.in = 2 * spec.norm.width,
                .out = spec.norm.width,
                .place = weights(plan.whole()),
                .init_std = spec.init_std}),
      block_(params, spec.block_name, spec.block, plan),
      norm_(params, spec.name + ".norm", spec.norm) {}

Tensor MultiTokenPrediction::loss_and_backward(Pass& p, Tensor h, Tensor dh, const VocabularyHead& output) const {
  Region region(p.be, "mtp");
  const int64_t t = h.rows(), d = h.cols();
  const auto stream = [&](int64_t width) { return p.compute(p.scratch, {t, width}, h.place); };
  const Tensor all_dh = stream(d);
  Scope temporaries(*p.scratch), replayed(*p.replay), gradients(*p.dgrad_till_wgrad);
  Pass here = p;
  here.till_dgrad = p.replay;
  here.till_wgrad = p.dgrad_till_wgrad;

  const Tensor tokens = stream(d), both = stream(2 * d), u = stream(d), y = stream(d), normed = stream(d);
  const auto of_tokens = [&](const Tensor& x) { return x.slice_cols(0, d); };
  const auto of_states = [&](const Tensor& x) { return x.slice_cols(d, d); };
  StreamNorm::Saved token_norm, state_norm, norm;
  Block::Saved block;
  TableRows::Saved rows;
  tokens_.forward(here, rows, p.batch.targets, tokens);
  token_norm_.forward(here, token_norm, tokens, of_tokens(both));
  state_norm_.forward(here, state_norm, h, of_states(both));
  project_.forward(here, both, u);
  block_.forward(here, block, u, y);
  norm_.forward(here, norm, y, normed);

  const Tensor dnormed = output.loss_and_backward(here, normed,
                                                  {.ids = p.batch.mtp_targets,
                                                   .weights = p.batch.mtp_weights,
                                                   .loss = p.batch.mtp_loss,
                                                   .scale = loss_coef_ * p.batch.mtp_scale});
  const Tensor dy = stream(d), du = stream(d), dboth = stream(2 * d), dtokens = stream(d);
  norm_.dgrad(here, norm, dnormed, {}, dy);
  block_.dgrad(here, block, dy, du);
  project_.dgrad(here, du, dboth);
  state_norm_.dgrad(here, state_norm, of_states(dboth), dh, all_dh);
  token_norm_.dgrad(here, token_norm, of_tokens(dboth), {}, dtokens);

  norm_.wgrad(here, norm);
  block_.wgrad(here, block);
  project_.wgrad(here, both, du);
  state_norm_.wgrad(here, state_norm);
  token_norm_.wgrad(here, token_norm);
  tokens_.wgrad(here, rows, p.batch.targets, dtokens);
  return all_dh;
}

}  // namespace weft
