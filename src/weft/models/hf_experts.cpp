#include "weft/models/hf_experts.h"

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr JsonFields::IntRange kExpertCount{.min = 1, .max = kMostExperts};
constexpr JsonFields::IntRange kInner{.min = 1, .max = int64_t{1} << 24};

void read_chosen(HfFields& f, ExpertsSpec& e, std::optional<int64_t> usual) {
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

// The softmax over the chosen experts alone is that over all of them, divided by its sum.
void read_gpt_oss_experts(HfFields& f, ModelSpec& m) {
  ExpertsSpec& e = m.experts;
  e.count = f.integer("num_local_experts", kExpertCount, 128);
  const int64_t usual = f.integer("experts_per_token", kExpertCount, 4);
  read_chosen(f, e, usual);
  if (f.has("experts_per_token") && e.chosen != usual)
    f.refuse("experts_per_token", "num_experts_per_tok says something else");
  e.width = m.ffn_width;
  e.routing.normalise = e.bias = true;
  e.clamp = f.number("swiglu_limit", {.min = 1e-6}, 7);
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

// Keys that say nothing where no layer has experts.
constexpr const char* kDeepseekKeys[] = {"moe_intermediate_size",
                                         "n_shared_experts",
                                         "num_experts_per_tok",
                                         "n_group",
                                         "topk_group",
                                         "scoring_func",
                                         "topk_method",
                                         "norm_topk_prob",
                                         "routed_scaling_factor",
                                         "moe_layer_freq",
                                         "aux_loss_alpha",
                                         "seq_aux"};

void require(HfFields& f, const char* key, std::string_view value) {
  if (f.string(key, std::string(value)) != value) f.refuse(key, fmt::format("weft does {}", value));
}

// DeepSeek-V2, 2024, sec. 2.2: a token's experts are of the groups with the best experts. DeepSeek-V3: sec. 2.1.2.
void read_deepseek_groups(HfFields& f, ExpertsSpec& e, bool third) {
  const bool grouped = third || f.string("topk_method", "greedy") == "group_limited_greedy";
  if (third)
    require(f, "topk_method", "noaux_tc");
  else if (!grouped && f.string("topk_method", "greedy") != "greedy")
    f.refuse("topk_method", "weft does greedy and group_limited_greedy");
  for (const char* key : {"n_group", "topk_group"}) f.take(key);
  if (!grouped) return;
  Routing& r = e.routing;
  constexpr JsonFields::IntRange kGroups{.min = 1, .max = kMostExpertGroups};
  const auto groups = [&](const char* key, int64_t usual) {
    return third ? f.integer(key, kGroups, usual) : f.integer(key, kGroups);
  };
  r.groups = groups("n_group", 8), r.top_groups = groups("topk_group", 4), r.by_two = third;
  if (e.count % r.groups != 0) f.refuse("n_group", fmt::format("{} experts are not so many equal groups", e.count));
  if (r.top_groups > r.groups) f.refuse("topk_group", fmt::format("there are {} groups", r.groups));
  if (const int64_t open = e.count / r.groups * r.top_groups; e.chosen > open)
    f.refuse("num_experts_per_tok", fmt::format("topk_group groups have {} experts", open));
}

void read_deepseek_routing(HfFields& f, ExpertsSpec& e, bool third) {
  Routing& r = e.routing;
  require(f, "scoring_func", third ? "sigmoid" : "softmax");
  r.sigmoid = third;
  r.normalise = f.flag("norm_topk_prob", third);
  r.scale = f.number("routed_scaling_factor", {.min = 1e-6}, third ? 2.5 : 1);
  // As published: V2's weights are divided by their sum or scaled, and one alone is never divided.
  if (!third && e.chosen == 1) r.normalise = false;
  if (!third && r.normalise) r.scale = 1;
  e.correction = third;
  read_deepseek_groups(f, e, third);
}

void read_deepseek_losses(HfFields& f, ExpertsSpec& e) {
  const double coef = f.number("aux_loss_alpha", {}, 0);
  (f.flag("seq_aux", true) ? e.aux_loss_coef : e.global_aux_loss_coef) = coef;
}

// Absent, there are as many as in the model that transformers takes for the usual one; null, there are none.
void read_deepseek_experts(HfFields& f, ModelSpec& m) {
  const bool third = m.family == Family::deepseek_v3;
  const int64_t first = f.integer("first_k_dense_replace", {.min = 0}, third ? 3 : 0);
  ExpertsSpec& e = m.experts;
  const JsonFields::IntRange any_count{.min = 0, .max = kMostExperts};
  if (f.absent("n_routed_experts") || f.has("n_routed_experts"))
    e.count = f.integer("n_routed_experts", any_count, third ? 256 : 64);
  const int64_t last = m.num_layers - (m.unread_layers > 0 ? 0 : 1);  // layer, or the module behind it
  if (e.count == 0 || first > last) {
    for (const char* key : kDeepseekKeys) f.take(key);
    e = {};
    return;
  }
  read_chosen(f, e, third ? std::optional<int64_t>(8) : std::nullopt);
  e.width = f.integer("moe_intermediate_size", kInner, third ? 2048 : 1407);
  if (f.absent("n_shared_experts") || f.has("n_shared_experts"))
    e.shared_width = e.width * f.integer("n_shared_experts", any_count, third ? 1 : 2);
  read_deepseek_routing(f, e, third);
  read_deepseek_losses(f, e);
  const int64_t every = f.integer("moe_layer_freq", {}, 1);
  const auto has_experts = [&](int64_t l) { return l >= first && l % every == 0; };
  for (int64_t l = 0; l < m.num_layers; ++l) {
    LayerSpec& layer = m.layers.emplace_back(LayerSpec{m.norm, m.mlp, m.rope});
    layer.experts = has_experts(l);
  }
  m.mtp_block.experts = has_experts(m.num_layers);
}

}  // namespace

void read_experts(HfFields& fields, ModelSpec& model) {
  if (model.family == Family::deepseek_v2 || model.family == Family::deepseek_v3)
    return read_deepseek_experts(fields, model);
  const bool mixtral = model.family == Family::mixtral;
  const bool oss = model.family == Family::gpt_oss,
             qwen = model.family == Family::qwen2_moe || model.family == Family::qwen3_moe;
  if (!mixtral && !oss && !qwen) return;
  if (mixtral) read_mixtral(fields, model);
  if (oss) read_gpt_oss_experts(fields, model);
  if (qwen) read_qwen(fields, model);
  read_losses(fields, model.experts);
  for (LayerSpec& layer : model.layers) layer.experts = true;
  if (qwen) read_sparse_blocks(fields, model);
}

}  // namespace weft
