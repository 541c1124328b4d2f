#include "weft/models/hf_config.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/models/gguf_config.h"
#include "weft/models/gptq_format.h"
#include "weft/models/hf_deepseek.h"
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
constexpr std::string_view kClassifier = "ForSequenceClassification";
constexpr FamilyName kFamilies[] = {{Family::gpt2, "gpt2", "GPT2LMHeadModel"},
                                    {Family::llama, "llama", "LlamaForCausalLM"},
                                    {Family::mistral, "mistral", "MistralForCausalLM"},
                                    {Family::qwen2, "qwen2", "Qwen2ForCausalLM"},
                                    {Family::qwen3, "qwen3", "Qwen3ForCausalLM"},
                                    {Family::phi3, "phi3", "Phi3ForCausalLM"},
                                    {Family::olmo2, "olmo2", "Olmo2ForCausalLM"},
                                    {Family::mixtral, "mixtral", "MixtralForCausalLM"},
                                    {Family::qwen2_moe, "qwen2_moe", "Qwen2MoeForCausalLM"},
                                    {Family::qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM"},
                                    {Family::gpt_oss, "gpt_oss", "GptOssForCausalLM"},
                                    {Family::gemma2, "gemma2", "Gemma2ForCausalLM"},
                                    {Family::gemma3, "gemma3_text", "Gemma3ForCausalLM"},
                                    {Family::deepseek_v2, "deepseek_v2", "DeepseekV2ForCausalLM"},
                                    {Family::deepseek_v3, "deepseek_v3", "DeepseekV3ForCausalLM"}};

// What transformers takes where a field is absent. 0: as many heads of keys as of queries; heads that divide the width.
struct Usual {
  int64_t kv_heads, head_dim, max_positions;
  double norm_eps, rope_theta;
  bool tied;
};
Usual usual_of(Family family) {
  switch (family) {
    case Family::mixtral:
      return {8, 0, 131072, 1e-5, 1e6, false};
    case Family::mistral:
      return {8, 0, 131072, 1e-6, 1e4, false};
    case Family::qwen2:
      return {32, 0, 32768, 1e-6, 1e4, false};
    case Family::qwen3:
      return {32, 128, 32768, 1e-6, 1e4, false};
    case Family::qwen2_moe:
      return {16, 0, 32768, 1e-6, 1e4, false};
    case Family::qwen3_moe:
      return {4, 0, 32768, 1e-6, 1e4, false};
    case Family::gpt_oss:
      return {8, 64, 131072, 1e-5, 150000, false};
    case Family::phi3:
      return {0, 0, 4096, 1e-5, 1e4, false};
    case Family::olmo2:
      return {0, 0, 2048, 1e-5, 1e4, false};
    case Family::gemma2:
      return {4, 256, 8192, 1e-6, 1e4, true};
    case Family::gemma3:
      return {4, 256, 131072, 1e-6, 1e6, true};
    default:
      return {0, 0, 2048, 1e-6, 1e4, false};
  }
}

const FamilyName& name_of_family(Family family) {
  for (const FamilyName& f : kFamilies)
    if (f.family == family) return f;
  WEFT_CHECK(false, "family {}", int(family));
}

// The architecture whose head is a score, as transformers names it.
std::string reward_architecture(const FamilyName& name) {
  if (name.family == Family::gemma3) return "Gemma3TextForSequenceClassification";  // the other name has images
  std::string stem(name.architecture);
  for (const std::string_view ending : {"ForCausalLM", "LMHeadModel"})
    if (stem.ends_with(ending)) stem.resize(stem.size() - ending.size());
  return stem + std::string(kClassifier);
}

void set_score(ModelSpec& s) {
  s.head = HeadKind::score;
  s.tied_head = false;  // no table is the head
  s.logit_softcap = 0;
}

// A model that classifies sequences is one with a score where it has one label.
void read_head(HfFields& f, ModelSpec& s) {
  const Json& json = f.fields().json();
  const auto names = json.find("architectures");
  if (names == json.end() || !names->is_array() || names->empty() || !(*names)[0].is_string()) return;
  const auto given = (*names)[0].get<std::string>();
  if (!given.ends_with(kClassifier)) return;
  const FamilyName& name = name_of_family(s.family);
  if (const std::string known = reward_architecture(name); given != known)
    f.refuse("architectures", fmt::format("of {} weft has {} and {}", name.model_type, name.architecture, known));
  constexpr std::string_view kOne = "weft has a score of one label: a reward model";
  if (f.has("num_labels") && f.integer("num_labels", hf_ranges::kSize) != 1) f.refuse("num_labels", kOne);
  if (f.has("id2label") && f.value("id2label").size() != 1) f.refuse("id2label", kOne);
  if (!f.has("num_labels") && !f.has("id2label")) f.refuse("id2label", "it stands for two labels; a score has one");
  set_score(s);
}

using namespace hf_ranges;
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
  if (s.rope && s.rope->width == 0 && s.rope_width() % 2 != 0)
    throw ConfigError(fmt::format("{}: heads of {} numbers cannot be rotated in pairs",
                                  fields.fields().where(fields.was_taken("head_dim") ? "head_dim" : heads_key),
                                  s.rope_width()));
  const double d = double(s.width),
               experts = double(s.experts.count) * double(s.experts.width) + double(s.experts.shared_width),
               per_layer = attention_weights(s) + d * 3.0 * (double(s.ffn_width) + experts);
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

// null stands for as many as query heads.
int64_t read_kv_heads(HfFields& f, Family family, int64_t num_heads) {
  const int64_t usual = usual_of(family).kv_heads;
  const bool as_queries = !f.absent("num_key_value_heads") || usual == 0;
  return f.integer("num_key_value_heads", kWidth, as_queries ? num_heads : usual);
}

int64_t read_head_dim(HfFields& f, Family family, const ModelSpec& s) {
  if (f.has("head_dim")) return f.integer("head_dim", kWidth);
  const int64_t usual = usual_of(family).head_dim;
  return usual > 0 && f.absent("head_dim") ? usual : divided(f, "num_attention_heads", s.width, s.num_heads);
}

void read_biases(HfFields& f, ModelSpec& s) {
  if (s.family == Family::qwen2_moe) {
    s.qkv_bias = f.flag("qkv_bias", true);
    f.take("attention_bias");  // its layers do not ask for it
  } else if (s.family == Family::qwen2) {
    s.qkv_bias = true;  // whatever the two say: its layers have no other form
    f.take("attention_bias");
    f.take("qkv_bias");
  } else if (s.family != Family::mistral && s.family != Family::mixtral && s.family != Family::phi3) {
    s.qkv_bias = s.attention_out_bias = f.flag("attention_bias", s.family == Family::gpt_oss);
  }
  if (s.family == Family::llama) s.mlp_bias = f.flag("mlp_bias", false);
}

void read_silu(HfFields& f) {
  if (const std::string act = f.string("hidden_act", "silu"); act != "silu" && act != "swish")
    f.refuse("hidden_act", "weft does silu");
}

// Rotations, windows and norms of every block.
void read_layers(HfFields& f, ModelSpec& s, const LayerSpec& like, const RopePair& rope) {
  for (const int64_t window : read_windows(f, s.family, s.num_layers)) {
    LayerSpec& layer = s.layers.emplace_back(like);
    layer.rope = window > 0 ? rope.sliding : rope.full;
    layer.window = window;
  }
  s.rope = rope.full;
}

RopeSizes rope_sizes(const ModelSpec& s) {
  return {.head_dim = s.head_dim,
          .max_positions = s.max_positions,
          .usual_theta = usual_of(s.family).rope_theta,
          .partial = s.family == Family::phi3};
}

void read_phi3(HfFields& f, ModelSpec& s) {
  s.dropout.hidden = f.number("resid_pdrop", kProbability, 0);
  if (f.number("embd_pdrop", kProbability, 0) != 0) f.refuse("embd_pdrop", "weft does not drop embeddings of phi3");
  f.take("original_max_position_embeddings");  // of longrope
}

void read_gpt_oss(HfFields& f, ModelSpec& s) {
  s.attention_sinks = true;
  if (f.has("quantization_config"))
    f.refuse("quantization_config", fmt::format("weft reads no MXFP4 weights: {}", kMxfp4Advice));
  if (f.absent("rope_scaling") && f.absent("rope_parameters"))
    f.refuse("rope_scaling", "write down which scaling it is, or null");
  f.take("initial_context_length");  // of the published model, as original_max_position_embeddings
}

void read_olmo2(ModelSpec& s, LayerSpec& layer) {
  layer.norm_before = false, layer.norm_behind = true;
  s.qk_norm = QkNorm::all;
}

void read_cap(HfFields& f, std::string_view key, double usual, double& cap) {
  cap = f.number(key, {.min = 1e-6}, f.absent(key) ? usual : 0);
}

// 0 stands for no cap.
void read_gemma(HfFields& f, ModelSpec& s, LayerSpec& layer) {
  const std::string act = f.string("hidden_activation", "gelu_pytorch_tanh");
  if (act != "gelu_pytorch_tanh") f.refuse("hidden_activation", "weft does gelu_pytorch_tanh");
  if (f.has("hidden_act") && f.string("hidden_act") != act) f.refuse("hidden_act", "hidden_activation says otherwise");
  if (f.flag("use_bidirectional_attention", false)) f.refuse("use_bidirectional_attention", "weft attends causally");
  layer.norm_behind = true;
  s.mlp = layer.mlp = MlpKind::geglu_tanh;
  s.norm_offset = 1;
  s.embedding_scale = std::sqrt(double(s.width));
  s.attention_scale = 1 / std::sqrt(f.number("query_pre_attn_scalar", {.min = 1e-6}, 256));
  const bool two = s.family == Family::gemma2;
  read_cap(f, "attn_logit_softcapping", two ? 50 : 0, s.attention_softcap);
  read_cap(f, "final_logit_softcapping", two ? 30 : 0, s.logit_softcap);
  if (!two) s.qk_norm = QkNorm::heads;
}

// Llama and those built like it.
ModelSpec read_llama_like(HfFields& f, Family family) {
  const Usual usual = usual_of(family);
  ModelSpec s;
  s.family = family;
  s.vocab_size = f.integer("vocab_size", kSize);
  s.width = f.integer("hidden_size", kWidth);
  s.num_layers = f.integer("num_hidden_layers", kLayers);
  s.num_heads = f.integer("num_attention_heads", kWidth);
  s.num_kv_heads = read_kv_heads(f, family, s.num_heads);
  s.head_dim = read_head_dim(f, family, s);
  s.ffn_width = f.integer("intermediate_size", kSize);
  s.max_positions = f.integer("max_position_embeddings", kSize, usual.max_positions);
  s.norm_eps = f.number("rms_norm_eps", {.max = 1}, usual.norm_eps);
  read_biases(f, s);
  s.tied_head = f.flag("tie_word_embeddings", usual.tied);
  s.init_std = f.number("initializer_range", {.max = 100}, 0.02);
  s.dropout.attention = f.number("attention_dropout", kProbability, 0);
  LayerSpec layer;
  const bool gemma = family == Family::gemma2 || family == Family::gemma3;
  gemma ? read_gemma(f, s, layer) : read_silu(f);
  if (family == Family::phi3) read_phi3(f, s);
  if (family == Family::olmo2) read_olmo2(s, layer);
  if (family == Family::gpt_oss) read_gpt_oss(f, s);
  if (family == Family::qwen3 || family == Family::qwen3_moe) s.qk_norm = QkNorm::heads;
  if (family == Family::gemma3) {
    read_layers(f, s, layer, read_rope_pair(f, rope_sizes(s)));
  } else {
    const RopeSpec rope = read_rope(f, rope_sizes(s));
    read_layers(f, s, layer, {rope, rope});
  }
  read_experts(f, s);
  check_sizes(s, f, "num_attention_heads", "hidden_size");
  return s;
}

ModelSpec read_spec(HfFields& f, Family family) {
  if (family == Family::gpt2) return read_gpt2(f);
  if (family != Family::deepseek_v2 && family != Family::deepseek_v3) return read_llama_like(f, family);
  ModelSpec s = read_deepseek(f, family);
  check_sizes(s, f, "num_attention_heads", "hidden_size");
  return s;
}

constexpr const char* kModules = "num_nextn_predict_layers";

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

// Whether its matrices are in codes that weft reads: whoever opens them reads how.
bool read_codes(HfFields& f, std::string_view source) {
  const Json* how = f.fields().find(kQuantisationKey);
  if (how == nullptr || !is_gptq(*how)) return false;
  read_gptq_format(f.value(kQuantisationKey), source);
  return true;
}

}  // namespace

std::string_view model_type_of(Family family) { return name_of_family(family).model_type; }

void train_mtp(HfConfig& config, double loss_coef) {
  if (loss_coef == 0) return;
  ModelSpec& spec = config.spec;
  if (spec.has_mtp()) {  // the config of a plan, from which another one is made
    spec.mtp_loss_coef = loss_coef;
    return;
  }
  if (spec.unread_layers != 1)
    throw ConfigError(fmt::format(
        "train.mtp_loss_coef = {}: weft trains one module of multi-token prediction, as DeepSeek's models have it "
        "(num_nextn_predict_layers = 1 in config.json); this model has {}",
        loss_coef, spec.unread_layers == 0 ? "none" : std::to_string(spec.unread_layers)));
  spec.mtp_loss_coef = loss_coef;
  spec.unread_layers = 0;
  std::erase_if(config.warnings, [](const std::string& w) { return w.find(kModules) != w.npos; });
}

void make_reward_model(HfConfig& config) {
  ModelSpec& spec = config.spec;
  if (spec.head == HeadKind::score) return;
  set_score(spec);
  spec.begins_score = true;
  config.json["architectures"] = Json::array({reward_architecture(name_of_family(spec.family))});
  config.json["num_labels"] = 1;
  config.json["id2label"] = {{"0", "LABEL_0"}};
  config.json["label2id"] = {{"LABEL_0", 0}};
}

void require_vocabulary_head(const ModelSpec& model, std::string_view what) {
  if (model.head != HeadKind::score) return;
  throw ConfigError(
      fmt::format("{} is a reward model: its config.json has the architecture {}, which gives scores and no text; the "
                  "nearest that works: a model with the architecture {}",
                  what, reward_architecture(name_of_family(model.family)), name_of_family(model.family).architecture));
}

HfConfig parse_hf_config(Json json, std::string_view source) {
  HfConfig config;
  config.json = std::move(json);
  HfFields fields(JsonFields(config.json, std::string(source)));
  const Family family = read_family(fields);
  config.spec = read_spec(fields, family);
  read_head(fields, config.spec);
  const bool in_codes = read_codes(fields, source);
  config.warnings = judge_other_fields(fields);
  if (in_codes)
    config.warnings.push_back(fields.fields().where(kQuantisationKey) +
                              ": weights in codes are read as the numbers that they stand for, and written as such");
  if (config.spec.unread_layers > 0)
    config.warnings.push_back(fields.fields().where(kModules) +
                              ": the modules that predict further tokens are neither trained nor written "
                              "(train.mtp_loss_coef trains one)");
  if (config.spec.experts.aux_loss_coef > 0 && fields.has("router_aux_loss_coef"))
    config.warnings.push_back(fields.fields().where("router_aux_loss_coef") +
                              ": weft balances each sequence in each layer and adds layers up, where transformers has "
                              "one loss of all of them; moe.aux_loss_coef may set another factor");
  return config;
}

void adapt(HfConfig& config, PeftConfig adapter, std::string_view source) {
  config.spec.adapter = adapter_of(config.spec, adapter, source);
  config.adapter = std::move(adapter);
}

HfConfig read_hf_config(const std::filesystem::path& folder_or_file) {
  if (is_gguf(folder_or_file)) return read_gguf_config(folder_or_file);
  if (is_adapter_folder(folder_or_file)) {
    PeftConfig adapter = read_peft_config(folder_or_file);
    HfConfig config = read_hf_config(base_of_adapter(folder_or_file, adapter));
    if (adapter.trains_score) make_reward_model(config);
    adapt(config, std::move(adapter), (folder_or_file / "adapter_config.json").string());
    return config;
  }
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(folder_or_file, ignored);
  const std::filesystem::path file = folder ? folder_or_file / "config.json" : folder_or_file;
  if (folder) require_saved(folder_or_file, "config.json");
  return parse_hf_config(read_json_file(file, {.max_bytes = 4 << 20}), file.string());
}

void require_no_file_of_weights(const std::filesystem::path& path, std::string_view what) {
  if (is_gguf(path)) return;
  const std::string name = path.filename().string();
  bool weights = name.ends_with(".index.json");
  for (const char* ending : {".safetensors", ".bin", ".pt", ".pth", ".gguf"})
    weights = weights || name.ends_with(ending);
  std::error_code ignored;
  if (!weights || !std::filesystem::is_regular_file(path, ignored)) return;
  if (name.ends_with(".gguf"))
    throw ConfigError(fmt::format("{} = {} is no GGUF file: it does not begin with \"GGUF\"; fetch it again", what,
                                  in_quotes(path.string())));
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const bool readable = name.find(".safetensors") != name.npos;
  throw ConfigError(
      fmt::format("{} = {} is a file of weights; a model is a folder with config.json and weights in safetensors, or a "
                  "GGUF file: {}",
                  what, in_quotes(path.string()),
                  readable ? fmt::format("name {}", in_quotes(folder.string()))
                           : "convert it to safetensors first, and name the folder"));
}

namespace {

// RUN/checkpoints/step-N with the largest N; empty: there is none.
std::filesystem::path newest_by_name(const std::filesystem::path& run) {
  std::filesystem::path newest;
  int64_t most = -1;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    int64_t step = -1;
    if (!name.starts_with("step-")) continue;
    const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (error != std::errc() || end != name.data() + name.size() || step <= most) continue;
    most = step;
    newest = entry.path();
  }
  return newest;
}

}  // namespace

void require_no_run_folder(const std::filesystem::path& path, std::string_view what) {
  std::error_code ignored;
  const auto has = [&](const char* name) { return std::filesystem::exists(path / name, ignored); };
  if (!has("recipe.toml") || has("config.json") || has("adapter_config.json")) return;
  const std::filesystem::path newest = newest_by_name(path);
  throw ConfigError(fmt::format("{} = {} is a run's folder: {}", what, in_quotes(path.string()),
                                newest.empty() ? "it has no checkpoint yet; name a folder with weights"
                                               : "name one of its checkpoints, as " + newest.string()));
}

Json hf_config_of(const HfConfig& config, DType dtype) {
  Json json = config.json;
  json.erase(kQuantisationKey);
  // The name that the file already uses; newer versions of transformers write "dtype".
  json[json.contains("dtype") && !json.contains("torch_dtype") ? "dtype" : "torch_dtype"] = torch_name_of(dtype);
  if (config.spec.unread_layers > 0) json[kModules] = 0;
  if (const auto names = json.find("architectures"); names == json.end() || !names->is_array() || names->empty())
    json["architectures"] = Json::array({name_of_family(config.spec.family).architecture});
  return json;
}

}  // namespace weft
