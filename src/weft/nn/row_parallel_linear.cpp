#include "weft/nn/row_parallel_linear.h"

namespace weft {

RowParallelLinear::RowParallelLinear(ParamStore& params, const std::string& name, const Spec& spec,
                                     const LayerPlan& plan)
    : projection_(params, name,
                  {.in = spec.in,
                   .out = spec.out,
                   .place = weights(Spmd::Shard1),
                   .parts = {{.size = spec.in, .grain = spec.grain}},
                   .init_std = spec.init_std}),
      bias_(params, name, spec.out, plan.whole(), spec.bias),
      leave_(Axis::tp, Spmd::Partial, plan.stream),
      dropout_(spec.dropout_name, spec.dropout) {}

Tensor RowParallelLinear::forward(Pass& p, Saved& s, Tensor x) const {
  Tensor z = p.compute(p.scratch, {x.rows(), projection_.out()}, tokens(Spmd::Partial));
  projection_.forward(p, s, x, z);
  Tensor y = leave_.forward(p.mesh, z, *p.scratch);
  bias_.forward(p, y);
  dropout_.forward(p, y);
  return y;
}

Tensor RowParallelLinear::dgrad(Pass& p, Saved& s, Tensor dy) const {
  Tensor dz = leave_.backward(p.mesh, dropout_.backward(p, dy, *p.scratch), *p.scratch);
  Tensor dx = p.compute(p.scratch, {dz.rows(), projection_.in()}, tokens(Spmd::Shard1));
  projection_.dgrad(p, s, dz, dx);
  return dx;
}

void RowParallelLinear::wgrad(Pass& p, const Saved& s, Tensor x, Tensor dy) const {
  Tensor dropped = dropout_.backward(p, dy, *p.scratch);
  bias_.wgrad(p, dropped);
  projection_.wgrad(p, s, x, leave_.backward(p.mesh, dropped, *p.scratch));
}

}  // namespace weft
