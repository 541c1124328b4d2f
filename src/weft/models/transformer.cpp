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

Embedding::Spec embedding_spec(const ModelSpec& m, const TransformerPlan& plan) {
  return {.vocab_size = m.vocab_size,
          .width = m.width,
          .positions = m.learned_positions ? m.max_positions : 0,
          .init_std = m.init_std,
          .dropout = m.dropout.embedding,
          .twin = m.tied_head ? plan.other_end : -1};
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
  if (plan_.parts.empty()) plan_.parts = {{.blocks = {0, spec.num_layers}}};
  for (const ModelPart& part : plan_.parts) {
    chunks_.push_back({part, plain_blocks_.size()});
    if (part.embedding) {
      embedding_ = std::make_unique<Embedding>(params, embedding_spec(spec, plan_), plan_.layers);
      params.used_together(embedding_->units());
    }
    declare_blocks(part);
    if (part.head) declare_head();
  }
}

void Transformer::declare_blocks(const ModelPart& part) {
  for (int64_t l = part.blocks.first; l < part.blocks.end(); ++l) {
    const std::string name = fmt::format("blocks.{}", l);
    const Tensor* table = spec_.rope ? &rope_table_ : nullptr;
    plain_blocks_.push_back(
        std::make_unique<Block>(params_, name, block_spec(spec_, plan_.layers, l, table), plan_.layers));
    block_units_.push_back(params_.close_unit(name, 2 + l));
    if (plan_.recompute_blocks) {
      blocks_.push_back(std::make_unique<LayerOf<Recompute<Block>>>(recomputed_.emplace_back(*plain_blocks_.back())));
    } else {
      blocks_.push_back(std::make_unique<LayerOf<Block>>(*plain_blocks_.back()));
    }
  }
}

// A head that shares the embedding's table, which may lie on another stage: then it has a copy.
void Transformer::declare_head() {
  Param* table = nullptr;
  if (spec_.tied_head && embedding_ == nullptr) {
    ParamSpec copy = Embedding::table_spec(embedding_spec(spec_, plan_), plan_.layers);
    copy.copy = true;
    table = &params_.add(copy);
    head_units_.push_back(params_.close_unit("embed in head", 0));
  } else if (spec_.tied_head) {
    table = &params_.tie(embedding_->tokens_table());
  }
  head_ = std::make_unique<LmHead>(params_,
                                   LmHead::Spec{.norm = norm_spec(spec_, plan_.layers),
                                                .vocab_size = spec_.vocab_size,
                                                .table = table,
                                                .init_std = spec_.init_std},
                                   plan_.layers);
  head_units_.push_back(params_.close_unit("head", 2 + spec_.num_layers));
  params_.used_together(head_units_);
}

void Transformer::allocate_constants(Arena& constants, Precision precision) {
  if (!spec_.rope) return;
  rope_table_ = constants.alloc(precision.stat, {plan_.max_positions, spec_.head_dim});
  fill_rope_table(*spec_.rope, rope_table_, *constants.memory());
}

Transformer::Saved Transformer::make_saved(int chunk) const {
  Saved s;
  const size_t first = chunks_[size_t(chunk)].first;
  for (size_t l = 0; l < blocks_of(chunk); ++l) s.blocks.push_back(blocks_[first + l]->make_saved());
  s.stream.resize(blocks_of(chunk) + 1);
  s.gradient.resize(blocks_of(chunk) + 1);
  return s;
}

Tensor Transformer::stream(const Pass& p, Arena* arena) const {
  return p.compute(arena, {p.batch.stream.count, spec_.width}, tokens(plan_.layers.stream));
}

// `next`: what will be fetched after them.
template <class F>
void Transformer::fetched(const std::vector<int>& units, const std::vector<int>& next, const F& f) const {
  for (const int unit : units) params_.fetch(unit);
  for (const int unit : next) params_.prefetch(unit);
  f();
  for (const int unit : units) params_.release(unit);
}

Tensor Transformer::forward(Pass& p, Saved& s, int chunk, Tensor x) const {
  const size_t first = chunks_[size_t(chunk)].first;
  if (part(chunk).embedding) fetched(embedding_->units(), units_at(chunk, 0), [&] { embedding_->forward(p, x); });
  s.stream[0] = x;
  for (size_t l = 0; l < blocks_of(chunk); ++l) {
    s.stream[l + 1] = stream(p, p.till_dgrad);
    fetched(units_at(chunk, l), units_at(chunk, l + 1),
            [&] { blocks_[first + l]->forward(p, *s.blocks[l], s.stream[l], s.stream[l + 1]); });
  }
  return s.stream.back();
}

// The units of a chunk's block; behind the last block: of the head, if the chunk has it.
std::vector<int> Transformer::units_at(int chunk, size_t block) const {
  if (block < blocks_of(chunk)) return {block_units_[chunks_[size_t(chunk)].first + block]};
  return part(chunk).head ? head_units_ : std::vector<int>{};
}

std::vector<int> Transformer::units_before(int chunk, size_t block) const {
  return block > 0 ? units_at(chunk, block - 1) : std::vector<int>{};
}

void Transformer::backward(Pass& p, Saved& s, int chunk, Tensor dy, Tensor dx) const {
  Scope gradients(*p.dgrad_till_wgrad);
  const size_t first = chunks_[size_t(chunk)].first, n = blocks_of(chunk);
  Tensor now = n == 0 && part(chunk).head ? dx : dy, other = n > 1 ? stream(p, p.dgrad_till_wgrad) : Tensor{};
  if (part(chunk).head) head_backward(p, chunk, s.stream.back(), now);
  for (size_t l = n; l-- > 0;) {
    Scope block(*p.dgrad_till_wgrad);
    Tensor next = l == 0 ? dx : other;
    fetched(units_at(chunk, l), units_before(chunk, l), [&] { blocks_[first + l]->dgrad(p, *s.blocks[l], now, next); });
    block_wgrad(p, first + l, *s.blocks[l]);
    other = now;
    now = next;
  }
  if (part(chunk).embedding) embedding_wgrad(p, now);
}

void Transformer::dgrad(Pass& p, Saved& s, int chunk, Tensor dy, Tensor dx) const {
  const size_t first = chunks_[size_t(chunk)].first, n = blocks_of(chunk);
  s.gradient[n] = n == 0 && part(chunk).head ? dx : dy;
  if (part(chunk).head) head_backward(p, chunk, s.stream.back(), s.gradient[n]);
  for (size_t l = n; l-- > 0;) {
    s.gradient[l] = l == 0 ? dx : stream(p, p.dgrad_till_wgrad);
    fetched(units_at(chunk, l), units_before(chunk, l),
            [&] { blocks_[first + l]->dgrad(p, *s.blocks[l], s.gradient[l + 1], s.gradient[l]); });
  }
}

void Transformer::wgrad(Pass& p, Saved& s, int chunk) const {
  const size_t first = chunks_[size_t(chunk)].first;
  for (size_t l = blocks_of(chunk); l-- > 0;) block_wgrad(p, first + l, *s.blocks[l]);
  if (part(chunk).embedding) embedding_wgrad(p, s.gradient[0]);
}

void Transformer::block_wgrad(Pass& p, size_t block, AnyLayer::Saved& s) const {
  const int unit = unit_of(block);
  params_.open_grads(p.be, unit, p.batch.index);
  blocks_[block]->wgrad(p, s);
  params_.flush(p.be, unit, p.batch.index, true);
}

void Transformer::head_backward(Pass& p, int chunk, Tensor x, Tensor dx) const {
  fetched(head_units_, units_before(chunk, blocks_of(chunk)), [&] {
    for (const int unit : head_units_) params_.open_grads(p.be, unit, p.batch.index);
    head_->loss_and_backward(p, x, dx);
    for (const int unit : head_units_) params_.flush(p.be, unit, p.batch.index, true);
  });
}

void Transformer::embedding_wgrad(Pass& p, Tensor dx) const {
  for (const int unit : embedding_->units()) params_.open_grads(p.be, unit, p.batch.index);
  embedding_->wgrad(p, dx);
  for (const int unit : embedding_->units()) params_.flush(p.be, unit, p.batch.index, true);
}

void Transformer::evaluate(Pass& p, int chunk, Tensor x, Tensor y, Tensor nll) const {
  Scope temporaries(*p.scratch);
  const size_t first = chunks_[size_t(chunk)].first;
  Tensor other = stream(p, p.scratch);
  if (part(chunk).embedding) fetched(embedding_->units(), units_at(chunk, 0), [&] { embedding_->forward(p, x); });
  for (size_t l = 0; l < blocks_of(chunk); ++l) {
    Scope layer(*p.scratch);
    Block::Saved unused;
    fetched(units_at(chunk, l), units_at(chunk, l + 1),
            [&] { plain_blocks_[first + l]->forward(p, unused, x, other); });
    std::swap(x, other);
  }
  if (part(chunk).head)
    fetched(head_units_, {}, [&] { head_->token_losses(p, x, nll); });
  else if (x.data != y.data || x.data == nullptr)
    p.be.run(Copy{.from = x, .to = y});
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
