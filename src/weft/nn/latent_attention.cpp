#include "weft/nn/latent_attention.h"

#include <tuple>

namespace weft {
namespace {

Latent::Spec latent_spec(const LatentAttention::Spec& s, int64_t rank, int64_t rotated) {
  return {.width = s.width,
          .rank = rank,
          .rotated = rotated,
          .interleaved = s.interleaved,
          .norm_eps = s.norm_eps,
          .rope_table = s.rope_table,
          .init_std = s.init_std};
}

// From a latent, or the stream, to heads of `dim` columns.
Linear::Spec up_spec(const LatentAttention::Spec& s, int64_t in, int64_t dim) {
  return {.in = in,
          .out = s.heads * dim,
          .place = weights(Spmd::Shard0),
          .parts = {{.size = s.heads * dim, .grain = dim}},
          .init_std = s.init_std};
}

std::optional<Latent> made_if(bool exists, ParamStore& params, const std::string& name, const Latent::Spec& spec,
                              const LayerPlan& plan) {
  if (!exists) return {};
  return Latent(params, name, spec, plan);
}

}  // namespace

LatentAttention::LatentAttention(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan)
    : spec_(spec),
      keep_(plan.keeps_attention()),
      q_latent_(made_if(spec.q_rank > 0, params, name + ".q", latent_spec(spec, spec.q_rank, 0), plan)),
      kv_latent_(params, name + ".kv", latent_spec(spec, spec.kv_rank, spec.rope_dim), plan),
      enter_(Axis::tp, plan.stream, Spmd::Replicate),
      q_(params, name + ".q", up_spec(spec, spec.q_rank > 0 ? spec.q_rank : spec.width, head_dim())),
      kv_(params, name + ".kv", up_spec(spec, spec.kv_rank, spec.nope_dim + spec.v_dim)),
      out_(params, name + ".out",
           {.in = spec.heads * spec.v_dim,
            .out = spec.width,
            .grain = spec.v_dim,
            .bias = false,
            .init_std = spec.out_init_std,
            .dropout_name = name,
            .dropout = spec.dropout},
           plan),
      core_(make_attention_core(plan.context, heads(), {name + ".core", spec.attention_dropout})) {}

AttentionHeads LatentAttention::heads() const {
  const int64_t here = q_.out() / head_dim();
  return {.q = here,
          .kv = here,
          .dim = head_dim(),
          .first = q_.weight().parts()[0].rows.first / head_dim(),
          .total = spec_.heads,
          .scale = spec_.scale,
          .v_dim = spec_.v_dim};
}

Tensor LatentAttention::forward(Pass& p, Saved& s, Tensor h) const {
  Arena* kept = keep_ ? p.till_dgrad : p.scratch;
  const Tensor from = q_latent_ ? q_latent_->forward(p, s.q_latent, h) : h;
  const Tensor latent = kv_latent_.forward(p, s.kv_latent, h);
  s.q = queries(p, s, from, q_latent_ ? kept : p.till_dgrad);
  std::tie(s.k, s.v) = keys(p, s, latent, kept);
  Tensor o = p.compute(keep_ ? p.till_wgrad : p.scratch, {s.q.rows(), out_.in()}, s.q.place);
  s.lse = p.stat(kept, {s.q.rows(), core_->heads().q}, s.q.place);
  core_->forward(p, {s.q, s.k, s.v}, o, s.lse);
  s.o = keep_ ? o : Tensor{};
  return out_.forward(p, s.out, o);
}

// Rotated, in `home`, of what this rank's stream has.
Tensor LatentAttention::queries(Pass& p, Saved& s, Tensor from, Arena* home, Product product) const {
  Tensor q = p.compute(home, {p.batch.positions.elements(), q_.out()}, tokens(Spmd::Shard1));
  {
    Scope temporaries(*p.scratch);
    (q_.*product)(p, s.q_in, enter_.forward(p.mesh, from, *p.scratch), q);
  }
  rotate(p, q, false);
  return q;
}

std::pair<Tensor, Tensor> LatentAttention::keys(Pass& p, Saved& s, Tensor latent, Arena* home, Product product) const {
  const int64_t rows = p.batch.positions.elements(), here = core_->heads().kv;
  Tensor k = p.compute(home, {rows, here * head_dim()}, tokens(Spmd::Shard1));
  Tensor v = p.compute(home, {rows, here * spec_.v_dim}, tokens(Spmd::Shard1));
  Scope temporaries(*p.scratch);
  const Tensor x = enter_.forward(p.mesh, latent, *p.scratch);
  Tensor kv = p.compute(p.scratch, {rows, kv_.out()}, tokens(Spmd::Shard1));
  (kv_.*product)(p, s.kv_in, x.slice_cols(0, spec_.kv_rank), kv);
  p.be.run(LatentKeys{.kv = kv, .shared = x.slice_cols(spec_.kv_rank, spec_.rope_dim), .k = k, .v = v, .heads = here});
  return {k, v};
}

// In place.
void LatentAttention::rotate(Pass& p, Tensor q, bool inverse) const {
  p.be.run(Rope{.x = q,
                .positions = p.batch.positions,
                .table = *spec_.rope_table,
                .inverse = inverse,
                .dim = head_dim(),
                .first = spec_.nope_dim,
                .interleaved = spec_.interleaved});
}

Tensor LatentAttention::dgrad(Pass& p, Saved& s, Tensor dy) const {
  s.dy = dy;
  Tensor dh = p.compute(p.scratch, {dy.rows(), dy.cols()}, dy.place);
  s.dq = p.compute(p.dgrad_till_wgrad, {p.batch.positions.elements(), q_.out()}, tokens(Spmd::Shard1));
  {
    Scope temporaries(*p.scratch);
    Tensor dout = out_.dgrad(p, s.out, dy);
    if (!keep_) expand_again(p, s);
    const QueryKeyValue d{s.dq, p.compute(p.scratch, {s.k.rows(), s.k.cols()}, s.k.place.dual()),
                          p.compute(p.scratch, {s.v.rows(), s.v.cols()}, s.v.place.dual())};
    core_->backward(p, {s.q, s.k, s.v}, {s.o, s.lse}, dout, d);
    keys_backward(p, s, d, dh);
  }
  add_queries_backward(p, s, dh);
  return dh;
}

// Writes the gradient of the stream that comes through keys and values.
void LatentAttention::keys_backward(Pass& p, Saved& s, const QueryKeyValue& d, Tensor dh) const {
  s.dkv = p.compute(p.dgrad_till_wgrad, {d.k.rows(), kv_.out()}, d.k.place);
  Tensor dlatent = p.compute(p.scratch, {d.k.rows(), spec_.kv_rank + spec_.rope_dim}, tokens(Spmd::Partial));
  p.be.run(LatentKeysBackward{.dk = d.k,
                              .dv = d.v,
                              .dkv = s.dkv,
                              .dshared = dlatent.slice_cols(spec_.kv_rank, spec_.rope_dim),
                              .heads = core_->heads().kv});
  kv_.dgrad(p, s.kv_in, s.dkv, dlatent.slice_cols(0, spec_.kv_rank));
  kv_latent_.dgrad(p, s.kv_latent, enter_.backward(p.mesh, dlatent, *p.scratch), dh);
}

// Adds what comes through queries.
void LatentAttention::add_queries_backward(Pass& p, Saved& s, Tensor dh) const {
  Scope temporaries(*p.scratch);
  rotate(p, s.dq, true);
  Tensor dfrom = p.compute(p.scratch, {s.dq.rows(), q_.in()}, tokens(Spmd::Partial));
  q_.dgrad(p, s.q_in, s.dq, dfrom);
  dfrom = enter_.backward(p.mesh, dfrom, *p.scratch);
  if (q_latent_) {
    Tensor through = p.compute(p.scratch, {dh.rows(), dh.cols()}, dh.place);
    q_latent_->dgrad(p, s.q_latent, dfrom, through);
    dfrom = through;
  }
  p.be.run(Add{.x = dh, .y = dfrom, .out = dh});
}

// What forward made of the latents and did not keep. Queries that are made of the stream are kept.
void LatentAttention::expand_again(Pass& p, Saved& s) const {
  if (q_latent_) s.q = queries(p, s, q_latent_->again(p, s.q_latent), p.scratch, &Projection::again);
  std::tie(s.k, s.v) = keys(p, s, kv_latent_.again(p, s.kv_latent), p.scratch, &Projection::again);
  s.o = p.compute(p.dgrad_till_wgrad, {s.q.rows(), out_.in()}, s.q.place);
  s.lse = p.stat(p.scratch, {s.q.rows(), core_->heads().q}, s.q.place);
  core_->forward(p, {s.q, s.k, s.v}, s.o, s.lse);
}

void LatentAttention::wgrad(Pass& p, const Saved& s, Tensor h) const {
  out_.wgrad(p, s.out, s.o, s.dy);
  q_.wgrad(p, s.q_in, enter_.forward(p.mesh, q_latent_ ? s.q_latent.y : h, *p.scratch), s.dq);
  kv_.wgrad(p, s.kv_in, enter_.forward(p.mesh, s.kv_latent.y, *p.scratch).slice_cols(0, spec_.kv_rank), s.dkv);
  if (q_latent_) q_latent_->wgrad(p, s.q_latent, h);
  kv_latent_.wgrad(p, s.kv_latent, h);
}

KvCache LatentAttention::make_cache(Arena& arena, DType compute, int64_t rows) const {
  return {.k = arena.alloc(compute, {rows, spec_.kv_rank + spec_.rope_dim}, tokens(Spmd::Replicate)), .v = {}};
}

// Texts that begin attend to keys and values of the heads, as in training; later tokens to the latents.
Tensor LatentAttention::decode(Pass& p, const KvCache& cache, const CacheUse& use, Tensor h) const {
  Saved s;
  const Tensor from = q_latent_ ? q_latent_->forward(p, s.q_latent, h) : h;
  const Tensor latent = kv_latent_.forward(p, s.kv_latent, h);
  s.q = queries(p, s, from, p.scratch);
  use.write(p, enter_.forward(p.mesh, latent, *p.scratch), cache.k);
  if (!use.queries.empty()) return out_.forward(p, s.out, attend_to_latents(p, cache, use, s.q));
  const auto [k, v] = keys(p, s, latent, p.scratch);
  Tensor o = p.compute(p.scratch, {s.q.rows(), out_.in()}, s.q.place);
  Tensor lse = p.stat(p.scratch, {s.q.rows(), core_->heads().q}, s.q.place);
  core_->forward(p, {s.q, k, v}, o, lse);
  return out_.forward(p, s.out, o);
}

// Attention of single tokens to the cache, with a head's part of the up-projection W = [K; V] moved from keys
// and values to queries and results: q (K x) = (K^T q) x, and sum p (V x) = V (sum p x).
Tensor LatentAttention::attend_to_latents(Pass& p, const KvCache& cache, const CacheUse& use, Tensor q) const {
  const int64_t n = q.rows(), c = spec_.kv_rank, r = spec_.rope_dim;
  const AttentionHeads& own = core_->heads();
  AttentionHeads latent = own;
  latent.kv = 1, latent.dim = c + r, latent.v_dim = c;
  Tensor o = p.compute(p.scratch, {n, out_.in()}, q.place);
  Scope temporaries(*p.scratch);
  Tensor lq = p.compute(p.scratch, {n, own.q * (c + r)}, q.place), lo = p.compute(p.scratch, {n, own.q * c}, q.place);
  Tensor lse = p.stat(p.scratch, {n, own.q}, q.place);
  // The columns of one head: other ranks have other heads, so to the ops they are whole.
  const auto columns = [](const Tensor& x, int64_t first, int64_t count) {
    return x.slice_cols(first, count).placed(tokens(Spmd::Replicate));
  };
  const Projection::Matrix up = kv_.matrix(p);
  const auto rows = [&](int64_t first, int64_t count) {
    return up.rows.slice_rows(first, count).placed(weights(Spmd::Replicate));
  };
  // x, in place, times what results of rows from `first` on are multiplied with.
  const auto scale = [&](const Tensor& x, int64_t first) {
    if (up.factor)
      p.be.run(
          ScaleColumns{.x = x, .w = up.factor.slice_rows(first, x.cols()).placed(weights(Spmd::Replicate)), .y = x});
  };
  const int64_t e = own.dim, nope = spec_.nope_dim, u = spec_.v_dim;
  for (int64_t i = 0; i < own.q; ++i) {
    scale(columns(q, i * e, nope), i * (nope + u));
    p.be.run(Matmul{.a = columns(q, i * e, nope), .b = rows(i * (nope + u), nope), .out = columns(lq, i * (c + r), c)});
    p.be.run(Copy{.from = q.slice_cols(i * e + nope, r), .to = lq.slice_cols(i * (c + r) + c, r)});
  }
  cached_.forward(p, use, latent, {lq, cache.k, cache.k.slice_cols(0, c)}, {lo, lse});
  for (int64_t i = 0; i < own.q; ++i) {
    p.be.run(Matmul{
        .a = columns(lo, i * c, c), .b = rows(i * (nope + u) + nope, u), .out = columns(o, i * u, u), .trans_b = true});
    scale(columns(o, i * u, u), i * (nope + u) + nope);
  }
  return o;
}

}  // namespace weft
