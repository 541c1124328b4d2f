// From a model to metadata.
#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/models/gguf_config.h"
#include "weft/models/gguf_names.h"
#include "weft/models/rope_table.h"

namespace weft {
namespace {

using Scaling = RopeSpec::Scaling;

// Layers with a window, as llama.cpp has them in gemma's models: all but each `pattern`-th.
bool has_windows_of(const ModelSpec& m, int64_t pattern) {
  int64_t window = 0;
  for (int64_t i = 0; i < m.num_layers; ++i) {
    const int64_t here = m.layer(i).window;
    if (((i + 1) % pattern != 0) != (here > 0)) return false;
    if (here > 0 && window > 0 && here != window) return false;
    window = std::max(window, here);
  }
  return window > 0;
}

int64_t widest_window(const ModelSpec& m) {
  int64_t window = 0;
  for (int64_t i = 0; i < m.num_layers; ++i) window = std::max(window, m.layer(i).window);
  return window;
}

bool near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

class Judge {
 public:
  Judge(const HfConfig& config, std::string_view source)
      : config_(config), m_(config.spec), arch_(gguf_architecture(config.spec.family)), source_(source) {}

  void judge() const {
    if (arch_.empty())
      refuse(fmt::format("the family {} cannot be written as GGUF", model_type_of(m_.family)),
             fmt::format("a model of the families {}, or the Hugging Face folder as it is", gguf_families()));
    if (config_.adapter || m_.adapter) refuse("an adapter is no whole model", "`weft merge` first");
    if (m_.head == HeadKind::score || m_.predicts_values)
      refuse("llama.cpp has no head that gives scores", "a model with a head over the vocabulary");
    if (m_.family == Family::gpt2 && m_.mlp != MlpKind::gelu_tanh)
      refuse("llama.cpp computes GELU by tanh in gpt2", "activation_function = \"gelu_new\" in its config.json");
    if (arch_.starts_with("qwen") && widest_window(m_) > 0)
      refuse(fmt::format("llama.cpp has no sliding window in {}", arch_),
             "use_sliding_window = false in its config.json");
    const bool biased = m_.family == Family::llama || m_.family == Family::qwen2 || m_.family == Family::gpt2 ||
                        m_.family == Family::gpt_oss;
    if (m_.qkv_bias && !biased && m_.family != Family::qwen2_moe)
      refuse(fmt::format("llama.cpp has no biases of attention in {}", arch_), "attention_bias = false");
    if (m_.family == Family::gemma2 || m_.family == Family::gemma3) judge_gemma();
    if (m_.family == Family::mixtral || arch_.ends_with("moe")) judge_experts();
    if (m_.family == Family::gpt_oss) judge_oss();
    if (m_.latent) judge_deepseek(*m_.latent);
    if (m_.rope) judge_rope(*m_.rope);
  }

 private:
  [[noreturn]] void refuse(std::string_view why, std::string_view nearest) const {
    throw ConfigError(fmt::format("{}: {}; the nearest that works: {}", source_, why, nearest));
  }

  void judge_experts() const {
    const bool second = m_.family == Family::qwen2_moe;
    for (int64_t i = 0; i < m_.num_layers; ++i)
      if (!m_.layer(i).experts)
        refuse(fmt::format("llama.cpp has experts in every layer of {}, and layer {} has none", arch_, i),
               "decoder_sparse_step = 1 and mlp_only_layers = [] in its config.json");
    if (m_.experts.routing.normalise == second)
      refuse(fmt::format("llama.cpp {} the weights of a token's experts by their sum in {}",
                         second ? "does not divide" : "divides", arch_),
             fmt::format("norm_topk_prob = {} in its config.json", !second));
    if (second && (m_.experts.shared_width == 0 || !m_.qkv_bias))
      refuse("llama.cpp has a shared expert and biases of q, k and v in qwen2moe",
             "shared_expert_intermediate_size and qkv_bias in its config.json, or the Hugging Face folder as it is");
  }

  void judge_oss() const {
    if (!m_.qkv_bias)
      refuse("llama.cpp has biases of attention in gpt-oss", "attention_bias = true in its config.json");
    if (m_.experts.clamp != 7)
      refuse("llama.cpp clamps gates and ups of gpt-oss at 7", "swiglu_limit = 7 in its config.json");
    if (!has_windows_of(m_, 2))
      refuse("llama.cpp has a window in all layers of gpt-oss but each second",
             "layer_types in its config.json that say the same, with a sliding_window");
  }

  void judge_deepseek(const LatentSpec& l) const {
    if (m_.norm_eps != l.norm_eps)
      refuse(fmt::format("llama.cpp has one epsilon in all norms of deepseek2, also in those of latents, which have {}",
                         l.norm_eps),
             fmt::format("rms_norm_eps = {} in its config.json", l.norm_eps));
    if (!l.interleaved)
      refuse("llama.cpp turns neighbouring numbers of a head in deepseek2",
             "a model with rope_interleave = true in its config.json, or the Hugging Face folder as it is");
    // As it knows DeepSeek-V2-Lite and models like that.
    const bool lite = m_.num_layers == 26 || m_.num_layers == 27 || (m_.num_layers == 48 && m_.vocab_size == 128256);
    if (lite && l.q_rank > 0)
      refuse(fmt::format("llama.cpp reads no q_lora_rank in deepseek2 of {} layers", m_.num_layers),
             "a model with q_lora_rank = null in its config.json, or the Hugging Face folder as it is");
    if (m_.has_experts()) judge_deepseek_experts(m_.experts);
  }

  void judge_deepseek_experts(const ExpertsSpec& e) const {
    for (int64_t i = 1; i < m_.num_layers; ++i)
      if (m_.layer(i - 1).experts && !m_.layer(i).experts)
        refuse(fmt::format("llama.cpp has experts in every layer of deepseek2 behind the first dense ones, and layer "
                           "{} has none",
                           i),
               "moe_layer_freq = 1 in its config.json");
    if (e.shared_width == 0)
      refuse("llama.cpp has a shared expert in deepseek2", "n_shared_experts = 1 or more in its config.json");
    const Routing& r = e.routing;
    if (r.groups > 1 && r.top_groups < r.groups && !r.by_two)
      refuse(
          fmt::format("topk_method = \"group_limited_greedy\" in its config.json, with n_group = {} and topk_group = "
                      "{}: llama.cpp chooses groups of experts by their two best in deepseek2, and the model by the "
                      "best one",
                      r.groups, r.top_groups),
          "the Hugging Face folder as it is; with topk_method = \"greedy\" it would be another model");
    if (r.groups > 1 && r.top_groups < r.groups && r.groups == e.count)
      refuse("llama.cpp has two or more experts in a group", "a smaller n_group in its config.json");
  }

  void judge_gemma() const {
    const bool two = m_.family == Family::gemma2;
    if (two && !m_.tied_head)
      refuse("llama.cpp takes the embedding table for the head of gemma2, whatever the file holds",
             "a model with tie_word_embeddings = true in its config.json, or the Hugging Face folder as it is");
    const bool by_width = m_.num_layers == (two ? 46 : 62);
    const double scalar = by_width ? double(m_.width) / double(m_.num_heads) : double(m_.head_dim);
    if (!near(m_.attention_scale, 1 / std::sqrt(scalar)))
      refuse("llama.cpp takes query_pre_attn_scalar from the sizes of the model",
             fmt::format("query_pre_attn_scalar = {} in its config.json", scalar));
    if (!has_windows_of(m_, two ? 2 : 6))
      refuse(fmt::format("llama.cpp has a window in all layers of {} but each {}", arch_, two ? "second" : "sixth"),
             "layer_types in its config.json that say the same, with a sliding_window");
    if (two && (m_.attention_softcap == 0 || m_.logit_softcap == 0))
      refuse("llama.cpp caps scores and logits in gemma2",
             "attn_logit_softcapping and final_logit_softcapping in its config.json");
    if (!two && m_.attention_softcap != 0)
      refuse("llama.cpp has no attn_logit_softcapping in gemma3", "attn_logit_softcapping = null in its config.json");
    const std::optional<RopeSpec> sliding = m_.layer(0).rope;
    if (!two && (sliding->scaling != Scaling::none || sliding->theta != 10000))
      refuse("llama.cpp rotates the layers with a window by a base of 10000",
             "rope_local_base_freq = 10000 in its config.json");
  }

  void judge_rope(const RopeSpec& r) const {
    const bool equal_factors = r.short_factors == r.long_factors && near(r.magnitude, 1);
    const bool oss = m_.family == Family::gpt_oss;  // in which it truncates too: told
    const double usual = m_.latent ? 1 : 0.1 * std::log(r.factor) + 1;
    const bool usual_yarn = r.beta_fast == 32 && r.beta_slow == 1 && (r.truncate || oss) &&
                            (m_.latent || r.score_magnitude == 1) && near(r.magnitude, usual);
    if (m_.latent && r.scaling == Scaling::linear)
      refuse("llama.cpp has no linear scaling in deepseek2", "rope_scaling = null in its config.json");
    if (m_.latent && r.scaling == Scaling::yarn && r.factor > 1 && (!usual_yarn || r.score_magnitude <= 1))
      refuse("llama.cpp has YaRN in deepseek2 with beta_fast 32, beta_slow 1, whole pairs and one mscale",
             "rope_scaling in its config.json without betas and truncate, and with mscale and mscale_all_dim alike");
    if (r.scaling == Scaling::llama3 && arch_ != "llama")
      refuse(fmt::format("llama.cpp has no llama3 scaling in {}", arch_), "rope_scaling = null in its config.json");
    if (r.scaling == Scaling::longrope && arch_ != "phi3" && !(arch_ == "llama" && equal_factors))
      refuse(fmt::format("llama.cpp has no longrope scaling in {}", arch_), "rope_scaling = null in its config.json");
    if (r.scaling == Scaling::yarn && !usual_yarn)
      refuse(
          "llama.cpp has YaRN with the usual settings alone (beta_fast 32, beta_slow 1, whole pairs, the usual "
          "attention_factor)",
          "rope_scaling in its config.json without these fields");
  }

  const HfConfig& config_;
  const ModelSpec& m_;
  const std::string_view arch_, source_;
};

class Writer {
 public:
  Writer(const ModelSpec& model, GgufHead& head) : m_(model), arch_(gguf_architecture(model.family)), head_(head) {}

  std::vector<std::string> write() {
    head_.text("general.architecture", arch_);
    u32("context_length", context());
    u32("embedding_length", m_.width);
    u32("block_count", m_.num_layers);
    u32("feed_forward_length", m_.ffn_width);
    if (m_.has_experts()) write_experts(m_.experts);
    if (m_.latent) write_deepseek(*m_.latent);
    u32("vocab_size", m_.vocab_size);
    u32("attention.head_count", m_.num_heads);
    if (m_.norm == NormKind::layer_norm) {
      f32("attention.layer_norm_epsilon", m_.norm_eps);
    } else {
      u32("attention.head_count_kv", m_.latent ? 1 : m_.num_kv_heads);
      u32("attention.key_length", m_.latent ? m_.latent->kv_rank + m_.latent->rope_dim : m_.head_dim);
      u32("attention.value_length", m_.latent ? m_.latent->kv_rank : m_.head_dim);
      f32("attention.layer_norm_rms_epsilon", m_.norm_eps);
    }
    if (m_.rope) write_rope(*m_.rope);
    const int64_t window = widest_window(m_);
    const bool gemma = m_.family == Family::gemma2 || m_.family == Family::gemma3;
    if (gemma || m_.family == Family::phi3 || m_.family == Family::gpt_oss) u32("attention.sliding_window", window);
    if (m_.attention_softcap > 0) f32("attn_logit_softcapping", m_.attention_softcap);
    if (m_.logit_softcap > 0) f32("final_logit_softcapping", m_.logit_softcap);
    return std::move(notes_);
  }

 private:
  void u32(std::string_view key, int64_t value) { head_.u32(fmt::format("{}.{}", arch_, key), value); }
  void f32(std::string_view key, double value) { head_.f32(fmt::format("{}.{}", arch_, key), value); }
  void text(std::string_view key, std::string_view value) { head_.text(fmt::format("{}.{}", arch_, key), value); }

  void write_experts(const ExpertsSpec& e) {
    u32("expert_count", e.count);
    u32("expert_used_count", e.chosen);
    if (m_.family != Family::mixtral) u32("expert_feed_forward_length", e.width);
    if (e.shared_width > 0 && !m_.latent) u32("expert_shared_feed_forward_length", e.shared_width);
  }

  // As heads of keys and values that are all the same latent, which is what llama.cpp keeps of a token.
  void write_deepseek(const LatentSpec& l) {
    const ExpertsSpec& e = m_.experts;
    const bool any = m_.has_experts();
    int64_t dense = 0;
    while (dense < m_.num_layers && !m_.layer(dense).experts) ++dense;
    u32("attention.q_lora_rank", l.q_rank);
    u32("attention.kv_lora_rank", l.kv_rank);
    u32("attention.key_length_mla", m_.head_dim);
    u32("attention.value_length_mla", l.v_dim);
    u32("leading_dense_block_count", dense);
    if (!any) u32("expert_feed_forward_length", m_.ffn_width);  // it is asked for
    u32("expert_shared_count", any ? e.shared_width / e.width : 0);
    u32("expert_gating_func", m_.family == Family::deepseek_v3 ? kGgufSigmoid : kGgufSoftmax);
    if (!any) return;
    f32("expert_weights_scale", e.routing.scale);
    head_.flag(fmt::format("{}.expert_weights_norm", arch_), e.routing.normalise);
    if (e.routing.groups == 1 || e.routing.top_groups == e.routing.groups) return;
    u32("expert_group_count", e.routing.groups);
    u32("expert_group_used_count", e.routing.top_groups);
  }

  int64_t context() {
    const int64_t context = gguf_context(m_);
    if (context != m_.max_positions)
      notes_.push_back(
          fmt::format("the context is {} tokens, not {}: llama.cpp has no sliding window in {}, and within {} tokens "
                      "it changes nothing",
                      context, m_.max_positions, model_type_of(m_.family), context));
    return context;
  }

  void write_rope(const RopeSpec& r) {
    u32("rope.dimension_count", r.width > 0 ? r.width : m_.rope_width());
    f32("rope.freq_base", r.theta);
    if (r.scaling == Scaling::linear || r.scaling == Scaling::yarn) {
      text("rope.scaling.type", r.scaling == Scaling::linear ? "linear" : "yarn");
      f32("rope.scaling.factor", r.factor);
    }
    const bool of_phi = r.scaling == Scaling::longrope && m_.family == Family::phi3;
    if (of_phi || r.scaling == Scaling::yarn) u32("rope.scaling.original_context_length", r.original_positions);
    if (of_phi) f32("rope.scaling.attn_factor", r.magnitude);
    if (r.scaling == Scaling::yarn && m_.latent)
      f32("rope.scaling.yarn_log_multiplier",
          r.factor > 1 ? (r.score_magnitude - 1) / std::log(r.factor) : 0.1);  // 0.1 mscale_all_dim
    if (r.scaling == Scaling::yarn && m_.family == Family::gpt_oss) write_whole_pairs(r.truncate);
  }

  void write_whole_pairs(bool truncate) {
    if (truncate) return head_.flag(kGgufWholePairs, true);
    notes_.push_back(
        "llama.cpp begins and ends the blend of YaRN at whole pairs, the model (truncate = false in rope_scaling) "
        "between them: the pairs next to it turn a little otherwise there");
  }

  const ModelSpec& m_;
  const std::string_view arch_;
  GgufHead& head_;
  std::vector<std::string> notes_;
};

std::vector<float> as_floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

}  // namespace

void require_gguf(const HfConfig& config, std::string_view source) { Judge(config, source).judge(); }

std::vector<std::string> write_gguf_config(const ModelSpec& model, GgufHead& head) {
  return Writer(model, head).write();
}

// llama.cpp lets these families see all tokens: within the window that is the same.
int64_t gguf_context(const ModelSpec& m) {
  const int64_t window = widest_window(m);
  const bool lacks_window = m.family == Family::mistral || m.family == Family::mixtral || m.family == Family::phi3;
  return lacks_window && window > 0 ? std::min(window, m.max_positions) : m.max_positions;
}

std::vector<GgufFactors> gguf_rope_factors(const ModelSpec& m) {
  if (!m.rope) return {};
  const RopeSpec& r = *m.rope;
  if (r.scaling == Scaling::longrope && m.family != Family::phi3)
    return {{"rope_freqs.weight", as_floats(r.long_factors)}};
  if (r.scaling == Scaling::longrope)
    return {{"rope_factors_long.weight", as_floats(r.long_factors)},
            {"rope_factors_short.weight", as_floats(r.short_factors)}};
  if (r.scaling != Scaling::llama3) return {};
  RopeSpec plain = r;
  plain.scaling = Scaling::none;
  const auto scaled = rope_frequencies(r, m.head_dim, m.max_positions),
             unscaled = rope_frequencies(plain, m.head_dim, m.max_positions);
  GgufFactors factors{"rope_freqs.weight", {}};
  for (size_t i = 0; i < scaled.size(); ++i) factors.values.push_back(float(unscaled[i] / scaled[i]));
  return {factors};
}

}  // namespace weft
