#include "weft/models/hf_fields.h"

#include <algorithm>
#include <array>

#include "weft/base/ascii.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// They say where a model comes from, how text is generated with it, or how it is run: not what it computes in training.
constexpr std::string_view kHarmless[] = {
    // origin
    "architectures", "auto_map", "model_type", "transformers_version", "torch_dtype", "dtype", "_name_or_path",
    "name_or_path", "_commit_hash", "_diffusers_version", "finetuning_task", "task_specific_params", "tokenizer_class",
    "unsloth_fixed", "unsloth_version", "is_llama_config", "license", "model_name",
    // tokens with a meaning
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id", "decoder_start_token_id",
    "forced_bos_token_id", "forced_eos_token_id", "prefix",
    // generation
    "use_cache", "max_length", "min_length", "max_new_tokens", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
    "output_scores", "return_dict_in_generate", "remove_invalid_values", "exponential_decay_length_penalty",
    "suppress_tokens", "begin_suppress_tokens", "is_decoder", "cache_implementation",
    // classification heads, which a language model does not have
    "id2label", "label2id", "num_labels", "problem_type", "classifier_dropout", "summary_type", "summary_use_proj",
    "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "predict_special_tokens",
    // how it is run
    "return_dict", "output_hidden_states", "output_attentions", "output_past", "torchscript", "use_bfloat16",
    "tf_legacy_loss", "chunk_size_feed_forward", "gradient_checkpointing", "n_ctx", "reorder_and_upcast_attn",
    "attn_implementation", "_attn_implementation", "_attn_implementation_internal", "_attn_implementation_autoset",
    "_flash_attn_2_enabled", "use_flash_attn", "use_flash_attention_2", "flash_attention",
    "keys_to_ignore_at_inference", "base_model_tp_plan", "base_model_pp_plan", "ep_size"};

// Fields that change the result of models which have them, and the one value that changes nothing; null is always fine.
struct Neutral {
  std::string_view key;
  const char* value;  // JSON
};
constexpr Neutral kNeutral[] = {{"add_cross_attention", "false"},
                                {"cross_attention_hidden_size", "null"},
                                {"is_encoder_decoder", "false"},
                                {"tie_encoder_decoder", "false"},
                                {"pruned_heads", "{}"},
                                {"scale_attn_weights", "true"},
                                {"scale_attn_by_inverse_layer_idx", "false"},
                                {"pretraining_tp", "1"},
                                {"attention_bias", "false"},
                                {"mlp_bias", "false"},
                                {"sliding_window", "null"},
                                {"use_sliding_window", "false"},
                                {"partial_rotary_factor", "1"},
                                {"rotary_pct", "1"},
                                {"rope_interleaved", "false"},
                                {"use_mrope", "false"},
                                {"attention_multiplier", "null"},
                                {"embedding_multiplier", "1"},
                                {"residual_multiplier", "1"},
                                {"logits_scaling", "1"},
                                {"logit_scale", "1"},
                                {"final_logit_softcapping", "null"},
                                {"attn_logit_softcapping", "null"},
                                {"query_pre_attn_scalar", "null"},
                                {"use_qk_norm", "false"},
                                {"qk_layernorm", "false"},
                                {"num_experts", "0"},
                                {"num_local_experts", "0"},
                                {"output_router_logits", "false"},
                                {"quantization_config", "null"},
                                {"compression_config", "null"}};

constexpr std::string_view kQuantisedAdvice =
    ": name the model in full precision; adapter.kind = \"qlora\" makes the codes of it";

// Parts of names of fields whose values probably change what the model computes.
constexpr std::string_view kSuspicious[] = {
    "activation",   "act_fn", "hidden_act", "adapter", "alibi",    "attention", "attn",        "audio",  "bias",
    "causal",       "conv",   "cross",      "dropout", "pdrop",    "embd",      "embed",       "expert", "ffn",
    "gate",         "head",   "hidden",     "image",   "layer",    "logit",     "lora",        "mamba",  "mask",
    "mlp",          "moe",    "multiplier", "norm",    "position", "quant",     "residual",    "rope",   "rotary",
    "router",       "scale",  "scaling",    "sliding", "softcap",  "ssm",       "text_config", "tie_",   "tied",
    "intermediate", "vision", "window",     "yarn"};

// Whether a value says that something is switched off.
bool says_off(const Json& value) {
  return value.is_null() || value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
}

bool is_suspicious(std::string_view key) {
  const std::string lower = lower_ascii(key);
  return std::any_of(std::begin(kSuspicious), std::end(kSuspicious),
                     [&](std::string_view part) { return lower.find(part) != std::string::npos; });
}

}  // namespace

void HfFields::refuse(std::string_view key, std::string_view why) const {
  const Json* value = fields_.find(key);
  throw ConfigError(fmt::format("{}: {} is not supported: {}", fields_.where(key),
                                value == nullptr ? "its absence" : shown(*value), why));
}

std::vector<std::string> judge_other_fields(const HfFields& fields) {
  std::vector<std::string> warnings;
  for (const auto& item : fields.fields().json().items()) {
    const std::string& key = item.key();
    const Json& value = item.value();
    if (fields.was_taken(key) || value.is_null()) continue;
    if (std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless)) continue;
    const auto neutral =
        std::find_if(std::begin(kNeutral), std::end(kNeutral), [&](const Neutral& n) { return n.key == key; });
    if (neutral != std::end(kNeutral)) {
      if (value != Json::parse(neutral->value))
        fields.refuse(key, fmt::format("for this kind of model weft only does {}{}", neutral->value,
                                       key == "quantization_config" ? kQuantisedAdvice : ""));
      continue;
    }
    // A text that is no suspect is a remark; a number, a switch or a list may be part of the model under any name.
    if (!says_off(value) && (is_suspicious(key) || !value.is_string()))
      fields.refuse(
          key, "weft does not know this field, and it may change what the model computes; remove it if it does not");
    if (warnings.size() < 100) warnings.push_back(fields.fields().where(key) + " is not known to weft, and ignored");
  }
  return warnings;
}

}  // namespace weft
