#include "weft/nn/mlp.h"

namespace weft {
namespace {

bool is_gated(Mlp::Act act) { return act == Mlp::Act::swiglu || act == Mlp::Act::geglu_tanh; }
GateKind gate_of(Mlp::Act act) { return act == Mlp::Act::swiglu ? GateKind::silu : GateKind::gelu_tanh; }

std::vector<Part> up_parts(const Mlp::Spec& spec) {
  if (is_gated(spec.act)) return {{spec.inner}, {spec.inner}};
  return {{spec.inner}};
}

}  // namespace

Mlp::Mlp(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan)
    : act_(spec.act),
      keep_(plan.keep_activations),
      enter_(Axis::tp, plan.stream, Spmd::Replicate),
      up_(params, name + ".up",
          {.in = spec.width,
           .out = spec.inner * int64_t(up_parts(spec).size()),
           .place = weights(Spmd::Shard0),
           .bias = spec.bias,
           .parts = up_parts(spec),
           .init_std = spec.init_std}),
      down_(params, name + ".down",
            {.in = spec.inner,
             .out = spec.width,
             .grain = 1,
             .bias = spec.bias,
             .init_std = spec.down_init_std,
             .dropout_name = name,
             .dropout = spec.dropout},
            plan) {}

Tensor Mlp::forward(Pass& p, Saved& s, Tensor h) const {
  Tensor x = enter_.forward(p.mesh, h, *p.scratch);
  s.u = p.compute(p.till_dgrad, {x.rows(), up_.out()}, tokens(Spmd::Shard1));
  up_.forward(p, s.up, x, s.u);
  Tensor a = p.compute(keep_ ? p.till_wgrad : p.scratch, {x.rows(), down_.in()}, tokens(Spmd::Shard1));
  activate(p, s.u, a);
  s.a = keep_ ? a : Tensor{};
  return down_.forward(p, s.down, a);
}

Tensor Mlp::dgrad(Pass& p, Saved& s, Tensor dy) const {
  s.dy = dy;
  Tensor da = down_.dgrad(p, s.down, dy);
  if (!keep_) {
    s.a = p.compute(p.dgrad_till_wgrad, {s.u.rows(), down_.in()}, s.u.place);
    activate(p, s.u, s.a);
  }
  s.du = p.compute(p.dgrad_till_wgrad, {s.u.rows(), s.u.cols()}, s.u.place.dual());
  activate_backward(p, s.u, da, s.du);
  Tensor dx = p.compute(p.scratch, {da.rows(), up_.in()}, tokens(Spmd::Partial));
  up_.dgrad(p, s.up, s.du, dx);
  return enter_.backward(p.mesh, dx, *p.scratch);
}

void Mlp::wgrad(Pass& p, const Saved& s, Tensor h) const {
  down_.wgrad(p, s.down, s.a, s.dy);
  up_.wgrad(p, s.up, enter_.forward(p.mesh, h, *p.scratch), s.du);
}

void Mlp::activate(Pass& p, Tensor u, Tensor a) const {
  if (is_gated(act_))
    p.be.run(GatedUnit{.u = u, .a = a, .kind = gate_of(act_)});
  else
    p.be.run(Gelu{.x = u, .y = a, .exact = act_ == Act::gelu_erf});
}

void Mlp::activate_backward(Pass& p, Tensor u, Tensor da, Tensor du) const {
  if (is_gated(act_))
    p.be.run(GatedUnitBackward{.u = u, .da = da, .du = du, .kind = gate_of(act_)});
  else
    p.be.run(GeluBackward{.x = u, .dy = da, .dx = du, .exact = act_ == Act::gelu_erf});
}

}  // namespace weft
