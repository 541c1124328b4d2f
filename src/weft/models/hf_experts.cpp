#include "weft/models/hf_experts.h"

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr JsonFields::IntRange kExpertCount{.min = 1, .max = kMostExperts};
constexpr JsonFields::IntRange kInner{.min = 1, .max = int64_t{1} << 24};

void read_chosen(HfFields& f, ExpertsSpec& e, int64_t usual) {
  e.chosen = f.integer("num_experts_per_tok", kExpertCount, usual);
  if (e.chosen > e.count)
    throw ConfigError(fmt::format("{}: of {} experts a token cannot have {}", f.fields().where("num_experts_per_tok"),
                                  e.count, e.chosen));
}

// Other programs add this loss only where they are told to look at the router's logits.
void read_losses(HfFields& f, ExpertsSpec& e) {
  const double coef = f.number("router_aux_loss_coef", {}, 0);
  e.aux_loss_coef = f.flag("output_router_logits", false) ? coef : 0;
}

void read_mixtral(HfFields& f, ModelSpec& m) {
  ExpertsSpec& e = m.experts;
  e.count = f.integer("num_local_experts", kExpertCount, 8);
  read_chosen(f, e, 2);
  e.width = m.ffn_width;
  e.routing.normalise = true;
  if (f.number("router_jitter_noise", {}, 0) != 0) f.refuse("router_jitter_noise", "weft adds no noise to logits");
}

// Qwen2-MoE and Qwen3-MoE.
void read_qwen(HfFields& f, ModelSpec& m) {
  const bool second = m.family == Family::qwen2_moe;
  ExpertsSpec& e = m.experts;
  e.count = f.integer("num_experts", kExpertCount, second ? 60 : 128);
  read_chosen(f, e, second ? 4 : 8);
  e.width = f.integer("moe_intermediate_size", kInner, second ? 1408 : 768);
  e.routing.normalise = f.flag("norm_topk_prob", false);
  if (!second) return;
  e.shared_width = f.integer("shared_expert_intermediate_size", {.min = 0, .max = kInner.max}, 5632);
  e.shared_gate = e.shared_width > 0;
}

// Every decoder_sparse_step-th block has experts, but for those that mlp_only_layers names.
void read_sparse_blocks(HfFields& f, ModelSpec& m) {
  const int64_t step = f.integer("decoder_sparse_step", {}, 1);
  for (int64_t l = 0; l < m.num_layers; ++l) m.layers[size_t(l)].experts = (l + 1) % step == 0;
  if (!f.has("mlp_only_layers")) return;
  const nlohmann::json& dense = f.value("mlp_only_layers");
  if (!dense.is_array()) f.refuse("mlp_only_layers", "expected a list of layers");
  for (const nlohmann::json& layer : dense) {
    if (!layer.is_number_integer()) f.refuse("mlp_only_layers", "expected a list of layers");
    if (const auto l = layer.get<int64_t>(); l >= 0 && l < m.num_layers) m.layers[size_t(l)].experts = false;
  }
}

}  // namespace

void read_experts(HfFields& fields, ModelSpec& model) {
  const bool mixtral = model.family == Family::mixtral;
  if (!mixtral && model.family != Family::qwen2_moe && model.family != Family::qwen3_moe) return;
  mixtral ? read_mixtral(fields, model) : read_qwen(fields, model);
  read_losses(fields, model.experts);
  for (LayerSpec& layer : model.layers) layer.experts = true;
  if (!mixtral) read_sparse_blocks(fields, model);
}

}  // namespace weft
