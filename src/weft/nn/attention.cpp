#include "weft/nn/attention.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace weft {
namespace {

// Heads that share a key head stay together, where key heads are cut.
std::vector<Part> qkv_parts(const SelfAttention::Spec& s, bool keys_everywhere) {
  const int64_t e = s.head_dim, group = keys_everywhere ? e : s.heads / s.kv_heads * e;
  const Part kv{.size = s.kv_heads * e, .grain = e, .everywhere = keys_everywhere};
  return {{.size = s.heads * e, .grain = group}, kv, kv};
}

}  // namespace

SelfAttention::SelfAttention(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan)
    : spec_(spec),
      keep_(plan.keep_activations),
      enter_(Axis::tp, plan.stream, Spmd::Replicate),
      qkv_(params, name + ".qkv",
           {.in = spec.width,
            .out = (spec.heads + 2 * spec.kv_heads) * spec.head_dim,
            .place = weights(Spmd::Shard0),
            .bias = spec.qkv_bias,
            .parts = qkv_parts(spec, plan.keys_everywhere),
            .init_std = spec.init_std}),
      out_(params, name + ".out",
           {.in = spec.heads * spec.head_dim,
            .out = spec.width,
            .grain = qkv_parts(spec, plan.keys_everywhere)[0].grain,
            .bias = spec.out_bias,
            .init_std = spec.out_init_std,
            .dropout_name = name,
            .dropout = spec.dropout},
           plan),
      core_(name + ".core", heads(), spec.attention_dropout) {
  if (!spec.qk_norm) return;
  const auto norm = [&](const char* which) {
    return &params.add({.name = name + which,
                        .shape = {spec.head_dim},
                        .place = weights(Spmd::Replicate),
                        .init = {Init::Kind::ones}});
  };
  q_norm_ = norm(".q_norm.weight");
  k_norm_ = norm(".k_norm.weight");
}

// `everywhere`: how keys and values are held where each rank has all of them.
QueryKeyValue SelfAttention::split(Tensor qkv, Spmd everywhere) const {
  const int64_t q = queries().rows.count, k = keys().rows.count;
  const Placement kv = keys().held == Spmd::Replicate ? qkv.place.on_tp(everywhere) : qkv.place;
  return {qkv.slice_cols(0, q), qkv.slice_cols(q, k).placed(kv), qkv.slice_cols(q + k, k).placed(kv)};
}

// The heads of keys or values that the queries here read.
Tensor SelfAttention::attended(Tensor k) const {
  const AttentionHeads& h = core_.heads();
  const int64_t first = h.first * spec_.kv_heads / spec_.heads * spec_.head_dim;  // of all
  return k.slice_cols(first - (keys().rows.first - spec_.heads * spec_.head_dim), h.kv * spec_.head_dim);
}

AttentionHeads SelfAttention::heads() const {
  const int64_t q = queries().rows.count / spec_.head_dim, group = spec_.heads / spec_.kv_heads;
  return {.q = q,
          .kv = std::max<int64_t>(1, q / group),
          .dim = spec_.head_dim,
          .first = queries().rows.first / spec_.head_dim,
          .total = spec_.heads,
          .scale = 1 / std::sqrt(double(spec_.head_dim)),
          .window = spec_.window};
}

Tensor SelfAttention::forward(Pass& p, Saved& s, Tensor h) const {
  project(p, s, h, p.till_dgrad);
  const int64_t t = s.qkv.rows();
  Tensor o = p.compute(keep_ ? p.till_wgrad : p.scratch, {t, out_.in()}, s.qkv.place);
  Tensor lse = p.stat(keep_ ? p.till_dgrad : p.scratch, {t, core_.heads().q}, s.qkv.place);
  core_.forward(p, attended(split(s.qkv, Spmd::Replicate)), o, lse);
  s.o = keep_ ? o : Tensor{};
  s.lse = keep_ ? lse : Tensor{};
  return out_.forward(p, o);
}

// q, k and v of these tokens, normalized and rotated, in s.qkv.
void SelfAttention::project(Pass& p, Saved& s, Tensor h, Arena* home) const {
  Tensor x = enter_.forward(p.mesh, h, *p.scratch);
  s.qkv = p.compute(home, {x.rows(), qkv_.out()}, tokens(Spmd::Shard1));
  qkv_.forward(p, x, s.qkv);
  const QueryKeyValue qkv = split(s.qkv, Spmd::Replicate);
  if (q_norm_) normalize(p, s, qkv, home);
  if (!spec_.rope_table) return;
  for (const Tensor& x : {qkv.q, qkv.k})
    p.be.run(Rope{.x = x, .positions = p.batch.positions, .table = *spec_.rope_table});
}

void SelfAttention::normalize(Pass& p, Saved& s, const QueryKeyValue& qkv, Arena* home) const {
  const int64_t t = qkv.q.rows(), e = spec_.head_dim;
  s.raw = p.compute(home, {t, qkv.q.cols() + qkv.k.cols()}, s.qkv.place);
  s.q_rstd = p.stat(home, {t, qkv.q.cols() / e}, qkv.q.place);
  s.k_rstd = p.stat(home, {t, qkv.k.cols() / e}, qkv.k.place);
  const auto norm = [&](const Tensor& x, int64_t first, const Param& w, const Tensor& rstd) {
    const Tensor raw = s.raw.slice_cols(first, x.cols()).placed(x.place);
    p.be.run(Copy{.from = x, .to = raw});
    p.be.run(HeadNorm{.x = raw, .w = w.value, .y = x, .rstd = rstd, .eps = spec_.norm_eps});
  };
  norm(qkv.q, 0, *q_norm_, s.q_rstd);
  norm(qkv.k, qkv.q.cols(), *k_norm_, s.k_rstd);
}

Tensor SelfAttention::dgrad(Pass& p, Saved& s, Tensor dy) const {
  s.dy = dy;
  Tensor dout = out_.dgrad(p, dy);
  const QueryKeyValue qkv = split(s.qkv, Spmd::Replicate);
  if (!keep_) {
    s.o = p.compute(p.dgrad_till_wgrad, {s.qkv.rows(), out_.in()}, s.qkv.place);
    s.lse = p.stat(p.scratch, {s.qkv.rows(), core_.heads().q}, s.qkv.place);
    core_.forward(p, attended(qkv), s.o, s.lse);
  }
  s.dqkv = p.compute(p.dgrad_till_wgrad, {s.qkv.rows(), qkv_.out()}, s.qkv.place);
  const QueryKeyValue d = split(s.dqkv, Spmd::Partial);
  const auto& [dq, dk, dv] = d;
  for (const Tensor& dx : {dk, dv})
    if (attended(dx).cols() < dx.cols()) p.be.run(Zero{.x = dx});  // the key heads of other ranks' queries
  core_.backward(p, attended(qkv), {s.o, s.lse}, dout, attended(d));
  for (const Tensor& dx : {dq, dk})
    if (spec_.rope_table)
      p.be.run(Rope{.x = dx, .positions = p.batch.positions, .table = *spec_.rope_table, .inverse = true});
  if (q_norm_) {
    s.dq_norm = normalize_backward(p, *q_norm_, s.raw.slice_cols(0, dq.cols()), s.q_rstd, dq);
    s.dk_norm =
        normalize_backward(p, *k_norm_, s.raw.slice_cols(dq.cols(), dk.cols()).placed(qkv.k.place), s.k_rstd, dk);
  }
  Tensor dx = p.compute(p.scratch, {dout.rows(), qkv_.in()}, tokens(Spmd::Partial));
  qkv_.dgrad(p, s.dqkv, dx);
  return enter_.backward(p.mesh, dx, *p.scratch);
}

// dx in place; returns the gradient of w.
Tensor SelfAttention::normalize_backward(Pass& p, const Param& w, Tensor x, Tensor rstd, Tensor dx) const {
  Tensor dw = p.stat(p.dgrad_till_wgrad, w.shape(), w.spec().place.dual());
  p.be.run(HeadNormBackward{.x = x, .w = w.value, .rstd = rstd, .dy = dx, .dx = dx, .dw = dw});
  return dw;
}

void SelfAttention::wgrad(Pass& p, const Saved& s, Tensor h) const {
  out_.wgrad(p, s.o, s.dy);
  qkv_.wgrad(p, enter_.forward(p.mesh, h, *p.scratch), s.dqkv);
  if (!q_norm_) return;
  add_gradient(p, *q_norm_, s.dq_norm);
  add_gradient(p, *k_norm_, s.dk_norm);
}

Tensor SelfAttention::decode(Pass& p, KvCache& cache, Tensor h) const {
  Saved s;
  project(p, s, h, p.scratch);
  const auto [q, k, v] = split(s.qkv, Spmd::Replicate);
  const int64_t n = h.rows(), all = cache.count + n;
  p.be.run(Copy{.from = k, .to = cache.k.slice_rows(cache.count, n)});
  p.be.run(Copy{.from = v, .to = cache.v.slice_rows(cache.count, n)});
  const std::array span{AttentionSpan{.q_row = 0, .q_count = n, .k_row = 0, .k_count = all, .q_position = cache.count}};
  Tensor o = p.compute(p.scratch, {n, out_.in()}, s.qkv.place);
  Tensor lse = p.stat(p.scratch, {n, core_.heads().q}, s.qkv.place);
  p.be.run(Attention{.q = q,
                     .k = cache.k.slice_rows(0, all),
                     .v = cache.v.slice_rows(0, all),
                     .o = o,
                     .lse = lse,
                     .spans = span,
                     .heads = core_.heads()});
  cache.count = all;
  return out_.forward(p, o);
}

}  // namespace weft
