// The models of the layout matrix: small ones of every family, by names.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace weft::testing {

inline constexpr int kBlocks = 4;

// What families have that others have not.
inline std::string extras_of(const std::string& model) {
  if (model == "mistral") return R"(, "sliding_window": 5)";
  if (model == "phi3")
    return R"(, "partial_rotary_factor": 0.5, "original_max_position_embeddings": 8,
    "rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [3]})";
  if (model == "gemma2") return R"(, "sliding_window": 5, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 1)";
  if (model == "gemma3")
    return R"(, "sliding_window": 5, "sliding_window_pattern": 2, "rope_scaling": {"rope_type": "linear", "factor": 8})";
  return "";
}

// Experts: Mixtral's with every block, and losses of sequences; Qwen2-MoE's beside a shared one in every other block;
// Qwen3-MoE's with losses of the whole batch; DeepSeek's behind a dense block, beside shared ones, in groups; gpt-oss's
// with biases and clamped units, of which many are beyond the limit.
inline std::string config_of_experts(const std::string& model) {
  if (model == "mixtral")
    return R"(, "num_local_experts": 4, "output_router_logits": true, "router_aux_loss_coef": 0.5)";
  if (model == "qwen2-moe")
    return R"(, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "decoder_sparse_step": 2,
      "shared_expert_intermediate_size": 12)";
  if (model == "qwen3-moe")
    return R"(, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 8, "norm_topk_prob": true)";
  if (model == "gpt-oss")
    return R"(, "num_local_experts": 4, "num_experts_per_tok": 2, "swiglu_limit": 0.05, "rope_scaling": null,
      "sliding_window": 5)";
  if (model == "deepseek-v2-moe")
    return R"(, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_shared_experts": 2,
      "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "routed_scaling_factor": 2,
      "aux_loss_alpha": 0.3, "seq_aux": true)";
  if (model == "deepseek-v3-moe" || model == "deepseek-v3-mtp-moe")
    return R"(, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 8, "n_shared_experts": 1,
      "n_group": 4, "topk_group": 2, "aux_loss_alpha": 0.3)";
  return "";
}

// A module that predicts one token more: with experts beside a head of its own, or dense, where all of it shares one
// table.
inline bool has_mtp(const std::string& model) { return model.find("-mtp") != std::string::npos; }

inline std::string json_of(const std::string& model) {
  if (model == "gpt2")
    return R"({"model_type": "gpt2", "vocab_size": 37, "n_positions": 12, "n_embd": 24, "n_layer": 4, "n_head": 4})";
  if (model.starts_with("deepseek"))
    return fmt::format(R"({{"model_type": "{}", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 30,
      "num_hidden_layers": {}, "num_attention_heads": 12, "q_lora_rank": {}, "kv_lora_rank": 8, "qk_nope_head_dim": 3,
      "qk_rope_head_dim": 4, "v_head_dim": 5, "first_k_dense_replace": {}, "max_position_embeddings": 64,
      "num_nextn_predict_layers": {}, "tie_word_embeddings": {}{}}})",
                       model == "deepseek-v2-moe" ? "deepseek_v2" : "deepseek_v3", kBlocks,
                       model == "deepseek" ? "10" : "null", model.ends_with("-moe") ? 1 : kBlocks + 1,
                       has_mtp(model) ? 1 : 0, model == "deepseek-mtp", config_of_experts(model));
  const bool bias = model == "qwen2", tied = model == "llama-tied" || model.starts_with("gemma");
  std::string type = model.starts_with("llama") ? "llama" : model == "gemma3" ? "gemma3_text" : model;
  std::replace(type.begin(), type.end(), '-', '_');
  return fmt::format(R"({{"model_type": "{}", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 30,
    "num_hidden_layers": {}, "num_attention_heads": 12, "num_key_value_heads": {}, "head_dim": 4,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": {}{}{}}})",
                     type, kBlocks, bias ? 2 : 3, tied ? "true" : "false", extras_of(model), config_of_experts(model));
}

// A frozen model with adapters.
inline bool has_magnitudes(const std::string& model) { return model.ends_with("-dora") || model.ends_with("-qdora"); }
inline bool has_codes(const std::string& model) { return model.ends_with("-qlora") || model.ends_with("-qdora"); }
inline bool has_adapter(const std::string& model) {
  return model.ends_with("-lora") || has_magnitudes(model) || has_codes(model);
}
inline std::string base_of(const std::string& model) {
  return has_adapter(model) ? model.substr(0, model.rfind('-')) : model;
}

// Experts that are dealt out, whose rows come from other ranks.
inline bool has_experts(const std::string& model) { return !config_of_experts(base_of(model)).empty(); }

}  // namespace weft::testing
