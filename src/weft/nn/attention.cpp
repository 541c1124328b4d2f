#include "weft/nn/attention.h"

#include <algorithm>

namespace weft {
namespace {

// Heads that share a key head stay together, where key heads are cut.
std::vector<Part> qkv_parts(const SelfAttention::Spec& s, bool keys_everywhere) {
  const int64_t e = s.head_dim, group = keys_everywhere ? e : s.heads / s.kv_heads * e;
  const Part kv{.size = s.kv_heads * e, .grain = e, .everywhere = keys_everywhere};
  return {{.size = s.heads * e, .grain = group}, kv, kv};
}

ProjectionNorm::Spec norm_of(const SelfAttention::Spec& s, bool of_keys, bool keys_everywhere) {
  return {.over = s.qk_norm,
          .heads = of_keys ? s.kv_heads : s.heads,
          .head_dim = s.head_dim,
          .part = qkv_parts(s, keys_everywhere)[of_keys ? 1 : 0],
          .eps = s.norm_eps,
          .offset = s.norm_offset};
}

AttentionSinks::Spec sinks_of(const SelfAttention::Spec& s, bool keys_everywhere) {
  return {.exist = s.sinks,
          .heads = s.heads,
          .part = {.size = s.heads, .grain = keys_everywhere ? 1 : s.heads / s.kv_heads},
          .init_std = s.init_std};
}

}  // namespace

SelfAttention::SelfAttention(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan)
    : spec_(spec),
      keep_(plan.keeps_attention()),
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
      q_norm_(params, name + ".q_norm.weight", norm_of(spec, false, plan.keys_everywhere)),
      k_norm_(params, name + ".k_norm.weight", norm_of(spec, true, plan.keys_everywhere)),
      sinks_(params, name, sinks_of(spec, plan.keys_everywhere)),
      core_(make_attention_core(plan.context, heads(), {name + ".core", spec.attention_dropout})) {}

// `everywhere`: how keys and values are held where each rank has all of them.
QueryKeyValue SelfAttention::split(Tensor qkv, Spmd everywhere) const {
  const int64_t q = queries().rows.count, k = keys().rows.count;
  const Placement kv = keys().held == Spmd::Replicate ? qkv.place.on_tp(everywhere) : qkv.place;
  return {qkv.slice_cols(0, q), qkv.slice_cols(q, k).placed(kv), qkv.slice_cols(q + k, k).placed(kv)};
}

// The heads of keys or values that the queries here read.
Tensor SelfAttention::attended(Tensor k) const {
  const AttentionHeads& h = core_->heads();
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
          .scale = spec_.scale,
          .window = spec_.window,
          .softcap = spec_.softcap};
}

Tensor SelfAttention::forward(Pass& p, Saved& s, Tensor h) const {
  project(p, s, h, p.till_dgrad);
  const int64_t t = s.qkv.rows();
  Tensor o = p.compute(keep_ ? p.till_wgrad : p.scratch, {t, out_.in()}, s.qkv.place);
  Tensor lse = p.stat(keep_ ? p.till_dgrad : p.scratch, {t, core_->heads().q}, s.qkv.place);
  core(p, s.qkv, o, lse);
  s.o = keep_ ? o : Tensor{};
  s.lse = keep_ ? lse : Tensor{};
  return out_.forward(p, s.out, o);
}

// q, k and v of these tokens, normalized and rotated, in s.qkv.
void SelfAttention::project(Pass& p, Saved& s, Tensor h, Arena* home) const {
  Tensor x = enter_.forward(p.mesh, h, *p.scratch);
  s.qkv = p.compute(home, {x.rows(), qkv_.out()}, tokens(Spmd::Shard1));
  qkv_.forward(p, s.in, x, s.qkv);
  const QueryKeyValue qkv = split(s.qkv, Spmd::Replicate);
  if (q_norm_) normalize(p, s, qkv, home);
  rotate(p, qkv.q, false);
  rotate(p, qkv.k, false);
}

void SelfAttention::rotate(Pass& p, Tensor x, bool inverse) const {
  if (spec_.rope_table)
    p.be.run(Rope{.x = x,
                  .positions = p.batch.positions,
                  .table = *spec_.rope_table,
                  .inverse = inverse,
                  .dim = spec_.head_dim,
                  .interleaved = spec_.rope_interleaved});
}

void SelfAttention::normalize(Pass& p, Saved& s, const QueryKeyValue& qkv, Arena* home) const {
  s.raw = p.compute(home, {qkv.q.rows(), qkv.q.cols() + qkv.k.cols()}, s.qkv.place);
  const auto norm = [&](const ProjectionNorm& of, ProjectionNorm::Saved& saved, const Tensor& x, int64_t first) {
    const Tensor raw = s.raw.slice_cols(first, x.cols()).placed(x.place);
    p.be.run(Copy{.from = x, .to = raw});
    of.forward(p, saved, raw, x, home);
  };
  norm(q_norm_, s.q_norm, qkv.q, 0);
  norm(k_norm_, s.k_norm, qkv.k, qkv.q.cols());
}

void SelfAttention::core(Pass& p, const Tensor& qkv, Tensor o, Tensor lse) const {
  core_->forward(p, attended(split(qkv, Spmd::Replicate)), o, lse);
  sinks_.forward(p, o, lse);
}

Tensor SelfAttention::dgrad(Pass& p, Saved& s, Tensor dy) const {
  s.dy = dy;
  Tensor dout = out_.dgrad(p, s.out, dy);
  if (!keep_) {
    s.o = p.compute(p.dgrad_till_wgrad, {s.qkv.rows(), out_.in()}, s.qkv.place);
    s.lse = p.stat(p.scratch, {s.qkv.rows(), core_->heads().q}, s.qkv.place);
    core(p, s.qkv, s.o, s.lse);
  }
  s.dqkv = p.compute(p.dgrad_till_wgrad, {s.qkv.rows(), qkv_.out()}, s.qkv.place);
  const QueryKeyValue d = split(s.dqkv, Spmd::Partial);
  for (const Tensor& dx : {d.k, d.v})
    if (attended(dx).cols() < dx.cols()) p.be.run(Zero{.x = dx});  // the key heads of other ranks' queries
  sinks_.dgrad(p, s.sinks, s.o, s.lse, dout);
  core_->backward(p, attended(split(s.qkv, Spmd::Replicate)), {s.o, s.lse}, dout, attended(d));
  rotate(p, d.q, true);
  rotate(p, d.k, true);
  if (q_norm_) normalize_backward(p, s, d.q, d.k);
  Tensor dx = p.compute(p.scratch, {dout.rows(), qkv_.in()}, tokens(Spmd::Partial));
  qkv_.dgrad(p, s.in, s.dqkv, dx);
  return enter_.backward(p.mesh, dx, *p.scratch);
}

// In place.
void SelfAttention::normalize_backward(Pass& p, Saved& s, Tensor dq, Tensor dk) const {
  const Placement k_place = split(s.qkv, Spmd::Replicate).k.place;
  q_norm_.dgrad(p, s.q_norm, s.raw.slice_cols(0, dq.cols()), dq);
  k_norm_.dgrad(p, s.k_norm, s.raw.slice_cols(dq.cols(), dk.cols()).placed(k_place), dk);
}

void SelfAttention::wgrad(Pass& p, const Saved& s, Tensor h) const {
  out_.wgrad(p, s.out, s.o, s.dy);
  qkv_.wgrad(p, s.in, enter_.forward(p.mesh, h, *p.scratch), s.dqkv);
  sinks_.wgrad(p, s.sinks);
  if (!q_norm_) return;
  q_norm_.wgrad(p, s.q_norm);
  k_norm_.wgrad(p, s.k_norm);
}

KvCache SelfAttention::make_cache(Arena& arena, DType compute, int64_t rows) const {
  const AttentionHeads& h = core_->heads();
  const auto make = [&] { return arena.alloc(compute, {rows, h.kv * h.dim}, tokens(Spmd::Shard1)); };
  return {.k = make(), .v = make()};
}

// Texts that begin are seen as in training; tokens that follow look back into the cache.
Tensor SelfAttention::decode(Pass& p, const KvCache& cache, const CacheUse& use, Tensor h) const {
  Saved s;
  project(p, s, h, p.scratch);
  const QueryKeyValue in = attended(split(s.qkv, Spmd::Replicate));
  use.write(p, in.k.placed(cache.k.place), cache.k);
  use.write(p, in.v.placed(cache.v.place), cache.v);
  Tensor o = p.compute(p.scratch, {s.qkv.rows(), out_.in()}, s.qkv.place);
  Tensor lse = p.stat(p.scratch, {s.qkv.rows(), core_->heads().q}, s.qkv.place);
  if (use.queries.empty())
    core_->forward(p, in, o, lse);
  else
    cached_.forward(p, use, core_->heads(), {in.q, cache.k, cache.v}, {o, lse});
  sinks_.forward(p, o, lse);
  return out_.forward(p, s.out, o);
}

}  // namespace weft
