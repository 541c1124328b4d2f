#include "weft/models/transformer.h"

#include <cmath>

#include "weft/models/rope_table.h"
#include "weft/sharding/text_ranks.h"

namespace weft {
namespace {

StreamNorm::Spec norm_spec(const ModelSpec& m, NormKind kind, const LayerPlan& plan) {
  return {.width = m.width,
          .layer_norm = kind == NormKind::layer_norm,
          .eps = m.norm_eps,
          .whole = plan.whole(),
          .offset = m.norm_offset};
}

Mlp::Act act_of(MlpKind kind) {
  if (kind == MlpKind::swiglu) return Mlp::Act::swiglu;
  if (kind == MlpKind::geglu_tanh) return Mlp::Act::geglu_tanh;
  return kind == MlpKind::gelu_erf ? Mlp::Act::gelu_erf : Mlp::Act::gelu_tanh;
}

ProjectionNorm::Over norm_over(QkNorm kind) {
  if (kind == QkNorm::none) return ProjectionNorm::Over::none;
  return kind == QkNorm::heads ? ProjectionNorm::Over::heads : ProjectionNorm::Over::all;
}

Mlp::Spec mlp_spec(const ModelSpec& m, MlpKind kind, int64_t inner) {
  return {.width = m.width,
          .inner = inner,
          .act = act_of(kind),
          .bias = m.mlp_bias,
          .init_std = m.init_std,
          .down_init_std = m.init_std * m.residual_init_scale,
          .dropout = m.dropout.hidden};
}

// Losses beside cross-entropy are of the model's own layers.
Experts::Spec experts_spec(const ModelSpec& m, int64_t layer, MlpKind mlp, RouterRecords* records) {
  ExpertsSpec e = m.experts;
  if (layer >= m.num_layers) e.aux_loss_coef = e.global_aux_loss_coef = e.z_loss_coef = 0;
  const auto shared = e.shared_width > 0 ? std::optional(mlp_spec(m, mlp, e.shared_width)) : std::nullopt;
  return {.width = m.width,
          .count = e.count,
          .chosen = e.chosen,
          .inner = e.width,
          .routing = e.routing,
          .correction = e.correction,
          .clamp = e.clamp,
          .bias = e.bias,
          .shared = shared,
          .shared_gate = e.shared_gate,
          .init_std = m.init_std,
          .down_init_std = m.init_std * m.residual_init_scale,
          .dropout = m.dropout.hidden,
          .aux_loss_coef = e.aux_loss_coef,
          .global_aux_loss_coef = e.global_aux_loss_coef,
          .z_loss_coef = e.z_loss_coef,
          .records = records,
          .layer = layer};
}

SelfAttention::Spec attention_spec(const ModelSpec& m, const LayerSpec& layer, const Tensor* rope_table) {
  return {.width = m.width,
          .heads = m.num_heads,
          .kv_heads = m.num_kv_heads,
          .head_dim = m.head_dim,
          .window = layer.window,
          .qkv_bias = m.qkv_bias,
          .out_bias = m.attention_out_bias,
          .qk_norm = norm_over(m.qk_norm),
          .norm_eps = m.norm_eps,
          .norm_offset = m.norm_offset,
          .scale = m.attention_scale > 0 ? m.attention_scale : 1 / std::sqrt(double(m.head_dim)),
          .softcap = m.attention_softcap,
          .sinks = m.attention_sinks,
          .rope_table = rope_table,
          .rope_interleaved = layer.rope && layer.rope->interleaved,
          .init_std = m.init_std,
          .out_init_std = m.init_std * m.residual_init_scale,
          .dropout = m.dropout.hidden,
          .attention_dropout = m.dropout.attention};
}

LatentAttention::Spec attention_spec(const ModelSpec& m, const LatentSpec& latent, const Tensor* rope_table) {
  return {.width = m.width,
          .heads = m.num_heads,
          .q_rank = latent.q_rank,
          .kv_rank = latent.kv_rank,
          .nope_dim = latent.nope_dim,
          .rope_dim = latent.rope_dim,
          .v_dim = latent.v_dim,
          .interleaved = latent.interleaved,
          .scale = latent.score_factor / std::sqrt(double(m.head_dim)),
          .norm_eps = latent.norm_eps,
          .rope_table = rope_table,
          .init_std = m.init_std,
          .out_init_std = m.init_std * m.residual_init_scale,
          .dropout = m.dropout.hidden,
          .attention_dropout = m.dropout.attention};
}

std::string block_name(int64_t l) { return fmt::format("blocks.{}", l); }

Embedding::Spec embedding_spec(const ModelSpec& m, const TransformerPlan& plan) {
  return {.vocab_size = m.vocab_size,
          .width = m.width,
          .positions = m.learned_positions ? m.max_positions : 0,
          .init_std = m.init_std,
          .dropout = m.dropout.embedding,
          .scale = m.embedding_scale,
          .twin = m.tied_head || m.has_mtp() ? plan.other_end : -1};
}

// Makes the stream; of its gradient, the tables' come from it.
class EmbeddingLayer final : public AnyLayer {
 public:
  explicit EmbeddingLayer(const Embedding& embedding) : embedding_(embedding) {}
  std::unique_ptr<Saved> make_saved() const override { return std::make_unique<Rows>(); }
  void forward(Pass& p, Saved& s, Tensor, Tensor y) const override {
    embedding_.forward(p, static_cast<Rows&>(s).saved, y);
  }
  void dgrad(Pass&, Saved& s, Tensor dy, Tensor) const override { static_cast<Rows&>(s).dy = dy; }
  void wgrad(Pass& p, Saved& s) const override {
    const auto& rows = static_cast<Rows&>(s);
    embedding_.wgrad(p, rows.saved, rows.dy);
  }

 private:
  struct Rows final : Saved {
    Embedding::Saved saved;
    Tensor dy;  // [t, d]  till wgrad
  };
  const Embedding& embedding_;
};

// The loss is computed in dgrad, where its logits are.
class HeadLayer final : public AnyLayer {
 public:
  explicit HeadLayer(const LmHead& head) : head_(head) {}
  std::unique_ptr<Saved> make_saved() const override { return std::make_unique<Input>(); }
  void forward(Pass&, Saved& s, Tensor x, Tensor) const override { static_cast<Input&>(s).x = x; }
  void dgrad(Pass& p, Saved& s, Tensor, Tensor dx) const override {
    head_.loss_and_backward(p, static_cast<Input&>(s).x, dx);
  }
  void wgrad(Pass&, Saved&) const override {}

 private:
  struct Input final : Saved {
    Tensor x;  // [t, d]  till dgrad
  };
  const LmHead& head_;
};

}  // namespace

std::vector<ParamSpec> all_params(const ModelSpec& model) {
  ParamStore store(kF32, {});
  const Transformer declared(store, model, {});
  std::vector<ParamSpec> specs;
  for (const Param* p : store.params()) specs.push_back(p->spec());
  return specs;
}

Transformer::Transformer(ParamStore& params, const ModelSpec& spec, const TransformerPlan& plan)
    : spec_(spec), plan_(plan), params_(params) {
  if (spec.adapter) params_.adapt(*spec.adapter);
  if (spec.has_experts())
    routers_.emplace(RouterRecords::Layers{spec.num_layers, spec.has_mtp() ? 1 : 0}, spec.experts.count,
                     plan.layers.stream, plan.layers.capacity.drops);
  if (plan_.parts.empty()) plan_.parts = {{.blocks = {0, spec.num_layers}}};
  for (const ModelPart& part : plan_.parts) {
    chunks_.emplace_back();
    if (part.embedding) declare_embedding();
    declare_blocks(part);
    if (part.head) declare_head();
  }
}

// The table of such rotations, which is filled later.
const Tensor& Transformer::rope_table(const RopeSpec& spec) {
  for (const RopeTable& r : rope_tables_)
    if (r.spec == spec) return r.table;
  return rope_tables_.emplace_back(RopeTable{spec, {}}).table;
}

// Makes a layer that lives as long as the model.
template <class L, class... Args>
const L& Transformer::own(Args&&... args) {
  auto layer = std::make_unique<L>(std::forward<Args>(args)...);
  const L& made = *layer;
  layers_.push_back(std::move(layer));
  return made;
}

void Transformer::declare_embedding() {
  embedding_ = std::make_unique<Embedding>(params_, embedding_spec(spec_, plan_), plan_.layers);
  params_.used_together(embedding_->units());
  add(LayerKind::embedding, own<EmbeddingLayer>(*embedding_), embedding_->units());
}

void Transformer::declare_blocks(const ModelPart& part) {
  for (int64_t l = part.blocks.first; l < part.blocks.end(); ++l) {
    const std::string name = block_name(l);
    const Block& block =
        *blocks_.emplace_back(std::make_unique<Block>(params_, name, block_spec(l, spec_.layer(l)), block_plan(l)));
    const int unit = params_.close_unit(name, 2 + l);
    if (is_recomputed(l))
      add(LayerKind::block, own<LayerOf<Recompute<Block>>>(recomputed_.emplace_back(block)), {unit});
    else
      add(LayerKind::block, own<LayerOf<Block>>(block), {unit});
  }
}

LayerPlan Transformer::block_plan(int64_t l) const {
  LayerPlan plan = plan_.layers;
  if (plan_.recompute.empty()) return plan;
  const BlockRecompute again = plan_.recompute[size_t(l)];
  plan.keep_activations = again == BlockRecompute::none || again == BlockRecompute::full;
  plan.keep_attention = again == BlockRecompute::activations;
  return plan;
}

bool Transformer::is_recomputed(int64_t l) const {
  return plan_.recompute.empty() ? plan_.recompute_blocks : plan_.recompute[size_t(l)] == BlockRecompute::full;
}

Block::Spec Transformer::block_spec(int64_t l, const LayerSpec& layer) {
  const Tensor* table = layer.rope ? &rope_table(*layer.rope) : nullptr;
  using AnyAttentionSpec = decltype(Block::Spec::attention);
  Block::Spec spec{.norm = norm_spec(spec_, layer.norm, plan_.layers),
                   .attention = spec_.latent ? AnyAttentionSpec(attention_spec(spec_, *spec_.latent, table))
                                             : AnyAttentionSpec(attention_spec(spec_, layer, table)),
                   .mlp = mlp_spec(spec_, layer.mlp, spec_.ffn_width),
                   .norm_before = layer.norm_before,
                   .norm_behind = layer.norm_behind};
  if (layer.experts) spec.mlp = experts_spec(spec_, l, layer.mlp, routers());
  return spec;
}

// The embedding's table, as the open unit uses it. It may lie on another stage: then there is a copy, a unit by itself.
Param& Transformer::table_in_head(std::vector<int>& units) {
  if (embedding_ != nullptr) return params_.tie(embedding_->tokens_table());
  ParamSpec spec = Embedding::table_spec(embedding_spec(spec_, plan_), plan_.layers);
  spec.copy = true;
  Param& copy = params_.add(spec);
  units.push_back(params_.close_unit("embed in head", 0));
  return copy;
}

void Transformer::declare_head() {
  std::vector<int> units;
  const StreamNorm::Spec norm = norm_spec(spec_, spec_.norm, plan_.layers);
  Param* table = spec_.tied_head ? &table_in_head(units) : nullptr;
  LmHead::Spec head{.norm = norm,
                    .output = VocabularyHead::Spec{.vocab_size = spec_.vocab_size,
                                                   .width = spec_.width,
                                                   .table = table,
                                                   .init_std = spec_.init_std,
                                                   .softcap = spec_.logit_softcap}};
  if (spec_.head == HeadKind::score)
    head.output = ScoreHead::Spec{.name = "score", .width = spec_.width, .init_std = spec_.init_std};
  if (spec_.predicts_values)
    head.value = ScoreHead::Spec{.name = "value", .width = spec_.width, .init_std = spec_.init_std, .bias = true};
  head_ = std::make_unique<LmHead>(params_, head, plan_.layers);
  units.push_back(params_.close_unit("head", 2 + spec_.num_layers));
  if (spec_.has_mtp()) {
    if (table == nullptr) table = &table_in_head(units);
    head_->predict_further(params_,
                           {.name = "mtp",
                            .block_name = block_name(spec_.num_layers),
                            .norm = norm,
                            .block = block_spec(spec_.num_layers, spec_.mtp_block),
                            .table = table,
                            .embedding_scale = spec_.embedding_scale,
                            .init_std = spec_.init_std,
                            .loss_coef = spec_.mtp_loss_coef},
                           plan_.layers);
    units.push_back(params_.close_unit("mtp", 3 + spec_.num_layers));
  }
  params_.used_together(units);
  add(LayerKind::head, own<HeadLayer>(*head_), units);
}

void Transformer::allocate_constants(Arena& constants, Precision precision) {
  for (RopeTable& r : rope_tables_) {
    const int64_t width = r.spec.width > 0 ? r.spec.width : spec_.rope_width();
    r.table = constants.alloc(precision.stat, {plan_.max_positions, width});
    fill_rope_table(r.spec, r.table, *constants.memory());
  }
}

std::vector<KvCache> Transformer::make_caches(Arena& arena, Precision precision, int64_t rows) const {
  std::vector<KvCache> caches;
  for (const auto& block : blocks_) caches.push_back(block->attention().make_cache(arena, precision.compute, rows));
  return caches;
}

void Transformer::allocate_records(Arena& records, Precision precision) {
  if (routers_) routers_->allocate(records, precision.stat);
}

void Transformer::decode(Pass& p, LayerAt at, const std::vector<KvCache>& caches, const CacheUse& use,
                         const Block::Streams& streams) const {
  const ModelPart& part = plan_.parts[size_t(at.chunk)];
  if (part.embedding && at.layer == 0) {
    Embedding::Saved rows;
    return embedding_->forward(p, rows, streams.y);
  }
  size_t block = size_t(at.layer - (part.embedding ? 1 : 0));
  for (int c = 0; c < at.chunk; ++c) block += size_t(plan_.parts[size_t(c)].blocks.count);
  blocks_[block]->decode(p, caches[block], use, streams);
}

// The last tokens lie on one rank of cp each: with zeros on the others, their sum is all of them on each.
void Transformer::logits(Pass& p, const CacheUse& use, Tensor x, Tensor logits) const {
  Scope temporaries(*p.scratch);
  const Tensor ends = p.compute(p.scratch, {int64_t(use.ends.size()), x.cols()}, x.place);
  p.be.run(Zero{.x = ends});
  for (size_t i = 0; i < use.ends.size(); ++i)
    if (use.ends[i] >= 0) p.be.run(Copy{.from = x.slice_rows(use.ends[i], 1), .to = ends.slice_rows(int64_t(i), 1)});
  head_->logits(p, sum_over_keepers(p.mesh, ends, *p.scratch), logits);
}

}  // namespace weft
