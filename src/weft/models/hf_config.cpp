#include "weft/models/hf_config.h"

#include <cmath>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/models/hf_experts.h"
#include "weft/models/hf_fields.h"
#include "weft/models/hf_rope.h"

namespace weft {
namespace {

using Json = nlohmann::json;

struct FamilyName {
  Family family;
  std::string_view model_type, architecture;
};
constexpr FamilyName kFamilies[] = {{Family::gpt2, "gpt2", "GPT2LMHeadModel"},
                                    {Family::llama, "llama", "LlamaForCausalLM"},
                                    {Family::mistral, "mistral", "MistralForCausalLM"},
                                    {Family::qwen2, "qwen2", "Qwen2ForCausalLM"},
                                    {Family::qwen3, "qwen3", "Qwen3ForCausalLM"},
                                    {Family::mixtral, "mixtral", "MixtralForCausalLM"},
                                    {Family::qwen2_moe, "qwen2_moe", "Qwen2MoeForCausalLM"},
                                    {Family::qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM"}};

const FamilyName& name_of_family(Family family) {
  for (const FamilyName& f : kFamilies)
    if (f.family == family) return f;
  WEFT_CHECK(false, "family {}", int(family));
}

// Far above any model, far below where products of sizes leave 64 bits.
constexpr JsonFields::IntRange kSize{.min = 1, .max = int64_t{1} << 31};
constexpr JsonFields::IntRange kWidth{.min = 1, .max = int64_t{1} << 24};
constexpr JsonFields::IntRange kLayers{.min = 1, .max = 16384};
constexpr JsonFields::Range kProbability{.min = 0, .max = 0.999};
constexpr double kMaxParameters = 1e15;

Family read_family(HfFields& fields) {
  const std::string type = fields.string("model_type");
  std::string supported;
  for (const FamilyName& f : kFamilies) {
    if (f.model_type == type) return f.family;
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", f.model_type);
  }
  fields.refuse("model_type", "weft has " + supported);
}

// Refuses sizes that do not fit together.
void check_sizes(const ModelSpec& s, const HfFields& fields, std::string_view heads_key, std::string_view width_key) {
  if (s.num_heads % s.num_kv_heads != 0)
    throw ConfigError(fmt::format("{}: {} heads cannot share {} heads of keys and values evenly (num_key_value_heads)",
                                  fields.fields().where(heads_key), s.num_heads, s.num_kv_heads));
  if (s.rope && s.head_dim % 2 != 0)
    throw ConfigError(fmt::format("{}: heads of {} numbers cannot be rotated in pairs",
                                  fields.fields().where(fields.was_taken("head_dim") ? "head_dim" : heads_key),
                                  s.head_dim));
  const double d = double(s.width),
               experts = double(s.experts.count) * double(s.experts.width) + double(s.experts.shared_width),
               per_layer = d * (2.0 * double(s.q_width()) + 2.0 * double(s.kv_width()) + 3.0 * double(s.ffn_width) +
                                3.0 * experts);
  if (double(s.num_layers) * per_layer + 2 * d * double(s.vocab_size) + d * double(s.max_positions) > kMaxParameters)
    throw ConfigError(fmt::format("{}: with the other sizes this makes more than {:.0e} parameters",
                                  fields.fields().where(width_key), kMaxParameters));
}

int64_t divided(const HfFields& fields, std::string_view key, int64_t width, int64_t heads) {
  if (width % heads == 0) return width / heads;
  throw ConfigError(
      fmt::format("{}: a width of {} cannot be divided among {} heads", fields.fields().where(key), width, heads));
}

// A size that has two names; both may be there if they agree.
int64_t read_either(HfFields& fields, const char* key, const char* other, JsonFields::IntRange range,
                    std::optional<int64_t> fallback = {}) {
  if (!fields.has(other)) return fields.integer(key, range, fallback);
  const int64_t value = fields.integer(other, range);
  if (fields.integer(key, range, value) != value) fields.refuse(other, fmt::format("{} says something else", key));
  return value;
}

MlpKind read_gpt2_activation(HfFields& fields) {
  const std::string name = fields.string("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return MlpKind::gelu_tanh;
  if (name == "gelu" || name == "gelu_python") return MlpKind::gelu_erf;
  fields.refuse("activation_function", "weft does gelu_new, gelu_pytorch_tanh, gelu_fast, gelu and gelu_python");
}

ModelSpec read_gpt2(HfFields& f) {
  ModelSpec s;
  s.family = Family::gpt2;
  s.vocab_size = f.integer("vocab_size", kSize);
  s.width = read_either(f, "n_embd", "hidden_size", kWidth);
  s.num_layers = read_either(f, "n_layer", "num_hidden_layers", kLayers);
  s.num_heads = s.num_kv_heads = read_either(f, "n_head", "num_attention_heads", kWidth);
  s.head_dim = divided(f, "n_head", s.width, s.num_heads);
  s.ffn_width = f.integer("n_inner", kSize, 4 * s.width);
  s.max_positions = read_either(f, "n_positions", "max_position_embeddings", kSize, 1024);
  s.norm = NormKind::layer_norm;
  s.norm_eps = f.number("layer_norm_epsilon", {.max = 1}, 1e-5);
  s.mlp = read_gpt2_activation(f);
  s.learned_positions = true;
  s.qkv_bias = s.attention_out_bias = s.mlp_bias = true;
  s.tied_head = f.flag("tie_word_embeddings", true);
  s.init_std = f.number("initializer_range", {.max = 100}, 0.02);
  s.residual_init_scale = 1 / std::sqrt(2 * double(s.num_layers));
  s.dropout = {.embedding = f.number("embd_pdrop", kProbability, 0),
               .hidden = f.number("resid_pdrop", kProbability, 0),
               .attention = f.number("attn_pdrop", kProbability, 0)};
  check_sizes(s, f, "n_head", "n_embd");
  return s;
}

// What transformers takes where the field is absent; null stands for as many as query heads in all of them.
int64_t read_kv_heads(HfFields& f, Family family, int64_t num_heads) {
  const bool absent = f.absent("num_key_value_heads");
  const bool eight = family == Family::mistral || family == Family::mixtral;
  const int64_t of_qwen = family == Family::qwen2_moe ? 16 : family == Family::qwen3_moe ? 4 : 32;
  const int64_t usual = family == Family::llama ? num_heads : eight ? 8 : of_qwen;
  return f.integer("num_key_value_heads", kWidth, absent ? usual : num_heads);
}

int64_t read_head_dim(HfFields& f, Family family, const ModelSpec& s) {
  if (f.has("head_dim")) return f.integer("head_dim", kWidth);
  return family == Family::qwen3 && f.absent("head_dim") ? 128
                                                         : divided(f, "num_attention_heads", s.width, s.num_heads);
}

void read_biases(HfFields& f, ModelSpec& s) {
  if (s.family == Family::qwen2_moe) {
    s.qkv_bias = f.flag("qkv_bias", true);
    f.take("attention_bias");  // its layers do not ask for it
  } else if (s.family == Family::qwen2) {
    s.qkv_bias = true;  // whatever the two say: its layers have no other form
    f.take("attention_bias");
    f.take("qkv_bias");
  } else if (s.family != Family::mistral && s.family != Family::mixtral) {
    s.qkv_bias = s.attention_out_bias = f.flag("attention_bias", false);
  }
  if (s.family == Family::llama) s.mlp_bias = f.flag("mlp_bias", false);
}

// Llama and those built like it.
ModelSpec read_llama_like(HfFields& f, Family family) {
  ModelSpec s;
  s.family = family;
  s.vocab_size = f.integer("vocab_size", kSize);
  s.width = f.integer("hidden_size", kWidth);
  s.num_layers = f.integer("num_hidden_layers", kLayers);
  s.num_heads = f.integer("num_attention_heads", kWidth);
  s.num_kv_heads = read_kv_heads(f, family, s.num_heads);
  s.head_dim = read_head_dim(f, family, s);
  s.ffn_width = f.integer("intermediate_size", kSize);
  const bool long_ones = family == Family::mistral || family == Family::mixtral;
  const int64_t usual_positions = family == Family::llama ? 2048 : long_ones ? 131072 : 32768;
  s.max_positions = f.integer("max_position_embeddings", kSize, usual_positions);
  s.norm_eps = f.number("rms_norm_eps", {.max = 1}, 1e-6);
  if (const std::string act = f.string("hidden_act", "silu"); act != "silu" && act != "swish")
    f.refuse("hidden_act", "weft does silu");
  s.rope = read_rope(f);
  read_biases(f, s);
  s.qk_norm = family == Family::qwen3 || family == Family::qwen3_moe;
  s.tied_head = f.flag("tie_word_embeddings", false);
  for (const int64_t window : read_windows(f, family, s.num_layers))
    s.layers.push_back({.norm = s.norm, .mlp = s.mlp, .rope = s.rope, .window = window});
  read_experts(f, s);
  s.init_std = f.number("initializer_range", {.max = 100}, 0.02);
  s.dropout.attention = f.number("attention_dropout", kProbability, 0);
  check_sizes(s, f, "num_attention_heads", "hidden_size");
  return s;
}

std::string_view torch_name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      WEFT_CHECK(false, "weights of {}", name_of(dtype));
  }
}

}  // namespace

std::string_view model_type_of(Family family) { return name_of_family(family).model_type; }

HfConfig parse_hf_config(Json json, std::string_view source) {
  HfConfig config;
  config.json = std::move(json);
  HfFields fields(JsonFields(config.json, std::string(source)));
  const Family family = read_family(fields);
  config.spec = family == Family::gpt2 ? read_gpt2(fields) : read_llama_like(fields, family);
  config.warnings = judge_other_fields(fields);
  return config;
}

HfConfig read_hf_config(const std::filesystem::path& folder_or_file) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(folder_or_file, ignored);
  const std::filesystem::path file = folder ? folder_or_file / "config.json" : folder_or_file;
  if (folder) require_saved(folder_or_file, "config.json");
  return parse_hf_config(read_json_file(file, {.max_bytes = 4 << 20}), file.string());
}

void require_no_file_of_weights(const std::filesystem::path& path, std::string_view what) {
  const std::string name = path.filename().string();
  bool weights = name.ends_with(".index.json");
  for (const char* ending : {".safetensors", ".bin", ".pt", ".pth", ".gguf"})
    weights = weights || name.ends_with(ending);
  std::error_code ignored;
  if (!weights || !std::filesystem::is_regular_file(path, ignored)) return;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const bool readable = name.find(".safetensors") != name.npos;
  throw ConfigError(
      fmt::format("{} = {} is a file of weights; a model is a folder with config.json and weights in safetensors: {}",
                  what, in_quotes(path.string()),
                  readable ? fmt::format("name {}", in_quotes(folder.string()))
                           : "convert it to safetensors first, and name the folder"));
}

Json hf_config_of(const HfConfig& config, DType dtype) {
  Json json = config.json;
  // The name that the file already uses; newer versions of transformers write "dtype".
  json[json.contains("dtype") && !json.contains("torch_dtype") ? "dtype" : "torch_dtype"] = torch_name_of(dtype);
  if (const auto names = json.find("architectures"); names == json.end() || !names->is_array() || names->empty())
    json["architectures"] = Json::array({name_of_family(config.spec.family).architecture});
  return json;
}

}  // namespace weft
