#include "weft/nn/block.h"

namespace weft {
namespace {

std::unique_ptr<AnyAttention> make_attention(ParamStore& params, const std::string& name, const Block::Spec& spec,
                                             const LayerPlan& plan) {
  if (const auto* latent = std::get_if<LatentAttention::Spec>(&spec.attention))
    return std::make_unique<AttentionOf<LatentAttention>>(params, name, *latent, plan);
  return std::make_unique<AttentionOf<SelfAttention>>(params, name, std::get<SelfAttention::Spec>(spec.attention),
                                                      plan);
}

}  // namespace

Block::Block(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan)
    : attn_name_(name + ".attn"),
      mlp_name_(name + ".mlp"),
      keep_(plan.keep_activations),
      attn_norm_(params, name + ".attn_norm", spec.norm, spec.norm_before),
      attn_(make_attention(params, name + ".attn", spec, plan)),
      attn_added_(params, name + ".attn_added_norm", spec.norm, spec.norm_behind),
      mlp_norm_(params, name + ".mlp_norm", spec.norm, spec.norm_before),
      mlp_(params, name + ".mlp", spec.mlp, plan),
      mlp_added_(params, name + ".mlp_added_norm", spec.norm, spec.norm_behind) {}

void Block::forward(Pass& p, Saved& s, Tensor x, Tensor y) const {
  Arena* kept = keep_ ? p.till_wgrad : p.scratch;
  s.middle = p.compute(p.till_dgrad, {x.rows(), x.cols()}, x.place);
  Scope temporaries(*p.scratch);
  Tensor attn_h = p.compute(kept, {x.rows(), x.cols()}, x.place);
  Tensor mlp_h = p.compute(kept, {x.rows(), x.cols()}, x.place);
  {
    Region region(p.be, attn_name_);
    Scope inner(*p.scratch);
    attn_norm_.forward(p, s.attn_norm, x, attn_h);
    if (!s.attn) s.attn = attn_->make_saved();
    Tensor added = attn_added_.forward(p, s.attn_added, attn_->forward(p, *s.attn, attn_h));
    mlp_norm_.forward_add(p, s.mlp_norm, x, added, s.middle, mlp_h);
  }
  {
    Region region(p.be, mlp_name_);
    Scope inner(*p.scratch);
    Tensor added = mlp_added_.forward(p, s.mlp_added, mlp_.forward(p, s.mlp, mlp_h));
    p.be.run(Add{.x = s.middle, .y = added, .out = y});
  }
  s.attn_h = keep_ ? attn_h : Tensor{};
  s.mlp_h = keep_ ? mlp_h : Tensor{};
}

void Block::dgrad(Pass& p, Saved& s, Tensor dy, Tensor dx) const {
  Tensor dmiddle = p.compute(p.dgrad_till_wgrad, {dy.rows(), dy.cols()}, dy.place);
  {
    Region region(p.be, mlp_name_);
    Scope temporaries(*p.scratch);
    Tensor dh = mlp_.dgrad(p, s.mlp, mlp_added_.dgrad(p, s.mlp_added, dy));
    mlp_norm_.dgrad(p, s.mlp_norm, dh, dy, dmiddle);
  }
  {
    Region region(p.be, attn_name_);
    Scope temporaries(*p.scratch);
    Tensor dh = attn_->dgrad(p, *s.attn, attn_added_.dgrad(p, s.attn_added, dmiddle));
    attn_norm_.dgrad(p, s.attn_norm, dh, dmiddle, dx);
  }
  if (keep_) return;
  s.attn_h = p.compute(p.dgrad_till_wgrad, {dy.rows(), dy.cols()}, s.middle.place);
  s.mlp_h = p.compute(p.dgrad_till_wgrad, {dy.rows(), dy.cols()}, s.middle.place);
  attn_norm_.again(p, s.attn_norm, s.attn_h);
  mlp_norm_.again(p, s.mlp_norm, s.mlp_h);
}

void Block::wgrad(Pass& p, Saved& s) const {
  {
    Region region(p.be, mlp_name_);
    Scope temporaries(*p.scratch);
    mlp_added_.wgrad(p, s.mlp_added);
    mlp_.wgrad(p, s.mlp, s.mlp_h);
    mlp_norm_.wgrad(p, s.mlp_norm);
  }
  Region region(p.be, attn_name_);
  Scope temporaries(*p.scratch);
  attn_added_.wgrad(p, s.attn_added);
  attn_->wgrad(p, *s.attn, s.attn_h);
  attn_norm_.wgrad(p, s.attn_norm);
}

void Block::decode(Pass& p, const KvCache& cache, const CacheUse& use, const Streams& between) const {
  const auto& [x, y] = between;
  Scope temporaries(*p.scratch);
  Saved s;
  Tensor h = p.compute(p.scratch, {x.rows(), x.cols()}, x.place);
  Tensor middle = p.compute(p.scratch, {x.rows(), x.cols()}, x.place);
  attn_norm_.forward(p, s.attn_norm, x, h);
  Tensor added = attn_added_.forward(p, s.attn_added, attn_->decode(p, cache, use, h));
  mlp_norm_.forward_add(p, s.mlp_norm, x, added, middle, h);
  added = mlp_added_.forward(p, s.mlp_added, mlp_.forward(p, s.mlp, h));
  p.be.run(Add{.x = middle, .y = added, .out = y});
}

}  // namespace weft
