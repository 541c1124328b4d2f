#include "weft/nn/experts.h"

#include <utility>

#include "weft/sharding/sequence_sums.h"
#include "weft/sharding/text_ranks.h"

namespace weft {
namespace {

Linear::Spec to_few(int64_t in, int64_t out, const Experts::Spec& spec, const LayerPlan& plan) {
  return {.in = in, .out = out, .place = weights(plan.whole()), .init_std = spec.init_std, .always_numbers = true};
}

Dispatch::At at(const Pass& p) { return {p.be, p.mesh, *p.scratch}; }

Linear::Spec router_spec(const Experts::Spec& spec, const LayerPlan& plan) {
  Linear::Spec router = to_few(spec.width, spec.count, spec, plan);
  router.bias = spec.bias;
  return router;
}

// Gates and ups that take turns stay together.
GroupedLinear::Spec up_spec(const Experts::Spec& spec) {
  return {.experts = spec.count,
          .in = spec.width,
          .out = spec.clamp > 0 ? std::vector{2 * spec.inner} : std::vector{spec.inner, spec.inner},
          .held = Spmd::Shard0,
          .init_std = spec.init_std,
          .grain = spec.clamp > 0 ? 2 : 1};
}

GateKind gate_of(const Experts::Spec& spec) { return spec.clamp > 0 ? GateKind::clamped : GateKind::silu; }

}  // namespace

Experts::Experts(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan)
    : spec_(spec),
      keep_(plan.keep_activations),
      router_(params, name + ".router", router_spec(spec, plan)),
      enter_(Axis::tp, plan.stream, Spmd::Replicate),
      leave_(Axis::tp, Spmd::Partial, plan.stream),
      whole_samples_(sum_over_sequences()),
      dispatch_({.name = name, .experts = spec.count, .chosen = spec.chosen, .capacity = plan.capacity}),
      up_(params, name + ".experts.up", up_spec(spec)),
      up_bias_(params, name + ".experts.up",
               {.experts = spec.count, .width = 2 * spec.inner, .grain = 2, .exists = spec.bias}),
      down_(params, name + ".experts.down",
            {.experts = spec.count,
             .in = spec.inner,
             .out = {spec.width},
             .held = Spmd::Shard1,
             .init_std = spec.down_init_std}),
      down_bias_(params, name + ".experts.down", {.experts = spec.count, .width = spec.width, .exists = spec.bias}),
      dropout_(name, spec.dropout) {
  if (spec.correction) {
    correction_ = &params.add({.name = name + ".router.correction",
                               .shape = {spec.count},
                               .place = weights(plan.whole()),
                               .update = Update::its_layer});
    spec.records->corrects(spec.layer, *correction_);
  }
  if (spec.shared) shared_.emplace(params, name + ".shared", *spec.shared, plan);
  if (spec.shared && spec.shared_gate) gate_.emplace(params, name + ".shared_gate", to_few(spec.width, 1, spec, plan));
}

Tensor Experts::forward(Pass& p, Saved& s, Tensor h) const {
  route(p, s, h);
  Dispatch::OnTheWay way = begin_rows_of(p, s, enter_.forward(p.mesh, h, *p.scratch));
  const Tensor shared = shared_forward(p, s, h);  // while rows are on their way
  Tensor rows = dispatch_.wait_at_experts(at(p), s.routes, std::move(way));
  s.u = alloc_rows(p, p.till_dgrad, s, up_.out(), expert_rows(Spmd::Shard1));
  up_.forward(p, s.up, rows, s.routes, s.u);
  up_bias_.forward(p, ones(p, s), s.routes, s.u);
  s.a = alloc_rows(p, keep_ ? p.till_wgrad : p.scratch, s, down_.in(), s.u.place);
  activate(p, s, s.a);
  Tensor z = rows.placed(expert_rows(Spmd::Partial));  // over rows that are not needed any more
  down_.forward(p, s.down, weighted(p, s), s.routes, z);
  down_bias_.forward(p, row_weights(p, s), s.routes, z);
  if (!keep_) s.a = {};
  Tensor y = leave_.forward(p.mesh, dispatch_.to_tokens(at(p), s.routes, z), *p.scratch);
  dropout_.forward(p, y);
  if (shared) p.be.run(Add{.x = y, .y = shared, .out = y});
  return y;
}

Tensor Experts::dgrad(Pass& p, Saved& s, Tensor dy) const {
  s.dy = dy;
  Dispatch::OnTheWay way = begin_rows_of(p, s, leave_backward(p, s));
  const SharedGradient shared = shared_dgrad(p, s, dy);
  Tensor dz = dispatch_.wait_at_experts(at(p), s.routes, std::move(way));
  Tensor da = alloc_rows(p, p.scratch, s, down_.in(), s.u.place.dual());
  down_.dgrad(p, s.down, dz, s.routes, da);
  if (!keep_) {
    s.a = alloc_rows(p, p.dgrad_till_wgrad, s, down_.in(), s.u.place);
    activate(p, s, s.a);
  }
  Tensor drow_weights = p.stat(p.scratch, {s.routes.capacity}, s.weights.place.dual()).slice_rows(0, s.routes.rows);
  p.be.run(ScaleRowsBackward{.x = s.a, .scale = s.weights, .dy = da, .dx = da, .dscale = drow_weights});
  down_bias_.dgrad(p, dz, s.routes, drow_weights);
  s.du = alloc_rows(p, p.dgrad_till_wgrad, s, s.u.cols(), s.u.place.dual());
  p.be.run(GatedUnitBackward{.u = s.u, .da = da, .du = s.du, .kind = gate_of(spec_), .limit = spec_.clamp});
  Tensor drows = dz.placed(expert_rows(Spmd::Partial));  // likewise
  up_.dgrad(p, s.up, s.du, s.routes, drows);
  Tensor dh = enter_.backward(p.mesh, dispatch_.to_tokens(at(p), s.routes, drows), *p.scratch);
  Tensor of_router = route_backward(p, s, weights_backward(p, s, drow_weights));
  for (const Tensor& more : {of_router, shared.of_gate, shared.of_mlp})
    if (more) p.be.run(Add{.x = dh, .y = more, .out = dh});
  return dh;
}

void Experts::wgrad(Pass& p, const Saved& s, Tensor h) const {
  if (gate_) gate_->wgrad(p, h, s.dgate);
  if (shared_) {
    Scope temporaries(*p.scratch);
    shared_->wgrad(p, s.shared, h);
  }
  router_.wgrad(p, h, s.dlogits);
  if (down_.learns() || down_bias_.learns()) {  // else rows need not come
    Scope temporaries(*p.scratch);
    const Tensor dz = rows_of(p, s, leave_backward(p, s));
    down_.wgrad(p, s.down, weighted(p, s), dz, s.routes);
    down_bias_.wgrad(p, row_weights(p, s), dz, s.routes);
  }
  if (up_bias_.learns()) up_bias_.wgrad(p, ones(p, s), s.du, s.routes);
  if (up_.learns()) up_.wgrad(p, s.up, rows_of(p, s, enter_.forward(p.mesh, h, *p.scratch)), s.du, s.routes);
}

// Chooses, in f32, and says which rows are whose. The weights go where the rows go.
void Experts::route(Pass& p, Saved& s, Tensor h) const {
  s.logits = p.stat(p.till_dgrad, {h.rows(), spec_.count}, h.place);
  router_.forward(p, h, s.logits);
  s.ids = p.till_dgrad->alloc(DType::i32, {h.rows(), spec_.chosen}, h.place);
  Tensor weights = p.stat(p.scratch, {h.rows(), spec_.chosen}, h.place);
  const Tensor correction = correction_ ? correction_->value : Tensor{};
  p.be.run(Route{.logits = s.logits, .bias = correction, .ids = s.ids, .weights = weights, .routing = spec_.routing});
  s.whole_ids = enter_.forward(p.mesh, s.ids, *p.till_dgrad);
  if (p.batch.counts_experts)
    p.be.run(ExpertLoad{.ids = s.whole_ids,
                        .load = spec_.records->whole(spec_.layer),
                        .sample_tokens = s.whole_ids.rows(),
                        .accumulate = true});
  s.routes = routes_of(p, s.whole_ids);
  if (up_.drops(p) || down_.drops(p))
    s.routes.numbers = dispatch_.pair_numbers(at(p), s.routes, p.batch.tokens, *p.till_wgrad);
  const Tensor whole = enter_.forward(p.mesh, weights, *p.scratch);
  s.weights = dispatch_.to_experts(at(p), s.routes, whole.reshape({whole.elements()}), 1, *p.till_wgrad);
}

// Ranks that have the same rows share them out, as they share products, where what an expert reads is worth it.
Dispatch::Routes Experts::routes_of(Pass& p, Tensor ids) const {
  const int64_t bytes = 3 * spec_.width * spec_.inner * size_of(p.precision.compute);
  const auto sharer = p.shares_from && bytes >= *p.shares_from ? sharer_of_experts(p.mesh) : std::nullopt;
  if (sharer) return dispatch_.route_shared(at(p), ids, *sharer, *p.till_wgrad);
  return p.reaches_experts ? dispatch_.route_here(at(p), ids, *p.till_wgrad)
                           : dispatch_.route(at(p), ids, *p.till_wgrad);
}

Dispatch::OnTheWay Experts::begin_rows_of(Pass& p, const Saved& s, Tensor x) const {
  return dispatch_.begin_to_experts(at(p), s.routes, x, spec_.chosen, *p.scratch);
}

// x [T, d] as rows [n, d] of the experts; in scratch.
Tensor Experts::rows_of(Pass& p, const Saved& s, Tensor x) const {
  return dispatch_.to_experts(at(p), s.routes, x, spec_.chosen, *p.scratch);
}

Tensor Experts::alloc_rows(const Pass& p, Arena* arena, const Saved& s, int64_t cols, Placement place) const {
  return Dispatch::alloc_rows(*arena, p.precision.compute, s.routes, cols, place);
}

// Activations times the weights of their experts; in scratch.
Tensor Experts::weighted(Pass& p, const Saved& s) const {
  Tensor y = alloc_rows(p, p.scratch, s, s.a.cols(), s.a.place);
  p.be.run(ScaleRows{.x = s.a, .scale = s.weights, .y = y});
  return y;
}

void Experts::activate(Pass& p, const Saved& s, Tensor a) const {
  p.be.run(GatedUnit{.u = s.u, .a = a, .kind = gate_of(spec_), .limit = spec_.clamp});
}

// What biases are multiplied with, [n, 1]; none where there are no biases.
Tensor Experts::ones(Pass& p, const Saved& s) const {
  if (!spec_.bias) return {};
  Tensor column = alloc_rows(p, p.scratch, s, 1, s.weights.place);
  p.be.run(Ones{.x = column});
  return column;
}
Tensor Experts::row_weights(Pass& p, const Saved& s) const {
  if (!spec_.bias) return {};
  Tensor column = alloc_rows(p, p.scratch, s, 1, s.weights.place);
  p.be.run(Copy{.from = s.weights.reshape({s.weights.elements(), 1}), .to = column});
  return column;
}

Tensor Experts::leave_backward(Pass& p, const Saved& s) const {
  return leave_.backward(p.mesh, dropout_.backward(p, s.dy, *p.scratch), *p.scratch);
}

// The gradient of the weights that the router gave, [t, k].
Tensor Experts::weights_backward(Pass& p, const Saved& s, Tensor drow_weights) const {
  const Tensor dweights = dispatch_.to_pairs(at(p), s.routes, drow_weights);
  return enter_.backward(p.mesh, dweights.reshape({s.whole_ids.rows(), spec_.chosen}), *p.scratch);
}

// The choices that the balance of samples counts, whole on tp: those without the correction.
Tensor Experts::balance_ids(Pass& p, const Saved& s) const {
  if (!correction_) return s.whole_ids;
  Tensor plain = p.scratch->alloc(DType::i32, {s.ids.rows(), s.ids.cols()}, s.ids.place);
  p.be.run(Route{.logits = s.logits, .ids = plain, .routing = {.sigmoid = spec_.routing.sigmoid}});
  return enter_.forward(p.mesh, plain, *p.scratch);
}

// How many tokens of each sample chose each expert, times what makes it 1 on average, [samples, E]; in scratch. Ranks
// that share samples add up theirs.
Tensor Experts::load_of_samples(Pass& p, const Saved& s, int64_t sample) const {
  const int64_t all = sample * p.batch.sequences.ranks.size;
  Tensor load = p.stat(p.scratch, {s.whole_ids.rows() / sample, spec_.count}, summand_of_sequences());
  p.be.run(ExpertLoad{.ids = balance_ids(p, s),
                      .load = load,
                      .scale = double(spec_.count) / double(spec_.chosen * all),
                      .sample_tokens = sample});
  return whole_samples_.forward(p.mesh, load, *p.scratch);
}

// The gradient of the router's input, [t, d], in scratch. Records what the router did.
Tensor Experts::route_backward(Pass& p, Saved& s, Tensor dweights) const {
  const int64_t sample = p.batch.sample_tokens;
  const Tensor load = load_of_samples(p, s, sample);
  spec_.records->add_dropped(spec_.layer, s.routes.dropped);
  const int64_t first = p.batch.stream.first;
  p.be.run(RouterSums{.logits = s.logits,
                      .ids = s.ids,
                      .load = load,
                      .sums = spec_.records->sums(spec_.layer),
                      .sigmoid = spec_.routing.sigmoid,
                      .first = first,
                      .sample_tokens = sample});
  s.dlogits = p.compute(p.dgrad_till_wgrad, {s.logits.rows(), spec_.count}, s.logits.place.dual());
  const double scale = p.batch.token_scale;
  p.be.run(RouteBackward{.logits = s.logits,
                         .ids = s.ids,
                         .dweights = dweights,
                         .load = load,
                         .whole = spec_.records->whole(spec_.layer),
                         .dlogits = s.dlogits,
                         .routing = spec_.routing,
                         .balance = {.load_scale = scale * spec_.aux_loss_coef,
                                     .whole_scale = scale * spec_.global_aux_loss_coef,
                                     .z_scale = scale * spec_.z_loss_coef,
                                     .first = first,
                                     .sample_tokens = sample}});
  Tensor dh = p.compute(p.scratch, {s.dlogits.rows(), spec_.width}, s.dlogits.place);
  router_.dgrad(p, s.dlogits, dh);
  return dh;
}

// What the MLP that all tokens go through makes of them, [t, d]; in scratch. None where there is none.
Tensor Experts::shared_forward(Pass& p, Saved& s, Tensor h) const {
  if (!shared_) return {};
  Tensor z = shared_->forward(p, s.shared, h);
  if (!gate_) return z;
  s.gate = p.stat(p.till_dgrad, {h.rows(), 1}, h.place);
  gate_->forward(p, h, s.gate);
  s.shared_y = p.compute(p.till_dgrad, {z.rows(), z.cols()}, z.place);
  p.be.run(Copy{.from = z, .to = s.shared_y});
  p.be.run(ScaleRows{.x = s.shared_y, .scale = s.gate, .y = z, .sigmoid = true});
  return z;
}

Experts::SharedGradient Experts::shared_dgrad(Pass& p, Saved& s, Tensor dy) const {
  if (!shared_) return {};
  if (!gate_) return {.of_gate = {}, .of_mlp = shared_->dgrad(p, s.shared, dy)};
  Tensor dz = p.compute(p.dgrad_till_wgrad, {dy.rows(), dy.cols()}, dy.place);
  Tensor dgate = p.stat(p.scratch, {dy.rows(), 1}, dy.place);
  p.be.run(ScaleRowsBackward{.x = s.shared_y, .scale = s.gate, .dy = dy, .dx = dz, .dscale = dgate, .sigmoid = true});
  s.dgate = p.compute(p.dgrad_till_wgrad, {dy.rows(), 1}, dy.place);
  p.be.run(Copy{.from = dgate, .to = s.dgate});
  Tensor of_gate = p.compute(p.scratch, {dy.rows(), dy.cols()}, dy.place);
  gate_->dgrad(p, s.dgate, of_gate);
  return {.of_gate = of_gate, .of_mlp = shared_->dgrad(p, s.shared, dz)};
}

}  // namespace weft
