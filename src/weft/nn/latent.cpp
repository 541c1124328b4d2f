#include "weft/nn/latent.h"

namespace weft {

Latent::Latent(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan)
    : spec_(spec),
      keep_(plan.keeps_attention()),
      down_(params, name + "_down",
            {.in = spec.width,
             .out = spec.rank + spec.rotated,
             .place = weights(plan.whole()),
             .init_std = spec.init_std}),
      norm_(params, name + "_norm",
            {.width = spec.rank, .layer_norm = false, .eps = spec.norm_eps, .whole = plan.whole()}) {}

Tensor Latent::forward(Pass& p, Saved& s, Tensor h) const {
  s.raw = p.compute(p.till_dgrad, {h.rows(), down_.out()}, h.place);
  down_.forward(p, s.down, h, s.raw);
  Tensor y = p.compute(keep_ ? p.till_wgrad : p.scratch, {h.rows(), down_.out()}, h.place);
  norm_.forward(p, s.norm, of_rank(s.raw), of_rank(y));
  rotate(p, beside(s.raw), false);
  if (spec_.rotated > 0) p.be.run(Copy{.from = beside(s.raw), .to = beside(y)});
  s.y = keep_ ? y : Tensor{};
  return y;
}

Tensor Latent::again(Pass& p, Saved& s) const {
  if (keep_) return s.y;
  s.y = p.compute(p.dgrad_till_wgrad, {s.raw.rows(), s.raw.cols()}, s.raw.place);
  norm_.again(p, s.norm, of_rank(s.y));
  if (spec_.rotated > 0) p.be.run(Copy{.from = beside(s.raw), .to = beside(s.y)});
  return s.y;
}

void Latent::dgrad(Pass& p, Saved& s, Tensor dy, Tensor dh) const {
  s.draw = p.compute(p.dgrad_till_wgrad, {dy.rows(), dy.cols()}, dy.place);
  if (spec_.rotated > 0) p.be.run(Copy{.from = beside(dy), .to = beside(s.draw)});
  rotate(p, beside(s.draw), true);
  norm_.dgrad(p, s.norm, of_rank(dy), {}, of_rank(s.draw));
  down_.dgrad(p, s.down, s.draw, dh);
}

void Latent::wgrad(Pass& p, const Saved& s, Tensor h) const {
  down_.wgrad(p, s.down, h, s.draw);
  norm_.wgrad(p, s.norm);
}

// In place.
void Latent::rotate(Pass& p, Tensor k, bool inverse) const {
  if (spec_.rotated == 0) return;
  p.be.run(Rope{.x = k,
                .positions = p.batch.stream_positions(),
                .table = *spec_.rope_table,
                .inverse = inverse,
                .interleaved = spec_.interleaved});
}

}  // namespace weft
