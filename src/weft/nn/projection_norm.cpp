#include "weft/nn/projection_norm.h"

namespace weft {

ProjectionNorm::ProjectionNorm(ParamStore& params, const std::string& name, const Spec& spec)
    : spec_(spec), join_(Axis::tp, Spmd::Partial, Spmd::Invariant) {
  if (spec.over == Over::none) return;
  const bool all = spec.over == Over::all, cut = all && !spec.part.everywhere;
  w_ = &params.add({.name = name,
                    .shape = {all ? spec.heads * spec.head_dim : spec.head_dim},
                    .place = weights(cut ? Spmd::Shard0 : Spmd::Replicate),
                    .parts = cut ? std::vector{spec.part} : std::vector<Part>{},
                    .init = {spec.offset == 0 ? Init::Kind::ones : Init::Kind::zeros}});
}

void ProjectionNorm::forward(Pass& p, Saved& s, Tensor x, Tensor y, Arena* home) const {
  HeadNorm op{.x = x, .w = w_->value, .y = y, .rstd = {}, .eps = spec_.eps, .offset = spec_.offset};
  if (spec_.over == Over::all) {
    op.squares = sum_over_columns(p, x, x, {});
    op.total = w_->spec().shape.elements();
    s.rstd = p.stat(home, {x.rows(), 1}, op.squares.place);
  } else {
    s.rstd = p.stat(home, {x.rows(), x.cols() / spec_.head_dim}, x.place);
  }
  op.rstd = s.rstd;
  p.be.run(op);
}

void ProjectionNorm::dgrad(Pass& p, Saved& s, Tensor x, Tensor dx) const {
  s.dw = p.stat(p.dgrad_till_wgrad, w_->shape(), w_->spec().place.dual());
  HeadNormBackward op{.x = x, .w = w_->value, .rstd = s.rstd, .dy = dx, .dx = dx, .dw = s.dw, .offset = spec_.offset};
  if (spec_.over == Over::all) {
    op.dots = sum_over_columns(p, x, dx, w_->value);
    op.total = w_->spec().shape.elements();
  }
  p.be.run(op);
}

void ProjectionNorm::wgrad(Pass& p, const Saved& s) const { add_gradient(p, *w_, s.dw); }

// [T, 1] in scratch: over all columns, wherever they are. Where every rank has all of them, a part of a sum stays one.
Tensor ProjectionNorm::sum_over_columns(Pass& p, Tensor x, Tensor y, Tensor w) const {
  const bool cut = x.place.tp() == Spmd::Shard1;
  Tensor sum = p.stat(p.scratch, {x.rows(), 1}, cut ? y.place.on_tp(Spmd::Partial) : y.place);
  p.be.run(RowDots{.x = x, .y = y, .w = w, .out = sum});
  return cut ? join_.forward(p.mesh, sum, *p.scratch) : sum;
}

}  // namespace weft
