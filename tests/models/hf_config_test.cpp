#include "weft/models/hf_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support.h"
#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

Json llama(const Json& more = Json::object()) {
  Json json = {{"model_type", "llama"},  {"vocab_size", 100},        {"hidden_size", 64},
               {"num_hidden_layers", 4}, {"num_attention_heads", 8}, {"intermediate_size", 176}};
  json.update(more);
  return json;
}

Json gpt2(const Json& more = Json::object()) {
  Json json = {{"model_type", "gpt2"}, {"vocab_size", 100}, {"n_embd", 64}, {"n_layer", 8}, {"n_head", 4}};
  json.update(more);
  return json;
}

Json as(const char* model_type, const Json& more = Json::object()) {
  Json json = llama(more);
  json["model_type"] = model_type;
  return json;
}

ModelSpec spec(const Json& json) { return parse_hf_config(json, "config.json").spec; }

std::vector<int64_t> windows_of(const ModelSpec& m) {
  std::vector<int64_t> windows;
  for (int64_t l = 0; l < m.num_layers; ++l) windows.push_back(m.layer(l).window);
  return windows;
}

std::string error(const Json& json) {
  return testing::error_of<Error>([&] { parse_hf_config(json, "config.json"); });
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

#define EXPECT_REFUSED(part, ...) EXPECT_TRUE(contains(error(__VA_ARGS__), part)) << error(__VA_ARGS__)

TEST(HfConfig, AbsentFieldsHaveTheValuesOfTransformers) {
  const ModelSpec s = spec(llama());
  EXPECT_EQ(s.num_kv_heads, 8);
  EXPECT_EQ(s.head_dim, 8);
  EXPECT_EQ(s.max_positions, 2048);
  EXPECT_EQ(s.norm_eps, 1e-6);
  EXPECT_EQ(s.rope->theta, 10000);
  EXPECT_EQ(s.rope->scaling, RopeSpec::Scaling::none);
  EXPECT_EQ(s.init_std, 0.02);
  EXPECT_EQ(s.residual_init_scale, 1);
  EXPECT_FALSE(s.tied_head || s.qkv_bias || s.attention_out_bias || s.mlp_bias || s.qk_norm != QkNorm::none ||
               s.learned_positions);
  EXPECT_EQ(windows_of(s), std::vector<int64_t>(4, 0));
  EXPECT_EQ(s.dropout.attention, 0);
  const ModelSpec mixtral = spec(as("mixtral"));
  EXPECT_EQ(mixtral.norm_eps, 1e-5);
  EXPECT_EQ(mixtral.rope->theta, 1e6);
}

TEST(HfConfig, LlamaFields) {
  const ModelSpec s = spec(llama({{"num_key_value_heads", 2},
                                  {"head_dim", 16},
                                  {"attention_bias", true},
                                  {"mlp_bias", true},
                                  {"tie_word_embeddings", true},
                                  {"rope_theta", 500000},
                                  {"attention_dropout", 0.1},
                                  {"hidden_act", "silu"}}));
  EXPECT_EQ(s.num_kv_heads, 2);
  EXPECT_EQ(s.q_width(), 128);
  EXPECT_TRUE(s.qkv_bias && s.attention_out_bias && s.mlp_bias && s.tied_head);
  EXPECT_EQ(s.rope->theta, 500000);
  EXPECT_EQ(s.dropout.attention, 0.1);
  EXPECT_EQ(spec(llama({{"num_key_value_heads", nullptr}, {"head_dim", nullptr}})).num_kv_heads, 8);
}

TEST(HfConfig, Gpt2Fields) {
  const ModelSpec s = spec(gpt2());
  EXPECT_EQ(s.ffn_width, 256);
  EXPECT_EQ(s.max_positions, 1024);
  EXPECT_EQ(s.norm, NormKind::layer_norm);
  EXPECT_EQ(s.norm_eps, 1e-5);
  EXPECT_EQ(s.mlp, MlpKind::gelu_tanh);
  EXPECT_TRUE(s.tied_head && s.learned_positions && s.qkv_bias && s.attention_out_bias && s.mlp_bias);
  EXPECT_FALSE(s.rope.has_value());
  EXPECT_EQ(s.residual_init_scale, 0.25);
  EXPECT_EQ(s.dropout.embedding + s.dropout.hidden + s.dropout.attention, 0);
  const ModelSpec other = spec(gpt2({{"n_inner", 100},
                                     {"activation_function", "gelu"},
                                     {"tie_word_embeddings", false},
                                     {"embd_pdrop", 0.1},
                                     {"resid_pdrop", 0.2},
                                     {"attn_pdrop", 0.3},
                                     {"n_positions", 77}}));
  EXPECT_EQ(other.ffn_width, 100);
  EXPECT_EQ(other.mlp, MlpKind::gelu_erf);
  EXPECT_FALSE(other.tied_head);
  EXPECT_EQ(other.dropout.embedding, 0.1);
  EXPECT_EQ(other.dropout.hidden, 0.2);
  EXPECT_EQ(other.dropout.attention, 0.3);
  EXPECT_EQ(other.max_positions, 77);
}

TEST(HfConfig, ExpertsOfMixtralAndQwen) {
  ModelSpec s = spec(llama({{"model_type", "mixtral"}, {"num_local_experts", 6}, {"router_aux_loss_coef", 0.02}}));
  EXPECT_EQ(s.experts.count, 6);
  EXPECT_EQ(s.experts.chosen, 2);
  EXPECT_EQ(s.experts.width, s.ffn_width);
  EXPECT_TRUE(s.experts.routing.normalise && s.layer(0).experts && s.layer(3).experts);
  EXPECT_EQ(s.experts.aux_loss_coef, 0) << "transformers adds the loss only with output_router_logits";
  const HfConfig balanced = parse_hf_config(
      llama({{"model_type", "mixtral"}, {"router_aux_loss_coef", 0.02}, {"output_router_logits", true}}),
      "config.json");
  EXPECT_EQ(balanced.spec.experts.aux_loss_coef, 0.02);
  ASSERT_EQ(balanced.warnings.size(), 1u);
  EXPECT_TRUE(contains(balanced.warnings[0], "weft balances each sequence in each layer")) << balanced.warnings[0];
  s = spec(llama(
      {{"model_type", "qwen2_moe"}, {"num_key_value_heads", 4}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {1}}}));
  EXPECT_EQ(s.experts.shared_width, 5632);
  EXPECT_TRUE(s.experts.shared_gate && s.qkv_bias && !s.experts.routing.normalise);
  EXPECT_FALSE(s.layer(0).experts || s.layer(1).experts || s.layer(2).experts);
  EXPECT_TRUE(s.layer(3).experts);
  s = spec(llama({{"model_type", "qwen3_moe"}, {"norm_topk_prob", true}}));
  EXPECT_EQ(s.experts.count, 128);
  EXPECT_EQ(s.experts.shared_width, 0);
  EXPECT_TRUE(s.qk_norm == QkNorm::heads && s.experts.routing.normalise && s.layer(0).experts);
  EXPECT_REFUSED("\"num_experts_per_tok\": of 4 experts a token cannot have 5",
                 llama({{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts_per_tok", 5}}));
}

TEST(HfConfig, Gpt2SizesHaveTwoNamesThatMustAgree) {
  Json json = gpt2({{"hidden_size", 64}, {"num_hidden_layers", 8}, {"num_attention_heads", 4}});
  EXPECT_EQ(spec(json).width, 64);
  json.erase("n_embd");
  EXPECT_EQ(spec(json).width, 64);
  EXPECT_REFUSED("\"hidden_size\": 32 is not supported: n_embd says something else", gpt2({{"hidden_size", 32}}));
}

TEST(HfConfig, QwenFields) {
  const ModelSpec two = spec(as("qwen2", {{"num_key_value_heads", 2}}));
  EXPECT_TRUE(two.qkv_bias);
  EXPECT_FALSE(two.attention_out_bias || two.qk_norm != QkNorm::none);
  const ModelSpec three = spec(as("qwen3", {{"num_key_value_heads", 2}}));
  EXPECT_EQ(three.qk_norm, QkNorm::heads);
  EXPECT_FALSE(three.qkv_bias);
  EXPECT_EQ(three.head_dim, 128);
  EXPECT_TRUE(spec(as("qwen3", {{"num_key_value_heads", 2}, {"attention_bias", true}})).attention_out_bias);
  // transformers takes 32 here, whatever the number of query heads
  EXPECT_REFUSED("8 heads cannot share 32 heads of keys and values", as("qwen2"));
}

TEST(HfConfig, GptOss) {
  const Json yarn = {
      {"rope_type", "yarn"}, {"factor", 32.0}, {"truncate", false}, {"original_max_position_embeddings", 4096}};
  const auto with = [&](const Json& more) {
    Json json = as("gpt_oss", {{"rope_scaling", yarn}, {"num_local_experts", 6}, {"experts_per_token", 2}});
    json.update(more);
    return json;
  };
  const ModelSpec s = spec(with(Json::object()));
  EXPECT_TRUE(s.attention_sinks && s.qkv_bias && s.attention_out_bias && s.layer(3).experts);
  EXPECT_EQ(s.head_dim, 64);
  EXPECT_EQ(windows_of(s), (std::vector<int64_t>{128, 0, 128, 0}));
  EXPECT_EQ(s.experts.routing, (Routing{.normalise = true}));
  EXPECT_TRUE(s.experts.bias && s.experts.clamp == 7 && s.experts.chosen == 2);
  EXPECT_FALSE(s.rope->truncate);
  EXPECT_EQ(s.rope->theta, 150000);
  EXPECT_REFUSED("\"experts_per_token\": 2 is not supported", with({{"num_experts_per_tok", 3}}));
  EXPECT_REFUSED("\"quantization_config\"", with({{"quantization_config", {{"quant_method", "mxfp4"}}}}));
  EXPECT_REFUSED("dequantize=True", with({{"quantization_config", {{"quant_method", "mxfp4"}}}}));
  Json without = with(Json::object());
  without.erase("rope_scaling");
  EXPECT_REFUSED("\"rope_scaling\": its absence is not supported", without);
}

Json deepseek(const Json& more = Json::object()) {
  return as("deepseek_v3", [&] {
    Json json = {{"q_lora_rank", 24},          {"kv_lora_rank", 16},    {"qk_nope_head_dim", 12},
                 {"qk_rope_head_dim", 8},      {"v_head_dim", 10},      {"n_group", 4},
                 {"first_k_dense_replace", 4}, {"n_routed_experts", 8}, {"topk_method", "noaux_tc"}};
    json.update(more);
    return json;
  }());
}

TEST(HfConfig, DeepseekFields) {
  const ModelSpec s = spec(deepseek());
  ASSERT_TRUE(s.latent);
  EXPECT_EQ(*s.latent, (LatentSpec{.q_rank = 24, .kv_rank = 16, .nope_dim = 12, .rope_dim = 8, .v_dim = 10}));
  EXPECT_EQ(s.num_kv_heads, 8);
  EXPECT_EQ(s.head_dim, 20);
  EXPECT_EQ(s.result_width(), 80);
  EXPECT_EQ(s.rope_width(), 8);
  EXPECT_EQ(s.max_positions, 4096);
  EXPECT_EQ(attention_weights(s), 64 * 24 + 24 * 160 + 64 * 24 + 16 * 8 * 22 + 80 * 64);
  EXPECT_EQ(spec(deepseek({{"q_lora_rank", nullptr}})).latent->q_rank, 0);
  const Json yarn = {{"type", "yarn"},
                     {"factor", 40.0},
                     {"mscale", 0.5},
                     {"mscale_all_dim", 0.5},
                     {"original_max_position_embeddings", 64}};
  const ModelSpec slowed = spec(deepseek({{"rope_scaling", yarn}}));
  EXPECT_NEAR(slowed.latent->score_factor, std::pow(0.05 * std::log(40) + 1, 2), 1e-12);
  EXPECT_NEAR(slowed.rope->magnitude, 1, 1e-12);
  EXPECT_FALSE(spec(deepseek({{"rope_interleave", false}})).latent->interleaved);
  EXPECT_EQ(error(deepseek({{"head_dim", 8}, {"qk_head_dim", 20}, {"n_routed_experts", nullptr}})), "");
  Json without = deepseek();
  without.erase("q_lora_rank");
  EXPECT_REFUSED("\"q_lora_rank\": is missing", without);
  EXPECT_REFUSED("\"qk_rope_head_dim\": 7 is not supported", deepseek({{"qk_rope_head_dim", 7}}));
  EXPECT_REFUSED("\"qk_head_dim\": 8 is not supported", deepseek({{"qk_head_dim", 8}}));
  EXPECT_REFUSED("\"head_dim\": 12 is not supported", deepseek({{"head_dim", 12}}));
  EXPECT_REFUSED("\"num_key_value_heads\": 2 is not supported", deepseek({{"num_key_value_heads", 2}}));
  EXPECT_REFUSED("\"attention_bias\": true is not supported", deepseek({{"attention_bias", true}}));
  EXPECT_FALSE(s.has_experts());
  EXPECT_FALSE(spec(deepseek({{"first_k_dense_replace", 1}, {"n_routed_experts", nullptr}})).has_experts());
}

TEST(HfConfig, ExpertsOfDeepseekV3) {
  const ModelSpec s = spec(deepseek({{"first_k_dense_replace", 1},
                                     {"moe_layer_freq", 2},
                                     {"moe_intermediate_size", 6},
                                     {"topk_group", 2},
                                     {"num_experts_per_tok", 3},
                                     {"n_shared_experts", 2},
                                     {"aux_loss_alpha", 0.001}}));
  EXPECT_FALSE(s.layer(0).experts || s.layer(1).experts || s.layer(3).experts);
  EXPECT_TRUE(s.layer(2).experts && s.layer(2).rope && s.experts.correction && !s.experts.shared_gate);
  EXPECT_EQ(s.experts.routing,
            (Routing{.sigmoid = true, .normalise = true, .scale = 2.5, .groups = 4, .top_groups = 2, .by_two = true}));
  EXPECT_EQ(s.experts.width, 6);
  EXPECT_EQ(s.experts.shared_width, 12);
  EXPECT_EQ(s.experts.aux_loss_coef, 0.001);
  const auto with = [](const Json& more) {
    Json json = {{"first_k_dense_replace", 1}, {"topk_group", 2}, {"num_experts_per_tok", 3}};
    json.update(more);
    return deepseek(json);
  };
  EXPECT_EQ(spec(with({{"aux_loss_alpha", 0.1}, {"seq_aux", false}})).experts.global_aux_loss_coef, 0.1);
  EXPECT_EQ(spec(with({{"aux_loss_alpha", 0.1}, {"seq_aux", false}})).experts.aux_loss_coef, 0);
  EXPECT_REFUSED("\"scoring_func\": \"softmax\" is not supported", with({{"scoring_func", "softmax"}}));
  EXPECT_REFUSED("\"topk_method\": \"greedy\" is not supported", with({{"topk_method", "greedy"}}));
  EXPECT_REFUSED("\"n_group\": 3 is not supported", with({{"n_group", 3}}));
  EXPECT_REFUSED("\"topk_group\": 5 is not supported", with({{"topk_group", 5}}));
  EXPECT_REFUSED("\"num_experts_per_tok\": 5 is not supported", with({{"num_experts_per_tok", 5}}));
}

TEST(HfConfig, ExpertsOfDeepseekV2) {
  const auto with = [](const Json& more) {
    Json json = deepseek({{"topk_method", "greedy"}, {"first_k_dense_replace", 1}});
    json["model_type"] = "deepseek_v2";
    json.update({{"num_experts_per_tok", 3}, {"n_shared_experts", nullptr}, {"routed_scaling_factor", 16}});
    json.update(more);
    return json;
  };
  const ExpertsSpec e = spec(with(Json::object())).experts;
  EXPECT_EQ(e.routing, (Routing{.scale = 16})) << "greedy knows no groups";
  EXPECT_EQ(e.width, 1407);
  EXPECT_EQ(e.shared_width, 0);
  EXPECT_FALSE(e.correction);
  EXPECT_EQ(spec(with({{"norm_topk_prob", true}})).experts.routing, (Routing{.normalise = true}));
  EXPECT_EQ(spec(with({{"topk_method", "group_limited_greedy"}, {"topk_group", 2}})).experts.routing,
            (Routing{.scale = 16, .groups = 4, .top_groups = 2}));
  EXPECT_REFUSED("\"topk_method\": \"noaux_tc\" is not supported", with({{"topk_method", "noaux_tc"}}));
  EXPECT_REFUSED("\"topk_group\": is missing", with({{"topk_method", "group_limited_greedy"}}));
}

TEST(HfConfig, ModulesThatPredictFurtherTokensAreToldOfAndNotWritten) {
  const HfConfig config = parse_hf_config(deepseek({{"num_nextn_predict_layers", 1}}), "config.json");
  EXPECT_EQ(config.spec.unread_layers, 1);
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_TRUE(contains(config.warnings[0], "\"num_nextn_predict_layers\"")) << config.warnings[0];
  EXPECT_EQ(hf_config_of(config, DType::f32)["num_nextn_predict_layers"], 0);
}

TEST(HfConfig, AModuleThatPredictsFurtherTokensIsTrainedWhereItsLossHasAFactor) {
  const auto given = [](const nlohmann::json& more) { return parse_hf_config(deepseek(more), "config.json"); };
  HfConfig config = given({{"num_nextn_predict_layers", 1}});
  train_mtp(config, 0);
  EXPECT_FALSE(config.spec.has_mtp());
  EXPECT_EQ(config.warnings.size(), 1u);
  train_mtp(config, 0.3);
  EXPECT_TRUE(config.spec.has_mtp());
  EXPECT_EQ(config.spec.unread_layers, 0);
  EXPECT_TRUE(config.warnings.empty());
  EXPECT_EQ(hf_config_of(config, DType::f32)["num_nextn_predict_layers"], 1);
  for (const int64_t modules : {0, 2}) {
    HfConfig other = given({{"num_nextn_predict_layers", modules}});
    EXPECT_THROW(train_mtp(other, 0.3), ConfigError) << modules;
  }
  const nlohmann::json experts{{"num_nextn_predict_layers", 1}, {"n_routed_experts", 8}, {"n_group", 4}};
  for (const int64_t dense : {0, 1, 4, 5}) {
    nlohmann::json json = experts;
    json["first_k_dense_replace"] = dense;
    EXPECT_EQ(given(json).spec.mtp_block.experts, dense <= 4) << dense;
  }
}

TEST(HfConfig, WindowsOfMistral) {
  EXPECT_EQ(windows_of(spec(as("mistral"))), std::vector<int64_t>(4, 4096));
  EXPECT_EQ(windows_of(spec(as("mistral", {{"sliding_window", nullptr}}))), std::vector<int64_t>(4, 0));
  EXPECT_EQ(windows_of(spec(as("mistral", {{"sliding_window", 24}}))), std::vector<int64_t>(4, 24));
  EXPECT_REFUSED("\"use_sliding_window\": false",
                 as("mistral", {{"sliding_window", 24}, {"use_sliding_window", false}}));
  EXPECT_REFUSED("\"sliding_window\": expected", as("mistral", {{"sliding_window", 0}}));
  EXPECT_REFUSED("\"sliding_window\": 24 is not supported", llama({{"sliding_window", 24}}));
  EXPECT_EQ(spec(llama({{"sliding_window", 24}, {"use_sliding_window", false}})).layer(0).window, 0);
}

TEST(HfConfig, WindowsOfQwen) {
  const auto windows = [](Json more) {
    more["num_key_value_heads"] = 2;
    return windows_of(spec(as("qwen2", more)));
  };
  EXPECT_EQ(windows({{"sliding_window", 8}}), std::vector<int64_t>(4, 0));
  EXPECT_EQ(windows({{"sliding_window", 8}, {"use_sliding_window", true}, {"max_window_layers", 3}}),
            (std::vector<int64_t>{0, 0, 0, 8}));
  EXPECT_EQ(windows({{"use_sliding_window", true}, {"max_window_layers", 0}}), std::vector<int64_t>(4, 4096));
  EXPECT_EQ(windows({{"use_sliding_window", true}}), std::vector<int64_t>(4, 0));  // 28 layers come first
  const Json types = {"full_attention", "sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(windows({{"sliding_window", 8}, {"use_sliding_window", true}, {"layer_types", types}}),
            (std::vector<int64_t>{0, 8, 0, 8}));
  EXPECT_REFUSED("\"layer_types\"", as("qwen2", {{"num_key_value_heads", 2}, {"layer_types", types}}));
  EXPECT_REFUSED("chunked_attention",
                 as("qwen3", {{"num_key_value_heads", 2},
                              {"layer_types", Json(std::vector<std::string>(4, "chunked_attention"))}}));
  EXPECT_REFUSED("one name for each of the 4 layers",
                 as("qwen3", {{"num_key_value_heads", 2}, {"layer_types", {"full_attention"}}}));
  for (const char* family : {"qwen2_moe", "qwen3_moe"}) {
    Json moe = {{"num_key_value_heads", 2}, {"use_sliding_window", true}, {"sliding_window", 8}};
    EXPECT_REFUSED("say by layer_types which layers", as(family, moe));
    moe["layer_types"] = types;
    EXPECT_EQ(windows_of(spec(as(family, moe))), (std::vector<int64_t>{0, 8, 0, 8}));
  }
  EXPECT_REFUSED("all layers of this kind", llama({{"layer_types", types}}));
  EXPECT_EQ(error(llama({{"layer_types", Json(std::vector<std::string>(4, "full_attention"))}})), "");
}

TEST(HfConfig, RopeScaling) {
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const ModelSpec s = spec(llama({{key, llama3}, {"rope_theta", 500000.0}}));
    EXPECT_EQ(s.rope->scaling, RopeSpec::Scaling::llama3);
    EXPECT_EQ(s.rope->theta, 500000);
    EXPECT_EQ(s.rope->factor, 8);
    EXPECT_EQ(s.rope->original_positions, 8192);
  }
  const ModelSpec linear = spec(llama({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}));
  EXPECT_EQ(linear.rope->scaling, RopeSpec::Scaling::linear);
  EXPECT_EQ(linear.rope->factor, 2);
  EXPECT_EQ(spec(llama({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}}}})).rope->theta, 7);
}

TEST(HfConfig, RefusesRopeThatItDoesNotDo) {
  for (const char* type : {"dynamic", "mrope", "ntk"})
    for (const char* key : {"type", "rope_type"})
      EXPECT_REFUSED(
          fmt::format("\"rope_scaling.{}\": \"{}\" is not supported: weft does default, linear, llama3, yarn "
                      "and longrope",
                      key, type),
          llama({{"rope_scaling", {{key, type}, {"factor", 2.0}}}}));
  EXPECT_REFUSED("\"rope_scaling.short_factor\": is missing",
                 llama({{"rope_scaling", {{"type", "longrope"}, {"factor", 2.0}}}}));
  EXPECT_REFUSED(
      "\"rope_scaling.short_factor\": expected 4 positive numbers",
      llama({{"rope_scaling", {{"type", "su"}, {"short_factor", {1, 2, 0, 4}}, {"long_factor", {1, 2, 3, 4}}}}}));
  EXPECT_REFUSED(
      "\"rope_scaling.beta_fast\": 1.0",
      llama({{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"beta_fast", 1.0}, {"beta_slow", 2.0}}}}));
  EXPECT_REFUSED("\"rope_scaling.low_freq_factor\"",
                 llama({{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"low_freq_factor", 1.0}}}}));
  EXPECT_REFUSED("\"rope_scaling.factor\": is missing", llama({{"rope_scaling", {{"type", "linear"}}}}));
  EXPECT_REFUSED("\"rope_scaling.factor\": expected", llama({{"rope_scaling", {{"type", "linear"}, {"factor", 0}}}}));
  EXPECT_REFUSED("\"rope_scaling.mscale\": 2",
                 llama({{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"mscale", 2}}}}));
  EXPECT_REFUSED("\"rope_scaling\": expected an object", llama({{"rope_scaling", "linear"}}));
  EXPECT_REFUSED("\"rope_theta\": 5",
                 llama({{"rope_theta", 5}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7}}}}));
  EXPECT_REFUSED("\"rope_parameters.full_attention\"",
                 llama({{"rope_parameters", {{"full_attention", {{"rope_theta", 7}}}}}}));
}

TEST(HfConfig, RefusesByNameWhatWouldChangeTheResult) {
  const Json fields = {{"quantization_config", {{"quant_method", "fp8"}}},
                       {"pretraining_tp", 2},
                       {"attention_multiplier", 0.1},
                       {"partial_rotary_factor", 0.5},
                       {"final_logit_softcapping", 30.0},
                       {"attn_logit_softcapping", 50.0},
                       {"add_cross_attention", true},
                       {"embedding_multiplier", 12},
                       {"logits_scaling", 8},
                       {"num_experts", 8},
                       {"num_local_experts", 8},
                       {"use_qk_norm", true},
                       {"rope_interleaved", true},
                       {"alibi", true},
                       {"my_attention_trick", 3},
                       {"EmbeddingScale", 2},
                       {"pruned_heads", {{"1", {0}}}},
                       {"residual_dropout", 0.1},
                       {"layer_norm_type", "rms"}};
  for (const auto& [key, value] : fields.items())
    EXPECT_REFUSED("config.json: \"" + key + "\": " + shown(value) + " is not supported", llama({{key, value}}));
  EXPECT_REFUSED("\"hidden_act\": \"gelu\"", llama({{"hidden_act", "gelu"}}));
  EXPECT_REFUSED("\"activation_function\": \"relu\"", gpt2({{"activation_function", "relu"}}));
  EXPECT_REFUSED("\"scale_attn_by_inverse_layer_idx\": true", gpt2({{"scale_attn_by_inverse_layer_idx", true}}));
  EXPECT_REFUSED("\"scale_attn_weights\": false", gpt2({{"scale_attn_weights", false}}));
  EXPECT_REFUSED("\"attention_bias\": true", as("mistral", {{"attention_bias", true}}));
  EXPECT_REFUSED("\"model_type\": \"phi\" is not supported: weft has gpt2, llama, mistral, qwen2, qwen3", as("phi"));
}

TEST(HfConfig, PassesOverWhatChangesNothingAndWarnsOfWhatItDoesNotKnow) {
  const Json harmless = {{"architectures", {"LlamaForCausalLM"}},
                         {"torch_dtype", "bfloat16"},
                         {"use_cache", true},
                         {"bos_token_id", 1},
                         {"eos_token_id", {1, 2}},
                         {"transformers_version", "4.40.0"},
                         {"pretraining_tp", 1},
                         {"quantization_config", nullptr},
                         {"sliding_window", nullptr}};
  EXPECT_TRUE(parse_hf_config(llama(harmless), "config.json").warnings.empty());
  const auto warnings =
      parse_hf_config(llama({{"note", "mine"}, {"new_attention_kind", false}}), "config.json").warnings;
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[1], "config.json: \"note\" is not known to weft, and ignored");
}

TEST(HfConfig, ChecksSizes) {
  EXPECT_REFUSED("config.json: \"hidden_size\": expected a whole number from 1 to 16777216, got \"64\"",
                 llama({{"hidden_size", "64"}}));
  for (const char* key :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}) {
    for (const Json& bad : {Json(0), Json(-1), Json(1.5), Json(true), Json(UINT64_MAX)})
      EXPECT_REFUSED(fmt::format("\"{}\": expected a whole number", key), llama({{key, bad}}));
    Json json = llama();
    json.erase(key);
    EXPECT_REFUSED(fmt::format("\"{}\": is missing", key), json);
  }
  EXPECT_REFUSED("64 cannot be divided among 7 heads", llama({{"num_attention_heads", 7}, {"num_key_value_heads", 7}}));
  EXPECT_REFUSED("8 heads cannot share 3 heads", llama({{"num_key_value_heads", 3}}));
  EXPECT_REFUSED("heads of 5 numbers cannot be rotated in pairs", llama({{"head_dim", 5}}));
  EXPECT_REFUSED("parameters", llama({{"hidden_size", 1 << 24}, {"intermediate_size", int64_t{1} << 31}}));
  EXPECT_REFUSED("\"num_hidden_layers\": expected", llama({{"num_hidden_layers", 1'000'000'000}}));
  EXPECT_REFUSED("\"attention_dropout\": expected", llama({{"attention_dropout", 1.0}}));
  EXPECT_REFUSED("\"model_type\": is missing", Json::object());
  EXPECT_REFUSED("expected a JSON object", Json::array());
}

TEST(HfConfig, YarnAndLongRopeAreReadWithTheirMagnitudes) {
  const auto rope = [](const Json& scaling, const Json& more = Json::object()) {
    Json all = {{"rope_scaling", scaling}, {"max_position_embeddings", 64}};
    all.update(more);
    return *spec(llama(all)).rope;
  };
  const RopeSpec yarn = rope({{"rope_type", "yarn"},
                              {"factor", 4.0},
                              {"original_max_position_embeddings", 16},
                              {"beta_fast", 8.0},
                              {"truncate", false}});
  EXPECT_EQ(yarn.scaling, RopeSpec::Scaling::yarn);
  EXPECT_EQ(yarn.original_positions, 16);
  EXPECT_EQ(yarn.beta_fast, 8);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_NEAR(yarn.magnitude, 0.1 * std::log(4) + 1, 1e-15);
  EXPECT_EQ(rope({{"type", "yarn"}, {"factor", 4.0}}).original_positions, 64);
  EXPECT_EQ(rope({{"type", "yarn"}, {"factor", 4.0}, {"attention_factor", 1.5}}).magnitude, 1.5);
  const RopeSpec both = rope({{"type", "yarn"}, {"factor", 4.0}, {"mscale", 2.0}, {"mscale_all_dim", 1.0}});
  EXPECT_NEAR(both.magnitude, (0.2 * std::log(4) + 1) / (0.1 * std::log(4) + 1), 1e-15);
  const Json lists = {{"type", "longrope"}, {"short_factor", {1, 2, 3, 4}}, {"long_factor", {5, 6, 7, 8}}};
  const RopeSpec longrope = rope(lists, {{"original_max_position_embeddings", 16}});
  EXPECT_EQ(longrope.long_factors, (std::vector<double>{5, 6, 7, 8}));
  EXPECT_NEAR(longrope.magnitude, std::sqrt(1 + std::log(4) / std::log(16)), 1e-15);
  EXPECT_EQ(rope(lists, {{"original_max_position_embeddings", 64}}).magnitude, 1);
}

TEST(HfConfig, GemmaFields) {
  const ModelSpec two = spec(as("gemma2", {{"query_pre_attn_scalar", 16}, {"sliding_window", 7}}));
  EXPECT_EQ(two.num_kv_heads, 4);
  EXPECT_EQ(two.head_dim, 256);
  EXPECT_EQ(two.attention_scale, 0.25);
  EXPECT_EQ(two.embedding_scale, 8);
  EXPECT_EQ(two.attention_softcap, 50);
  EXPECT_EQ(two.logit_softcap, 30);
  EXPECT_EQ(two.norm_offset, 1);
  EXPECT_TRUE(two.tied_head && two.layers[0].norm_before && two.layers[0].norm_behind);
  EXPECT_EQ(two.layers[0].mlp, MlpKind::geglu_tanh);
  EXPECT_EQ(windows_of(two), (std::vector<int64_t>{7, 0, 7, 0}));
  EXPECT_EQ(spec(as("gemma2", {{"attn_logit_softcapping", nullptr}})).attention_softcap, 0);
  const ModelSpec three = spec(as("gemma3_text", {{"sliding_window_pattern", 3}, {"rope_local_base_freq", 5000}}));
  EXPECT_EQ(three.qk_norm, QkNorm::heads);
  EXPECT_EQ(three.attention_softcap + three.logit_softcap, 0);
  EXPECT_EQ(windows_of(three), (std::vector<int64_t>{4096, 4096, 0, 4096}));
  EXPECT_EQ(three.layers[0].rope->theta, 5000);
  EXPECT_EQ(three.layers[2].rope->theta, 1e6);
  const Json apart = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}}},
                      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 9000.0}}}};
  const ModelSpec newer = spec(as("gemma3_text", {{"rope_parameters", apart}, {"sliding_window_pattern", 2}}));
  EXPECT_EQ(newer.layers[0].rope->theta, 9000);
  EXPECT_EQ(newer.layers[1].rope->theta, 2e6);
  EXPECT_EQ(newer.layers[1].rope->factor, 8);
  EXPECT_REFUSED("\"hidden_activation\": \"silu\"", as("gemma2", {{"hidden_activation", "silu"}}));
  EXPECT_REFUSED("\"use_bidirectional_attention\"", as("gemma3_text", {{"use_bidirectional_attention", true}}));
  EXPECT_REFUSED("\"final_logit_softcapping\": 30", llama({{"final_logit_softcapping", 30}}));
}

TEST(HfConfig, Phi3AndOlmo2Fields) {
  const ModelSpec phi = spec(as("phi3", {{"partial_rotary_factor", 0.5}, {"sliding_window", 9}, {"resid_pdrop", 0.1}}));
  EXPECT_EQ(phi.num_kv_heads, 8);
  EXPECT_EQ(phi.rope->width, 4);
  EXPECT_EQ(windows_of(phi), std::vector<int64_t>(4, 9));
  EXPECT_EQ(phi.dropout.hidden, 0.1);
  EXPECT_EQ(phi.norm_eps, 1e-5);
  EXPECT_EQ(windows_of(spec(as("phi3"))), std::vector<int64_t>(4, 0));
  EXPECT_REFUSED("\"embd_pdrop\": 0.1", as("phi3", {{"embd_pdrop", 0.1}}));
  EXPECT_REFUSED("\"partial_rotary_factor\": 0.4", as("phi3", {{"partial_rotary_factor", 0.4}}));
  const ModelSpec olmo = spec(as("olmo2", {{"attention_bias", true}}));
  EXPECT_EQ(olmo.qk_norm, QkNorm::all);
  EXPECT_TRUE(olmo.qkv_bias && olmo.attention_out_bias && olmo.layers[0].norm_behind);
  EXPECT_FALSE(olmo.layers[0].norm_before || olmo.tied_head);
}

TEST(HfConfig, WritesTheConfigThatItRead) {
  const Json json = llama({{"torch_dtype", "float16"}, {"note", "mine"}});
  const Json back = hf_config_of(parse_hf_config(json, "config.json"), DType::bf16);
  EXPECT_EQ(back["torch_dtype"], "bfloat16");
  EXPECT_EQ(back["note"], "mine");
  EXPECT_EQ(back["architectures"], Json::parse(R"(["LlamaForCausalLM"])"));
  const Json newer =
      hf_config_of(parse_hf_config(llama({{"dtype", "float32"}, {"architectures", {"X"}}}), ""), DType::f32);
  EXPECT_FALSE(newer.contains("torch_dtype"));
  EXPECT_EQ(newer["architectures"], Json::parse(R"(["X"])"));
}

TEST(HfConfig, ConformanceConfigsAreJudgedRightly) {
  WEFT_NEEDS_SHARED();
  const auto dir = testing::shared_dir() / "data/conformance/hf_configs";
  const std::map<std::string, std::string> expected = {{"deepseek-v3", "\"num_routed_experts\": 256"},
                                                       {"gemma-2b", "\"model_type\": \"gemma\""},
                                                       {"llama-2-70b", ""},
                                                       {"llama-2-7b", ""},
                                                       {"llama-3-70b", ""},
                                                       {"llama-3-8b", ""},
                                                       {"mistral-7b-v2", ""},
                                                       {"mixtral-8x7b", ""},
                                                       {"olmo-1b", "\"model_type\": \"olmo\""},
                                                       {"phi-2", "\"model_type\": \"phi\""},
                                                       {"phi-3-medium-longrope", ""},
                                                       {"phi-3-mini", ""},
                                                       {"qwen3-235b-fp8", "\"quantization_config\""},
                                                       {"qwen3-30b-a3b", ""},
                                                       {"qwen3-8b", ""}};
  for (const auto& [name, reason] : expected) {
    try {
      const HfConfig config = read_hf_config(dir / (name + ".json"));
      EXPECT_EQ(reason, "") << name;
      EXPECT_TRUE(config.warnings.empty()) << name << ": " << config.warnings[0];
    } catch (const ConfigError& e) {
      EXPECT_TRUE(reason != "" && contains(e.what(), reason)) << name << ": " << e.what();
    }
  }
  const ModelSpec llama3 = read_hf_config(dir / "llama-3-70b.json").spec;
  EXPECT_EQ(llama3.num_kv_heads, 8);
  EXPECT_EQ(llama3.head_dim, 128);
  EXPECT_EQ(windows_of(read_hf_config(dir / "mistral-7b-v2.json").spec), std::vector<int64_t>(32, 0));
}

}  // namespace
}  // namespace weft
