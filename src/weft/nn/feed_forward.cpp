#include "weft/nn/feed_forward.h"

namespace weft {
namespace {

auto& saved(FeedForward::Saved& s, const Mlp&) { return s.mlp; }
auto& saved(FeedForward::Saved& s, const Experts&) { return s.experts; }
const auto& saved(const FeedForward::Saved& s, const Mlp&) { return s.mlp; }
const auto& saved(const FeedForward::Saved& s, const Experts&) { return s.experts; }

std::variant<Mlp, Experts> made(ParamStore& params, const std::string& name, const FeedForward::Spec& spec,
                                const LayerPlan& plan) {
  if (const auto* mlp = std::get_if<Mlp::Spec>(&spec)) return Mlp(params, name, *mlp, plan);
  return Experts(params, name, std::get<Experts::Spec>(spec), plan);
}

}  // namespace

FeedForward::FeedForward(ParamStore& params, const std::string& name, const Spec& spec, const LayerPlan& plan)
    : layer_(made(params, name, spec, plan)) {}

Tensor FeedForward::forward(Pass& p, Saved& s, Tensor h) const {
  return std::visit([&](const auto& layer) { return layer.forward(p, saved(s, layer), h); }, layer_);
}

Tensor FeedForward::dgrad(Pass& p, Saved& s, Tensor dy) const {
  return std::visit([&](const auto& layer) { return layer.dgrad(p, saved(s, layer), dy); }, layer_);
}

void FeedForward::wgrad(Pass& p, const Saved& s, Tensor h) const {
  std::visit([&](const auto& layer) { layer.wgrad(p, saved(s, layer), h); }, layer_);
}

}  // namespace weft
