#include "weft/models/transformer.h"

#include "weft/models/rope_table.h"

namespace weft {
namespace {

StreamNorm::Spec norm_spec(const ModelSpec& m, const LayerPlan& plan) {
  return {.width = m.width, .layer_norm = m.norm == NormKind::layer_norm, .eps = m.norm_eps, .whole = plan.whole()};
}

Mlp::Act act_of(MlpKind kind) {
  if (kind == MlpKind::swiglu) return Mlp::Act::swiglu;
  return kind == MlpKind::gelu_erf ? Mlp::Act::gelu_erf : Mlp::Act::gelu_tanh;
}

Block::Spec block_spec(const ModelSpec& m, const LayerPlan& plan, int64_t layer, const Tensor* rope_table) {
  const double residual_std = m.init_std * m.residual_init_scale;
  return {.norm = norm_spec(m, plan),
          .attention = {.width = m.width,
                        .heads = m.num_heads,
                        .kv_heads = m.num_kv_heads,
                        .head_dim = m.head_dim,
                        .window = m.window.empty() ? 0 : m.window[size_t(layer)],
                        .qkv_bias = m.qkv_bias,
                        .out_bias = m.attention_out_bias,
                        .qk_norm = m.qk_norm,
                        .norm_eps = m.norm_eps,
                        .rope_table = rope_table,
                        .init_std = m.init_std,
                        .out_init_std = residual_std,
                        .dropout = m.dropout.hidden,
                        .attention_dropout = m.dropout.attention},
          .mlp = {.width = m.width,
                  .inner = m.ffn_width,
                  .act = act_of(m.mlp),
                  .bias = m.mlp_bias,
                  .init_std = m.init_std,
                  .down_init_std = residual_std,
                  .dropout = m.dropout.hidden}};
}

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
  embedding_ = std::make_unique<Embedding>(params,
                                           Embedding::Spec{.vocab_size = spec.vocab_size,
                                                           .width = spec.width,
                                                           .positions = spec.learned_positions ? spec.max_positions : 0,
                                                           .init_std = spec.init_std,
                                                           .dropout = spec.dropout.embedding},
                                           plan.layers);
  embedding_unit_ = params.close_unit("embed");
  first_block_unit_ = params.num_units();
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    const std::string name = fmt::format("blocks.{}", l);
    const Tensor* table = spec.rope ? &rope_table_ : nullptr;
    plain_blocks_.push_back(
        std::make_unique<Block>(params, name, block_spec(spec, plan.layers, l, table), plan.layers));
    params.close_unit(name);
    if (plan.recompute_blocks) {
      blocks_.push_back(std::make_unique<LayerOf<Recompute<Block>>>(recomputed_.emplace_back(*plain_blocks_.back())));
    } else {
      blocks_.push_back(std::make_unique<LayerOf<Block>>(*plain_blocks_.back()));
    }
  }
  head_ = std::make_unique<LmHead>(params,
                                   LmHead::Spec{.norm = norm_spec(spec, plan.layers),
                                                .vocab_size = spec.vocab_size,
                                                .tied_to = spec.tied_head ? &embedding_->tokens_table() : nullptr,
                                                .init_std = spec.init_std},
                                   plan.layers);
  head_unit_ = params.close_unit("head");
}

void Transformer::allocate_constants(Arena& constants, Precision precision) {
  if (!spec_.rope) return;
  rope_table_ = constants.alloc(precision.stat, {plan_.max_positions, spec_.head_dim});
  fill_rope_table(*spec_.rope, rope_table_);
}

Transformer::Saved Transformer::make_saved() const {
  Saved s;
  for (const auto& block : blocks_) s.blocks.push_back(block->make_saved());
  s.stream.resize(blocks_.size() + 1);
  s.gradient.resize(blocks_.size() + 1);
  return s;
}

Tensor Transformer::stream(const Pass& p, Arena* arena) const {
  return p.compute(arena, {p.batch.stream.count, spec_.width}, tokens(plan_.layers.stream));
}

void Transformer::forward(Pass& p, Saved& s) const {
  s.stream[0] = stream(p, p.till_dgrad);
  params_.fetch(embedding_unit_);
  embedding_->forward(p, s.stream[0]);
  params_.release(embedding_unit_);
  for (size_t l = 0; l < blocks_.size(); ++l) {
    s.stream[l + 1] = stream(p, p.till_dgrad);
    forward_block(p, l, *s.blocks[l], s.stream[l], s.stream[l + 1]);
  }
}

void Transformer::forward_block(Pass& p, size_t block, AnyLayer::Saved& s, Tensor x, Tensor y) const {
  const int unit = first_block_unit_ + int(block);
  params_.fetch(unit);
  blocks_[block]->forward(p, s, x, y);
  params_.release(unit);
}

void Transformer::backward(Pass& p, Saved& s) const {
  Scope gradients(*p.dgrad_till_wgrad);
  Tensor dy = stream(p, p.dgrad_till_wgrad), dx = stream(p, p.dgrad_till_wgrad);
  head_backward(p, s, dy);
  for (size_t l = blocks_.size(); l-- > 0;) {
    Scope block(*p.dgrad_till_wgrad);
    const int unit = first_block_unit_ + int(l);
    params_.fetch(unit);
    blocks_[l]->dgrad(p, *s.blocks[l], dy, dx);
    params_.release(unit);
    block_wgrad(p, l, *s.blocks[l]);
    std::swap(dx, dy);
  }
  embedding_wgrad(p, dy);
}

void Transformer::dgrad(Pass& p, Saved& s) const {
  s.gradient[blocks_.size()] = stream(p, p.dgrad_till_wgrad);
  head_backward(p, s, s.gradient[blocks_.size()]);
  for (size_t l = blocks_.size(); l-- > 0;) {
    const int unit = first_block_unit_ + int(l);
    s.gradient[l] = stream(p, p.dgrad_till_wgrad);
    params_.fetch(unit);
    blocks_[l]->dgrad(p, *s.blocks[l], s.gradient[l + 1], s.gradient[l]);
    params_.release(unit);
  }
}

void Transformer::wgrad(Pass& p, Saved& s) const {
  for (size_t l = blocks_.size(); l-- > 0;) block_wgrad(p, l, *s.blocks[l]);
  embedding_wgrad(p, s.gradient[0]);
}

void Transformer::block_wgrad(Pass& p, size_t block, AnyLayer::Saved& s) const {
  const int unit = first_block_unit_ + int(block);
  params_.open_grads(p.be, unit, p.batch.index);
  blocks_[block]->wgrad(p, s);
  params_.flush(p.be, unit, p.batch.index, true);
}

void Transformer::head_backward(Pass& p, Saved& s, Tensor dx) const {
  params_.fetch(head_unit_);
  params_.open_grads(p.be, head_unit_, p.batch.index);
  head_->loss_and_backward(p, s.stream.back(), dx);
  params_.flush(p.be, head_unit_, p.batch.index, true);
  params_.release(head_unit_);
}

void Transformer::embedding_wgrad(Pass& p, Tensor dx) const {
  params_.open_grads(p.be, embedding_unit_, p.batch.index);
  embedding_->wgrad(p, dx);
  params_.flush(p.be, embedding_unit_, p.batch.index, true);
}

void Transformer::evaluate(Pass& p, Tensor nll) const {
  Scope temporaries(*p.scratch);
  Tensor x = stream(p, p.scratch), y = stream(p, p.scratch);
  const auto fetched = [&](int unit, const auto& layer) {
    params_.fetch(unit);
    layer();
    params_.release(unit);
  };
  fetched(embedding_unit_, [&] { embedding_->forward(p, x); });
  for (size_t l = 0; l < plain_blocks_.size(); ++l) {
    Scope layer(*p.scratch);
    Block::Saved unused;
    fetched(first_block_unit_ + int(l), [&] { plain_blocks_[l]->forward(p, unused, x, y); });
    std::swap(x, y);
  }
  fetched(head_unit_, [&] { head_->token_losses(p, x, nll); });
}

void Transformer::decode(Pass& p, std::vector<KvCache>& caches, Tensor logits) const {
  Scope temporaries(*p.scratch);
  Tensor x = stream(p, p.scratch), y = stream(p, p.scratch);
  embedding_->forward(p, x);
  for (size_t l = 0; l < plain_blocks_.size(); ++l) {
    plain_blocks_[l]->decode(p, caches[l], x, y);
    std::swap(x, y);
  }
  head_->logits(p, x.slice_rows(x.rows() - 1, 1), logits);
}

}  // namespace weft
