#include "weft/nn/attention.h"

#include <array>
#include <cmath>

namespace weft {

SelfAttention::SelfAttention(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan)
    : spec_(spec),
      keep_(plan.keep_activations),
      enter_(Axis::tp, plan.stream, Spmd::Replicate),
      qkv_(params, name + ".qkv",
           {.in = spec.width,
            .out = (spec.heads + 2 * spec.kv_heads) * spec.head_dim,
            .place = weights(Spmd::Shard0),
            .bias = spec.qkv_bias,
            .parts = {spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * spec.head_dim},
            .init_std = spec.init_std}),
      out_(params, name + ".out",
           {.in = spec.heads * spec.head_dim,
            .out = spec.width,
            .bias = spec.out_bias,
            .init_std = spec.out_init_std,
            .dropout_name = name,
            .dropout = spec.dropout},
           plan),
      attention_dropout_(name + ".core", spec.attention_dropout) {
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

SelfAttention::Qkv SelfAttention::split(Tensor qkv) const {
  const int64_t q = spec_.heads * spec_.head_dim, kv = spec_.kv_heads * spec_.head_dim;
  return {qkv.slice_cols(0, q), qkv.slice_cols(q, kv), qkv.slice_cols(q + kv, kv)};
}

AttentionHeads SelfAttention::heads() const {
  return {.q = spec_.heads,
          .kv = spec_.kv_heads,
          .dim = spec_.head_dim,
          .first = 0,
          .total = spec_.heads,
          .scale = 1 / std::sqrt(double(spec_.head_dim)),
          .window = spec_.window};
}

Tensor SelfAttention::forward(Pass& p, Saved& s, Tensor h) const {
  project(p, s, h, p.till_dgrad);
  const int64_t t = s.qkv.rows();
  Tensor o = p.compute(keep_ ? p.till_wgrad : p.scratch, {t, out_.in()}, s.qkv.place);
  Tensor lse = p.stat(keep_ ? p.till_dgrad : p.scratch, {t, spec_.heads}, s.qkv.place);
  core(p, s.qkv, o, lse);
  s.o = keep_ ? o : Tensor{};
  s.lse = keep_ ? lse : Tensor{};
  return out_.forward(p, o);
}

// q, k and v of these tokens, normalized and rotated, in s.qkv.
void SelfAttention::project(Pass& p, Saved& s, Tensor h, Arena* home) const {
  Tensor x = enter_.forward(p.mesh, h, *p.scratch);
  const Placement cut = tokens(Spmd::Shard1);
  s.qkv = p.compute(home, {x.rows(), qkv_.out()}, cut);
  qkv_.forward(p, x, s.qkv);
  Tensor qk = s.qkv.slice_cols(0, qk_width());
  if (q_norm_) {
    s.raw = p.compute(home, {x.rows(), qk_width()}, cut);
    s.q_rstd = p.stat(home, {x.rows(), spec_.heads}, cut);
    s.k_rstd = p.stat(home, {x.rows(), spec_.kv_heads}, cut);
    p.be.run(Copy{.from = qk, .to = s.raw});
    const int64_t q = spec_.heads * spec_.head_dim, k = qk_width() - q;
    p.be.run(HeadNorm{.x = s.raw.slice_cols(0, q),
                      .w = q_norm_->value,
                      .y = qk.slice_cols(0, q),
                      .rstd = s.q_rstd,
                      .eps = spec_.norm_eps});
    p.be.run(HeadNorm{.x = s.raw.slice_cols(q, k),
                      .w = k_norm_->value,
                      .y = qk.slice_cols(q, k),
                      .rstd = s.k_rstd,
                      .eps = spec_.norm_eps});
  }
  if (spec_.rope_table) p.be.run(Rope{.x = qk, .positions = p.batch.positions, .table = *spec_.rope_table});
}

void SelfAttention::core(Pass& p, const Tensor& qkv, Tensor o, Tensor lse) const {
  const auto [q, k, v] = split(qkv);
  p.be.run(Attention{.q = q,
                     .k = k,
                     .v = v,
                     .o = o,
                     .lse = lse,
                     .spans = p.batch.spans,
                     .heads = heads(),
                     .dropout = attention_dropout_.spec(p)});
}

Tensor SelfAttention::dgrad(Pass& p, Saved& s, Tensor dy) const {
  s.dy = dy;
  Tensor dout = out_.dgrad(p, dy);
  if (!keep_) {
    s.o = p.compute(p.dgrad_till_wgrad, {s.qkv.rows(), out_.in()}, s.qkv.place);
    s.lse = p.stat(p.scratch, {s.qkv.rows(), spec_.heads}, s.qkv.place);
    core(p, s.qkv, s.o, s.lse);
  }
  s.dqkv = p.compute(p.dgrad_till_wgrad, {s.qkv.rows(), qkv_.out()}, s.qkv.place);
  const auto [q, k, v] = split(s.qkv);
  const auto [dq, dk, dv] = split(s.dqkv);
  p.be.run(AttentionBackward{.q = q,
                             .k = k,
                             .v = v,
                             .o = s.o,
                             .lse = s.lse,
                             .dout = dout,
                             .dq = dq,
                             .dk = dk,
                             .dv = dv,
                             .spans = p.batch.spans,
                             .heads = heads(),
                             .dropout = attention_dropout_.spec(p)});
  Tensor dqk = s.dqkv.slice_cols(0, qk_width());
  if (spec_.rope_table)
    p.be.run(Rope{.x = dqk, .positions = p.batch.positions, .table = *spec_.rope_table, .inverse = true});
  if (q_norm_) {
    const auto backward = [&](Param& w, Tensor x, Tensor rstd, Tensor dx) {
      p.be.run(HeadNormBackward{
          .x = x, .w = w.value, .rstd = rstd, .dy = dx, .dx = dx, .dw = w.grad, .accumulate = w.accumulates()});
    };
    const int64_t width = q.cols();
    backward(*q_norm_, s.raw.slice_cols(0, width), s.q_rstd, dq);
    backward(*k_norm_, s.raw.slice_cols(width, k.cols()), s.k_rstd, dk);
  }
  Tensor dx = p.compute(p.scratch, {dout.rows(), qkv_.in()}, tokens(Spmd::Partial));
  qkv_.dgrad(p, s.dqkv, dx);
  return enter_.backward(p.mesh, dx, *p.scratch);
}

void SelfAttention::wgrad(Pass& p, const Saved& s, Tensor h) const {
  out_.wgrad(p, s.o, s.dy);
  qkv_.wgrad(p, enter_.forward(p.mesh, h, *p.scratch), s.dqkv);
}

Tensor SelfAttention::decode(Pass& p, KvCache& cache, Tensor h) const {
  Saved s;
  project(p, s, h, p.scratch);
  const auto [q, k, v] = split(s.qkv);
  const int64_t n = h.rows(), all = cache.count + n;
  p.be.run(Copy{.from = k, .to = cache.k.slice_rows(cache.count, n)});
  p.be.run(Copy{.from = v, .to = cache.v.slice_rows(cache.count, n)});
  const std::array span{AttentionSpan{.q_row = 0, .q_count = n, .k_row = 0, .k_count = all, .q_position = cache.count}};
  Tensor o = p.compute(p.scratch, {n, out_.in()}, s.qkv.place);
  Tensor lse = p.stat(p.scratch, {n, spec_.heads}, s.qkv.place);
  p.be.run(Attention{.q = q,
                     .k = cache.k.slice_rows(0, all),
                     .v = cache.v.slice_rows(0, all),
                     .o = o,
                     .lse = lse,
                     .spans = span,
                     .heads = heads()});
  cache.count = all;
  return out_.forward(p, o);
}

}  // namespace weft
