// From metadata to config.json.
#include "weft/models/gguf_config.h"

#include <algorithm>
#include <cstdlib>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/models/gguf_names.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMost = int64_t{1} << 31;

// What a number of a text was before it became an f32: 1e-6, not 0.00000099999999747.
double as_written(double x) { return std::strtod(fmt::format("{}", float(x)).c_str(), nullptr); }

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file), f_(file.fields()), arch_(f_.text("general.architecture")) {}

  // The configuration; `warnings` gets a line for each key of the model that is not looked at.
  Json read(std::vector<std::string>& warnings) {
    Json json = read_model();
    for (const std::string& k : f_.keys(arch_ + "."))
      if (!is_known(std::string_view(k).substr(arch_.size() + 1)))
        warnings.push_back(fmt::format("{} is passed over: weft does not know it", f_.where(k)));
    return json;
  }

 private:
  Json read_model() {
    constexpr std::string_view kRead[] = {"llama",  "qwen2",  "qwen2moe", "qwen3", "qwen3moe", "gpt2",
                                          "gemma2", "gemma3", "phi3",     "olmo2", "gpt-oss",  "deepseek2"};
    if (std::find(std::begin(kRead), std::end(kRead), arch_) == std::end(kRead))
      throw ConfigError(
          fmt::format("{}: {} is not supported: weft reads {}; the nearest that works: the Hugging Face folder of the "
                      "model, if its family is one of weft's",
                      f_.where("general.architecture"), in_quotes(arch_), fmt::join(kRead, ", ")));
    has_experts_ = has("expert_count") && integer("expert_count", 0) > 0;
    const bool must_have = arch_.ends_with("moe") || is_oss();
    const bool may_have = arch_ == "llama" || must_have || is_deepseek();
    if (has_experts_ && !may_have)
      throw ConfigError(fmt::format(
          "{}: experts in files of {} are not read; the nearest that works: the model's Hugging Face folder",
          f_.where(key("expert_count")), arch_));
    if (!has_experts_ && must_have) f_.fail(key("expert_count"), "1 or more");
    json_["torch_dtype"] = "float32";
    json_["vocab_size"] = rows_of("token_embd.weight");
    json_["initializer_range"] = 0.02;
    if (arch_ == "gpt2")
      read_gpt2();
    else
      is_deepseek() ? read_deepseek() : read_llama_like();
    if (const int64_t id = f_.token_id("tokenizer.ggml.bos_token_id"); id >= 0) json_["bos_token_id"] = id;
    Json ends = Json::array();  // of a document, then of a turn
    for (const char* end : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
      if (const int64_t id = f_.token_id(end); id >= 0) ends.push_back(id);
    if (!ends.empty()) json_["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
    return std::move(json_);
  }

  bool is_known(std::string_view name) const {
    if (name == "rope.freq_base_swa") return arch_ == "gemma3" || is_oss();
    if (name == "attention.sliding_window_pattern") return is_oss();
    if (std::find(std::begin(kOfDeepseek), std::end(kOfDeepseek), name) != std::end(kOfDeepseek)) return is_deepseek();
    return std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown);
  }
  static constexpr std::string_view kKnown[] = {"context_length",
                                                "embedding_length",
                                                "block_count",
                                                "feed_forward_length",
                                                "vocab_size",
                                                "expert_count",
                                                "expert_used_count",
                                                "expert_feed_forward_length",
                                                "expert_shared_feed_forward_length",
                                                "attention.head_count",
                                                "attention.head_count_kv",
                                                "attention.key_length",
                                                "attention.value_length",
                                                "attention.layer_norm_rms_epsilon",
                                                "attention.layer_norm_epsilon",
                                                "attention.sliding_window",
                                                "rope.dimension_count",
                                                "rope.freq_base",
                                                "rope.scale_linear",
                                                "rope.scaling.type",
                                                "rope.scaling.factor",
                                                "rope.scaling.original_context_length",
                                                "rope.scaling.attn_factor",
                                                "rope.scaling.finetuned",
                                                "rope.scaling.yarn_beta_fast",
                                                "rope.scaling.yarn_beta_slow",
                                                "rope.scaling.yarn_ext_factor",
                                                "rope.scaling.yarn_attn_factor",
                                                "attn_logit_softcapping",
                                                "final_logit_softcapping"};

  static constexpr std::string_view kOfDeepseek[] = {"leading_dense_block_count",   "expert_shared_count",
                                                     "expert_weights_scale",        "expert_weights_norm",
                                                     "expert_gating_func",          "expert_group_count",
                                                     "expert_group_used_count",     "nextn_predict_layers",
                                                     "attention.q_lora_rank",       "attention.kv_lora_rank",
                                                     "attention.key_length_mla",    "attention.value_length_mla",
                                                     "attention.temperature_scale", "rope.scaling.yarn_log_multiplier"};

  bool is_oss() const { return arch_ == "gpt-oss"; }
  bool is_deepseek() const { return arch_ == "deepseek2"; }
  std::string key(std::string_view name) const { return fmt::format("{}.{}", arch_, name); }
  bool has(std::string_view name) const { return f_.has(key(name)); }
  int64_t integer(std::string_view name, int64_t min = 1) const { return f_.integer(key(name), min, kMost); }
  double number(std::string_view name) const { return as_written(f_.number(key(name))); }
  int64_t rows_of(std::string_view tensor) const {
    const GgufTensor* t = file_.find(tensor);
    if (t == nullptr || t->shape.size() != 2)
      throw FileError(fmt::format("{}: there is no tensor {} with rows and columns: the file holds no whole model",
                                  file_.path().string(), tensor));
    return t->shape[0];
  }
  bool has_tensor(std::string_view name) const { return file_.find(name) != nullptr; }

  void read_gpt2() {
    json_["model_type"] = "gpt2";
    json_["n_embd"] = integer("embedding_length");
    json_["n_layer"] = integer("block_count");
    json_["n_head"] = integer("attention.head_count");
    json_["n_inner"] = integer("feed_forward_length");
    json_["n_positions"] = rows_of("position_embd.weight");
    json_["layer_norm_epsilon"] = number("attention.layer_norm_epsilon");
    json_["activation_function"] = "gelu_new";
    json_["tie_word_embeddings"] = !has_tensor("output.weight") || gguf_head_is_table(file_);
  }

  void read_llama_like() {
    const int64_t width = integer("embedding_length"), heads = integer("attention.head_count");
    json_["model_type"] = model_type();
    json_["hidden_size"] = width;
    json_["num_hidden_layers"] = integer("block_count");
    json_["num_attention_heads"] = heads;
    json_["num_key_value_heads"] = has("attention.head_count_kv") ? integer("attention.head_count_kv") : heads;
    if (has("attention.key_length"))
      json_["head_dim"] = integer("attention.key_length");
    else if (width % heads == 0)
      json_["head_dim"] = width / heads;
    if (has("attention.value_length") && integer("attention.value_length") != json_.value("head_dim", int64_t{0}))
      throw ConfigError(fmt::format("{}: heads of values as wide as those of keys are what weft does",
                                    f_.where(key("attention.value_length"))));
    if (!is_oss()) json_["intermediate_size"] = integer("feed_forward_length");
    json_["max_position_embeddings"] = integer("context_length");
    json_["rms_norm_eps"] = number("attention.layer_norm_rms_epsilon");
    json_["tie_word_embeddings"] = !has_tensor("output.weight") || gguf_head_is_table(file_);
    if (has_experts_) read_experts();
    if (arch_ == "llama" && !has_experts_) {
      json_["attention_bias"] = has_tensor("blk.0.attn_q.bias");
      json_["mlp_bias"] = has_tensor("blk.0.ffn_gate.bias");
    }
    read_rope();
    const bool has_windows = arch_ == "gemma2" || arch_ == "gemma3" || arch_ == "phi3" || is_oss();
    if (!has_windows && has("attention.sliding_window") && integer("attention.sliding_window", 0) > 0)
      throw ConfigError(
          fmt::format("{}: windows in files of {} are not read; the nearest that works: the model's "
                      "Hugging Face folder",
                      f_.where(key("attention.sliding_window")), arch_));
    if (arch_ == "gemma2" || arch_ == "gemma3") read_gemma();
    if (is_oss()) read_oss();
    if (arch_ == "phi3" && has("attention.sliding_window") && integer("attention.sliding_window", 0) > 0)
      json_["sliding_window"] = integer("attention.sliding_window");
  }

  std::string model_type() const {
    if (arch_ == "gemma3") return "gemma3_text";
    if (is_oss()) return "gpt_oss";
    if (!has_experts_) return arch_;
    return arch_ == "llama" ? "mixtral" : arch_ == "qwen2moe" ? "qwen2_moe" : "qwen3_moe";
  }

  void read_experts() {
    const bool mixtral = arch_ == "llama", second = arch_ == "qwen2moe";
    json_[mixtral || is_oss() ? "num_local_experts" : "num_experts"] = integer("expert_count");
    json_["num_experts_per_tok"] = integer("expert_used_count");
    if (mixtral) return;
    if (is_oss()) {
      json_["intermediate_size"] = integer("expert_feed_forward_length");
      return;
    }
    json_["moe_intermediate_size"] = integer("expert_feed_forward_length");
    json_["norm_topk_prob"] = !second;  // as llama.cpp has the two
    if (!second) return;
    json_["shared_expert_intermediate_size"] = integer("expert_shared_feed_forward_length");
    json_["qkv_bias"] = has_tensor("blk.0.attn_q.bias");
  }

  void read_rope() {
    const int64_t head_dim = json_.value("head_dim", int64_t{0});
    const int64_t turned = has("rope.dimension_count") ? integer("rope.dimension_count") : head_dim;
    json_["rope_theta"] = has("rope.freq_base") ? number("rope.freq_base") : 10000.0;
    if (arch_ == "phi3" && turned != head_dim)
      json_["partial_rotary_factor"] = double(turned) / double(std::max<int64_t>(1, head_dim));
    else if (turned != head_dim)
      f_.fail(key("rope.dimension_count"), fmt::format("{}, the width of a head", head_dim));
    json_["rope_scaling"] = read_scaling();
  }

  Json read_scaling() const {
    const std::string type = f_.text(key("rope.scaling.type"), "none");
    const int64_t original = has("rope.scaling.original_context_length")
                                 ? integer("rope.scaling.original_context_length")
                                 : integer("context_length");
    const double magnitude = has("rope.scaling.attn_factor") ? number("rope.scaling.attn_factor") : 1.0;
    if (has_tensor("rope_freqs.weight"))
      return factors("rope_freqs.weight", "rope_freqs.weight", integer("context_length"), 1.0);
    if (has_tensor("rope_factors_long.weight"))
      return factors("rope_factors_short.weight", "rope_factors_long.weight", original, magnitude);
    if (magnitude != 1)
      f_.fail(key("rope.scaling.attn_factor"), "1, as there are no tensors rope_factors_long and rope_factors_short");
    const double linear = has("rope.scale_linear") ? number("rope.scale_linear") : 1.0;
    if (type == "none" && linear == 1) return nullptr;
    if (type == "none") return {{"rope_type", "linear"}, {"factor", linear}};
    if (type == "linear") return {{"rope_type", type}, {"factor", number("rope.scaling.factor")}};
    if (type == "yarn") return read_yarn(original);
    f_.fail(key("rope.scaling.type"), "none, linear, yarn, or longrope with tensors of its factors");
  }

  Json read_yarn(int64_t original) const {
    for (const char* name : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"})
      if (has(name) && number(name) != 1) f_.fail(key(name), "1");
    Json yarn = {{"rope_type", "yarn"},
                 {"factor", number("rope.scaling.factor")},
                 {"original_max_position_embeddings", original}};
    if (has("rope.scaling.yarn_beta_fast")) yarn["beta_fast"] = number("rope.scaling.yarn_beta_fast");
    if (has("rope.scaling.yarn_beta_slow")) yarn["beta_slow"] = number("rope.scaling.yarn_beta_slow");
    if (is_oss()) yarn["truncate"] = f_.flag(kGgufWholePairs, false);  // as the published models
    return yarn;
  }

  Json factors(std::string_view shorter, std::string_view longer, int64_t original, double magnitude) const {
    return {{"rope_type", "longrope"},
            {"short_factor", factors_in(shorter)},
            {"long_factor", factors_in(longer)},
            {"original_max_position_embeddings", original},
            {"attention_factor", magnitude}};
  }
  Json factors_in(std::string_view name) const {
    constexpr int64_t kMostFactors = 1 << 16;
    const GgufTensor* t = file_.find(name);
    if (t == nullptr || t->shape.size() != 1 || t->cols() > kMostFactors)
      throw FileError(fmt::format("{}: tensor {} is missing, or no list of factors", file_.path().string(), name));
    std::vector<float> values(size_t(t->cols()));
    file_.read_row(*t, 0, 0, values);
    Json list = Json::array();
    for (const float x : values) list.push_back(as_written(x));
    return list;
  }

  void read_gemma() {
    const int64_t head_dim = json_.value("head_dim", int64_t{0}), layers = json_["num_hidden_layers"];
    const bool by_width = layers == (arch_ == "gemma2" ? 46 : 62);  // as llama.cpp knows the models of 27B
    const double scalar = by_width ? double(json_["hidden_size"]) / double(json_["num_attention_heads"]) : head_dim;
    json_["query_pre_attn_scalar"] = scalar;
    json_["hidden_activation"] = "gelu_pytorch_tanh";
    json_["sliding_window"] = integer("attention.sliding_window");
    for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"})
      if (has(name)) json_[name] = number(name);  // else the family's usual one, there as here
    if (arch_ != "gemma3") return;
    json_["rope_local_base_freq"] = has("rope.freq_base_swa") ? number("rope.freq_base_swa") : 10000.0;
    json_["sliding_window_pattern"] = 6;
  }

  void read_oss() {
    json_["attention_bias"] = true;
    json_["swiglu_limit"] = 7.0;  // as llama.cpp has it
    json_["sliding_window"] = integer("attention.sliding_window");
    if (has("attention.sliding_window_pattern") && integer("attention.sliding_window_pattern") != 2)
      f_.fail(key("attention.sliding_window_pattern"), "2");
    if (has("rope.freq_base_swa") && number("rope.freq_base_swa") != json_["rope_theta"])
      f_.fail(key("rope.freq_base_swa"), fmt::format("{}, as rope.freq_base", json_["rope_theta"].get<double>()));
  }

  // DeepSeek-V2 and -V3, and what is made like them.
  void read_deepseek() {
    require_none("nextn_predict_layers", "modules that predict further tokens in files are not read");
    require_none("attention.temperature_scale", "scores that are scaled by the position are not what weft does");
    const int64_t gating = has("expert_gating_func") ? integer("expert_gating_func", 0) : 0;
    if (gating > kGgufSigmoid) f_.fail(key("expert_gating_func"), "1 (softmax) or 2 (sigmoid)");
    third_ = gating == kGgufSigmoid;
    json_["model_type"] = third_ ? "deepseek_v3" : "deepseek_v2";
    json_["hidden_size"] = integer("embedding_length");
    json_["num_hidden_layers"] = integer("block_count");
    json_["intermediate_size"] = integer("feed_forward_length");
    json_["max_position_embeddings"] = integer("context_length");
    json_["rms_norm_eps"] = number("attention.layer_norm_rms_epsilon");
    if (json_["rms_norm_eps"] != LatentSpec().norm_eps)
      f_.fail(key("attention.layer_norm_rms_epsilon"), "1e-06, as weft has it for norms of latents");
    json_["tie_word_embeddings"] = !has_tensor("output.weight") || gguf_head_is_table(file_);
    read_latents();
    json_["rope_theta"] = has("rope.freq_base") ? number("rope.freq_base") : 10000.0;
    json_["rope_scaling"] = read_deepseek_scaling();
    read_deepseek_experts();
  }

  void require_none(std::string_view name, std::string_view why) const {
    if (has(name) && f_.number(key(name)) != 0)
      throw ConfigError(
          fmt::format("{}: {}; the nearest that works: the model's Hugging Face folder", f_.where(key(name)), why));
  }

  // Older files state the widths of heads as those of other models.
  void read_latents() {
    const bool older = !has("attention.key_length_mla");
    const std::string keys = older ? "attention.key_length" : "attention.key_length_mla";
    const int64_t turned = integer("rope.dimension_count"), width = integer(keys);
    if (width <= turned) f_.fail(key(keys), fmt::format("more than the {} of rope.dimension_count", turned));
    json_["num_attention_heads"] = json_["num_key_value_heads"] = integer("attention.head_count");
    const int64_t q_rank = has("attention.q_lora_rank") ? integer("attention.q_lora_rank", 0) : 0;
    json_["q_lora_rank"] = q_rank > 0 ? Json(q_rank) : Json();
    json_["kv_lora_rank"] = integer("attention.kv_lora_rank");
    json_["qk_rope_head_dim"] = turned;
    json_["qk_nope_head_dim"] = width - turned;
    json_["v_head_dim"] = integer(older ? "attention.value_length" : "attention.value_length_mla");
  }

  Json read_deepseek_scaling() const {
    const Json scaling = read_scaling();
    if (scaling.is_null()) return scaling;
    const std::string log = "rope.scaling.yarn_log_multiplier";
    if (scaling["rope_type"] != "yarn") f_.fail(key("rope.scaling.type"), "none or yarn");
    const double all = has(log) ? as_written(10 * number(log)) : 0;
    if (all <= 0) f_.fail(key(log), "more than 0: a tenth of mscale_all_dim");
    Json yarn = scaling;
    yarn["mscale"] = yarn["mscale_all_dim"] = all;
    return yarn;
  }

  void read_deepseek_experts() {
    const int64_t dense = has("leading_dense_block_count") ? integer("leading_dense_block_count", 0) : 0;
    json_["first_k_dense_replace"] = dense;
    json_["n_routed_experts"] = nullptr;
    if (!has_experts_ && dense < json_["num_hidden_layers"]) f_.fail(key("expert_count"), "1 or more");
    if (!has_experts_) return;
    const int64_t chosen = integer("expert_used_count");
    const double scale = has("expert_weights_scale") ? number("expert_weights_scale") : 0;
    const bool divided = f_.flag(key("expert_weights_norm"), false);
    if (!third_ && divided && (chosen == 1 || (scale != 0 && scale != 1)))
      f_.fail(key("expert_weights_norm"), "false, as weights by softmax are divided by their sum or scaled");
    json_["n_routed_experts"] = integer("expert_count");
    json_["num_experts_per_tok"] = chosen;
    json_["moe_intermediate_size"] = integer("expert_feed_forward_length");
    json_["n_shared_experts"] = has("expert_shared_count") ? integer("expert_shared_count", 0) : 0;
    json_["norm_topk_prob"] = divided;
    json_["routed_scaling_factor"] = scale == 0 ? 1 : scale;
    const int64_t groups = has("expert_group_count") ? std::max<int64_t>(1, integer("expert_group_count", 0)) : 1;
    json_["n_group"] = groups;
    json_["topk_group"] = groups > 1 ? integer("expert_group_used_count") : 1;
    if (!third_) json_["topk_method"] = groups > 1 ? "group_limited_greedy" : "greedy";
  }

  const GgufFile& file_;
  const GgufFields f_;
  const std::string arch_;
  Json json_ = Json::object();
  bool has_experts_ = false, third_ = false;  // of deepseek2: DeepSeek-V3
};

}  // namespace

bool gguf_head_is_table(const GgufFile& file) {
  const GgufTensor *head = file.find("output.weight"), *table = file.find("token_embd.weight");
  if (head == nullptr || table == nullptr || head->type != table->type || head->shape != table->shape) return false;
  const auto a = file.bytes(*head), b = file.bytes(*table);
  return !a.empty() && std::equal(a.begin(), a.end(), b.begin(), b.end());
}

HfConfig read_gguf_config(const std::filesystem::path& path) {
  const GgufFile file(path);
  std::vector<std::string> warnings;
  HfConfig config = parse_hf_config(Reader(file).read(warnings), path.string());
  config.warnings.insert(config.warnings.end(), warnings.begin(), warnings.end());
  return config;
}

}  // namespace weft
