// DeepSeek's models and gpt-oss as GGUF files: tensors that are two there, or turned, and keys of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "models/gguf_models.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/gguf/gguf_head.h"
#include "weft/models/gguf_names.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using gguf_models::change_config;
using gguf_models::golden;
using gguf_models::largest_difference;
using gguf_models::numbers_of;
using gguf_models::words_of;
using gguf_models::write_gguf_file;
using gguf_models::write_small;
using Json = nlohmann::json;
using testing::error_of;
using testing::TempDir;

// Numbers of a tensor of that name, in the order of the file.
class InGguf {
 public:
  explicit InGguf(const fs::path& path) : file_(path) {}
  const GgufTensor& at(const std::string& name) const {
    const GgufTensor* t = file_.find(name);
    if (t == nullptr) throw std::runtime_error(name + " is not in the file");
    return *t;
  }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  GgufFields fields() const { return file_.fields(); }
  std::vector<float> numbers(const std::string& name) const {
    const GgufTensor& t = at(name);
    std::vector<float> x(size_t(t.rows() * t.cols()));
    for (int64_t i = 0; i < t.rows(); ++i)
      file_.read_row(t, i, 0, std::span(x).subspan(size_t(i * t.cols()), size_t(t.cols())));
    return x;
  }

 private:
  GgufFile file_;
};

// Numbers of the folder's tensors of that name: of one in slices, all of them.
std::vector<float> in_folder(const WeightSource& source, const std::string& name) {
  std::vector<float> all;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    if (source.tensors()[i].name != name) continue;
    const std::vector<float> here = numbers_of(source, i);
    all.insert(all.end(), here.begin(), here.end());
  }
  return all;
}

// Parts of tensors are those of the whole, wherever they begin and end.
void expect_parts(const WeightSource& source) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const HfTensor& t = source.tensors()[i];
    const std::vector<float> whole = numbers_of(source, i);
    for (const int64_t first : {t.rows / 3, t.rows / 2}) {
      const int64_t rows = std::max<int64_t>(1, t.rows - first - 2), col = t.cols() / 2, cols = t.cols() - col;
      std::vector<float> part(size_t(rows * cols));
      source.read(i, {first, col},
                  {.data = part.data(), .dtype = DType::f32, .rows = rows, .cols = cols, .row_stride = cols});
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c)
          ASSERT_EQ(part[size_t(r * cols + c)], whole[size_t((first + r) * t.cols() + col + c)]) << t.name;
    }
  }
}

Json small_deepseek(bool third) {
  Json config{{"model_type", third ? "deepseek_v3" : "deepseek_v2"},
              {"vocab_size", 11},
              {"hidden_size", 32},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 2},
              {"intermediate_size", 64},
              {"moe_intermediate_size", 32},
              {"first_k_dense_replace", 1},
              {"n_routed_experts", 4},
              {"n_shared_experts", 3},
              {"num_experts_per_tok", 2},
              {"n_group", third ? 2 : 1},
              {"topk_group", 1},
              {"norm_topk_prob", third},
              {"routed_scaling_factor", 1.75},
              {"q_lora_rank", 6},
              {"kv_lora_rank", 5},
              {"qk_nope_head_dim", 3},
              {"qk_rope_head_dim", 4},
              {"v_head_dim", 7},
              {"max_position_embeddings", 16}};
  return config;
}

TEST(GgufLatents, KeysAndValuesAreApartAndKeysAreTurned) {
  TempDir dir;
  const ModelSpec m = write_small(small_deepseek(true), dir);
  write_gguf_file(dir.path(), dir / "m.gguf", GgufType::f32);
  const InGguf file(dir / "m.gguf");
  const auto both = in_folder(*open_weights(dir.path(), m), "model.layers.1.self_attn.kv_b_proj.weight");
  const auto keys = file.numbers("blk.1.attn_k_b.weight"), values = file.numbers("blk.1.attn_v_b.weight");
  EXPECT_EQ(file.at("blk.1.attn_k_b.weight").shape, (std::vector<int64_t>{2, 5, 3}));
  EXPECT_EQ(file.at("blk.1.attn_v_b.weight").shape, (std::vector<int64_t>{2, 7, 5}));
  for (size_t head = 0; head < 2; ++head)
    for (size_t rank = 0; rank < 5; ++rank) {
      for (size_t i = 0; i < 3; ++i)
        EXPECT_EQ(keys[(head * 5 + rank) * 3 + i], both[(head * 10 + i) * 5 + rank]) << head << rank << i;
      for (size_t i = 0; i < 7; ++i)
        EXPECT_EQ(values[(head * 7 + i) * 5 + rank], both[(head * 10 + 3 + i) * 5 + rank]) << head << rank << i;
    }
}

TEST(GgufLatents, DeepseekIsTheSameAfterwards) {
  for (const bool third : {false, true})
    for (const Json& changes :
         {Json::object(), Json{{"q_lora_rank", nullptr}, {"norm_topk_prob", true}, {"tie_word_embeddings", true}},
          Json{{"n_routed_experts", nullptr}}}) {
      TempDir dir;
      Json config = small_deepseek(third);
      config.update(changes);
      const ModelSpec before = write_small(config, dir);
      write_gguf_file(dir.path(), dir / "m.gguf", GgufType::f32);
      const HfConfig after = read_hf_config(dir / "m.gguf");
      EXPECT_EQ(words_of(before), words_of(after.spec)) << config;
      EXPECT_EQ(before.family, after.spec.family);
      EXPECT_EQ(before.rope, after.spec.rope);
      EXPECT_EQ(after.warnings, std::vector<std::string>());
      const auto there = open_weights(dir / "m.gguf", after.spec);
      EXPECT_EQ(largest_difference(*open_weights(dir.path(), before), *there), 0) << config;
      expect_parts(*there);
      write_gguf_file(dir / "m.gguf", dir / "again.gguf", GgufType::f32);
      EXPECT_EQ(testing::slurp(dir / "m.gguf"), testing::slurp(dir / "again.gguf"));
    }
}

TEST(GgufLatents, YarnOfDeepseekIsTheSameAfterwards) {
  for (const double mscale : {1.0, 0.707}) {
    TempDir dir;
    change_config("deepseek-v3-seqaux",
                  {{"rope_scaling",
                    {{"type", "yarn"},
                     {"factor", 40},
                     {"mscale", mscale},
                     {"mscale_all_dim", mscale},
                     {"original_max_position_embeddings", 64}}}},
                  dir);
    write_gguf_file(dir.path(), dir / "m.gguf", GgufType::f32);
    const ModelSpec before = read_hf_config(dir.path()).spec, after = read_hf_config(dir / "m.gguf").spec;
    EXPECT_EQ(before.rope, after.rope);
    EXPECT_EQ(before.latent, after.latent);
    EXPECT_GT(after.latent->score_factor, 1);
    EXPECT_NEAR(GgufFile(dir / "m.gguf").fields().number("deepseek2.rope.scaling.yarn_log_multiplier"), mscale / 10,
                1e-8);
  }
}

TEST(GgufLatents, KeysOfDeepseekAreThoseThatLlamaCppReads) {
  TempDir dir;
  write_small(small_deepseek(true), dir);
  write_gguf_file(dir.path(), dir / "m.gguf", GgufType::q8_0);
  const InGguf file(dir / "m.gguf");
  const GgufFields f = file.fields();
  EXPECT_EQ(f.text("general.architecture"), "deepseek2");
  const std::map<std::string, int64_t> integers{{"attention.head_count", 2},
                                                {"attention.head_count_kv", 1},
                                                {"attention.key_length", 9},
                                                {"attention.value_length", 5},
                                                {"attention.key_length_mla", 7},
                                                {"attention.value_length_mla", 7},
                                                {"attention.q_lora_rank", 6},
                                                {"attention.kv_lora_rank", 5},
                                                {"rope.dimension_count", 4},
                                                {"leading_dense_block_count", 1},
                                                {"expert_count", 4},
                                                {"expert_used_count", 2},
                                                {"expert_shared_count", 3},
                                                {"expert_feed_forward_length", 32},
                                                {"expert_group_count", 2},
                                                {"expert_group_used_count", 1},
                                                {"expert_gating_func", 2}};
  for (const auto& [key, value] : integers) EXPECT_EQ(f.integer("deepseek2." + key, 0, 99), value) << key;
  EXPECT_EQ(f.number("deepseek2.expert_weights_scale"), 1.75);
  EXPECT_TRUE(f.flag("deepseek2.expert_weights_norm", false));
  EXPECT_FALSE(f.has("deepseek2.expert_shared_feed_forward_length"));
  const auto type_of = [&](const char* name) { return file.at(name).type; };
  EXPECT_EQ(file.at("blk.1.ffn_up_shexp.weight").shape, (std::vector<int64_t>{96, 32}));
  EXPECT_EQ(type_of("blk.1.exp_probs_b.bias"), uint32_t(GgufType::f32));
  EXPECT_EQ(type_of("blk.1.ffn_gate_inp.weight"), uint32_t(GgufType::f32));
  EXPECT_EQ(type_of("blk.0.attn_kv_a_norm.weight"), uint32_t(GgufType::f32));
  EXPECT_EQ(type_of("blk.0.attn_kv_a_mqa.weight"), uint32_t(GgufType::q8_0));
  EXPECT_EQ(type_of("blk.0.attn_k_b.weight"), uint32_t(GgufType::f16)) << "rows of 3 numbers are no whole blocks";
  EXPECT_FALSE(file.has("blk.1.ffn_up.weight"));
}

TEST(GgufLatents, ModulesThatPredictFurtherTokensAreLeftOut) {
  TempDir dir;
  std::vector<std::string> notes;
  write_gguf_file(golden("mtp"), dir / "m.gguf", GgufType::f32, &notes);
  EXPECT_SAYS(fmt::format("{}", fmt::join(notes, "\n")), "tensors of modules that predict further tokens");
  const HfConfig before = read_hf_config(golden("mtp")), after = read_hf_config(dir / "m.gguf");
  EXPECT_SAYS(fmt::format("{}", fmt::join(before.warnings, "\n")), "are neither trained nor written");
  EXPECT_EQ(words_of(before.spec), words_of(after.spec));
  EXPECT_EQ(after.spec.unread_layers, 0);
  EXPECT_EQ(largest_difference(*open_weights(golden("mtp"), before.spec), *open_weights(dir / "m.gguf", after.spec)),
            0);
  EXPECT_EQ(GgufFile(dir / "m.gguf").fields().integer("deepseek2.block_count", 0, 9), 2);
}

// As llama.cpp's converter wrote them before it cut keys from values.
TEST(GgufLatents, OlderFilesAreReadToo) {
  TempDir dir;
  Json config = small_deepseek(false);
  config["n_routed_experts"] = nullptr;
  const ModelSpec m = write_small(config, dir);
  const auto folder = open_weights(dir.path(), m);
  GgufHead head;
  head.text("general.architecture", "deepseek2");
  for (const auto& [key, value] : std::map<std::string, int64_t>{{"embedding_length", 32},
                                                                 {"block_count", 2},
                                                                 {"leading_dense_block_count", 2},
                                                                 {"feed_forward_length", 64},
                                                                 {"context_length", 16},
                                                                 {"attention.head_count", 2},
                                                                 {"attention.head_count_kv", 2},
                                                                 {"attention.key_length", 7},
                                                                 {"attention.value_length", 7},
                                                                 {"attention.q_lora_rank", 6},
                                                                 {"attention.kv_lora_rank", 5},
                                                                 {"rope.dimension_count", 4}})
    head.u32("deepseek2." + key, value);
  head.f32("deepseek2.attention.layer_norm_rms_epsilon", 1e-6);
  std::string data;
  for (const GgufName& n : gguf_names(m, GgufLatents::together)) {
    head.tensor(n.name, n.shape, GgufType::f32);
    const std::vector<float> x = numbers_of(*folder, n.source);
    data.append(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
    data += gguf_padding(int64_t(x.size() * sizeof(float)));
  }
  testing::spill(dir / "old.gguf", head.bytes() + data);
  const HfConfig after = read_hf_config(dir / "old.gguf");
  EXPECT_EQ(words_of(m), words_of(after.spec));
  EXPECT_EQ(largest_difference(*folder, *open_weights(dir / "old.gguf", after.spec)), 0);
}

Json small_oss() {
  return {{"model_type", "gpt_oss"},  {"vocab_size", 11},         {"hidden_size", 32},
          {"num_hidden_layers", 2},   {"num_attention_heads", 2}, {"num_key_value_heads", 1},
          {"head_dim", 16},           {"intermediate_size", 64},  {"num_local_experts", 3},
          {"num_experts_per_tok", 2}, {"sliding_window", 5},      {"max_position_embeddings", 16},
          {"rope_scaling", nullptr}};
}

TEST(GgufOss, GatesAndUpsAreApart) {
  TempDir dir;
  const ModelSpec m = write_small(small_oss(), dir);
  write_gguf_file(dir.path(), dir / "m.gguf", GgufType::f32);
  const InGguf file(dir / "m.gguf");
  const auto folder = open_weights(dir.path(), m);
  const std::string mlp = "model.layers.1.mlp.experts.";
  // As weft has them: rows of an expert are gate 0, up 0, gate 1, ...
  const auto both = in_folder(*folder, mlp + "gate_up_proj"), biases = in_folder(*folder, mlp + "gate_up_proj_bias");
  const auto down = in_folder(*folder, mlp + "down_proj");
  ASSERT_EQ(both.size(), 3u * 128 * 32);
  for (const bool up : {false, true}) {
    const std::string name = up ? "blk.1.ffn_up_exps" : "blk.1.ffn_gate_exps";
    const auto weights = file.numbers(name + ".weight"), bias = file.numbers(name + ".bias");
    EXPECT_EQ(file.at(name + ".weight").shape, (std::vector<int64_t>{3, 64, 32}));
    EXPECT_EQ(file.at(name + ".bias").shape, (std::vector<int64_t>{3, 64}));
    for (size_t e = 0; e < 3; ++e)
      for (size_t i = 0; i < 64; ++i) {
        EXPECT_EQ(bias[e * 64 + i], biases[e * 128 + 2 * i + up]) << e << " " << i;
        for (size_t j = 0; j < 32; ++j)
          ASSERT_EQ(weights[(e * 64 + i) * 32 + j], both[(e * 128 + 2 * i + up) * 32 + j]) << e << " " << i << " " << j;
      }
  }
  EXPECT_EQ(file.numbers("blk.1.ffn_down_exps.weight"), down);
  EXPECT_EQ(file.at("blk.1.ffn_down_exps.bias").shape, (std::vector<int64_t>{3, 32}));
  EXPECT_EQ(file.numbers("blk.0.attn_sinks.weight"), in_folder(*folder, "model.layers.0.self_attn.sinks"));
  EXPECT_EQ(file.numbers("blk.0.post_attention_norm.weight"),
            in_folder(*folder, "model.layers.0.post_attention_layernorm.weight"));
  EXPECT_EQ(file.numbers("blk.0.ffn_gate_inp.bias"), in_folder(*folder, "model.layers.0.mlp.router.bias"));
}

TEST(GgufOss, IsTheSameAfterwards) {
  const Json yarn{{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 8}};
  Json whole = yarn, between = yarn;
  whole["truncate"] = true, between["truncate"] = false;
  for (const Json& scaling : {Json(), whole, between}) {
    TempDir dir;
    Json config = small_oss();
    config["rope_scaling"] = scaling;
    config["tie_word_embeddings"] = true;
    const ModelSpec before = write_small(config, dir);
    std::vector<std::string> notes;
    write_gguf_file(dir.path(), dir / "m.gguf", GgufType::f32, &notes);
    EXPECT_EQ(notes.size(), scaling == between ? 1u : 0u) << "llama.cpp truncates";
    const HfConfig after = read_hf_config(dir / "m.gguf");
    EXPECT_EQ(words_of(before), words_of(after.spec));
    EXPECT_EQ(before.rope, after.spec.rope);
    EXPECT_EQ(after.warnings, std::vector<std::string>());
    EXPECT_NE(GgufFile(dir / "m.gguf").find("output.weight"), nullptr) << "llama.cpp wants it";
    const auto folder = open_weights(dir.path(), before);
    const auto there = open_weights(dir / "m.gguf", after.spec);
    EXPECT_EQ(largest_difference(*folder, *there), 0);
    expect_parts(*there);
    write_gguf_file(dir / "m.gguf", dir / "again.gguf", GgufType::f32);
    EXPECT_EQ(testing::slurp(dir / "m.gguf"), testing::slurp(dir / "again.gguf"));
  }
}

TEST(GgufOss, TypesFallBackAsThoseOfOtherFamilies) {
  TempDir dir;
  const ModelSpec m = write_small(small_oss(), dir);
  std::vector<std::string> notes;
  write_gguf_file(dir.path(), dir / "m.gguf", GgufType::q6_k, &notes);
  const InGguf file(dir / "m.gguf");
  EXPECT_EQ(file.at("blk.0.ffn_up_exps.weight").type, uint32_t(GgufType::q8_0));
  for (const char* name : {"blk.0.ffn_up_exps.bias", "blk.0.attn_sinks.weight", "blk.0.ffn_gate_inp.weight"})
    EXPECT_EQ(file.at(name).type, uint32_t(GgufType::f32)) << name;
  EXPECT_SAYS(fmt::format("{}", fmt::join(notes, "\n")), "rows of 64 numbers are no whole blocks of Q6_K (256)");
  EXPECT_LE(largest_difference(*open_weights(dir.path(), m), *open_weights(dir / "m.gguf", m)), 0.005);
}

// As published files have experts.
TEST(GgufOss, ExpertsInMxfp4AreRead) {
  TempDir dir;
  const ModelSpec m = write_small(small_oss(), dir);
  write_gguf_file(dir.path(), dir / "m.gguf", GgufType::mxfp4);
  EXPECT_EQ(InGguf(dir / "m.gguf").at("blk.0.ffn_gate_exps.weight").type, 39u);
  const ModelSpec after = read_hf_config(dir / "m.gguf").spec;
  // Numbers up to 1 are those up to 6 / 8 in steps of 1 / 4 and less.
  EXPECT_LE(largest_difference(*open_weights(dir.path(), m), *open_weights(dir / "m.gguf", after)), 0.251);
}

std::string export_refusal(Json config, const Json& changes) {
  TempDir dir;
  config.update(changes);
  testing::spill(dir / "config.json", config.dump());
  return error_of<ConfigError>([&] { require_gguf(read_hf_config(dir.path()), "m"); });
}

TEST(GgufLatents, WhatLlamaCppComputesOtherwiseIsRefusedByName) {
  const Json v2 = small_deepseek(false), v3 = small_deepseek(true), oss = small_oss();
  EXPECT_EQ(export_refusal(v3, Json::object()) + export_refusal(v2, Json::object()), "");
  EXPECT_EQ(
      export_refusal(v2, {{"topk_method", "group_limited_greedy"}, {"n_group", 2}}),
      "m: topk_method = \"group_limited_greedy\" in its config.json, with n_group = 2 and topk_group = 1: llama.cpp "
      "chooses groups of experts by their two best in deepseek2, and the model by the best one; the nearest that "
      "works: the Hugging Face folder as it is; with topk_method = \"greedy\" it would be another model");
  EXPECT_EQ(export_refusal(v2, {{"topk_method", "group_limited_greedy"}, {"n_group", 2}, {"topk_group", 2}}), "");
  EXPECT_SAYS(export_refusal(v3, {{"n_group", 4}, {"topk_group", 2}}), "two or more experts in a group");
  EXPECT_SAYS(export_refusal(v3, {{"rms_norm_eps", 1e-5}}), "rms_norm_eps = 1e-06");
  EXPECT_SAYS(export_refusal(v3, {{"rope_interleave", false}}), "rope_interleave = true");
  EXPECT_SAYS(export_refusal(v3, {{"num_hidden_layers", 27}}), "no q_lora_rank in deepseek2 of 27 layers");
  EXPECT_EQ(export_refusal(v3, {{"num_hidden_layers", 27}, {"q_lora_rank", nullptr}}), "");
  EXPECT_SAYS(export_refusal(v3, {{"n_shared_experts", nullptr}}), "n_shared_experts = 1 or more");
  EXPECT_SAYS(export_refusal(v3, {{"num_hidden_layers", 4}, {"moe_layer_freq", 2}}), "layer 3 has none");
  Json yarn{{"type", "yarn"}, {"factor", 40}, {"original_max_position_embeddings", 16}};
  EXPECT_SAYS(export_refusal(v3, {{"rope_scaling", yarn}}), "one mscale");
  yarn["mscale"] = 1, yarn["mscale_all_dim"] = 0.5;
  EXPECT_SAYS(export_refusal(v3, {{"rope_scaling", yarn}}), "mscale and mscale_all_dim alike");
  EXPECT_SAYS(export_refusal(v3, {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}), "no linear scaling");
  EXPECT_SAYS(export_refusal(oss, {{"attention_bias", false}}), "attention_bias = true");
  EXPECT_SAYS(export_refusal(oss, {{"swiglu_limit", 6}}), "swiglu_limit = 7");
  EXPECT_SAYS(export_refusal(oss, {{"layer_types", {"full_attention", "sliding_attention"}}}), "each second");
}

// The head of a small file of DeepSeek-V3 with other values of some keys, and a table of 4 rows.
HfConfig read_keys(const std::map<std::string, double>& changes, const TempDir& dir) {
  std::map<std::string, double> keys{{"embedding_length", 4},
                                     {"block_count", 2},
                                     {"leading_dense_block_count", 1},
                                     {"feed_forward_length", 4},
                                     {"context_length", 16},
                                     {"attention.head_count", 2},
                                     {"attention.key_length_mla", 7},
                                     {"attention.value_length_mla", 7},
                                     {"attention.kv_lora_rank", 5},
                                     {"rope.dimension_count", 4},
                                     {"expert_count", 4},
                                     {"expert_used_count", 2},
                                     {"expert_shared_count", 1},
                                     {"expert_feed_forward_length", 8},
                                     {"expert_gating_func", 2}};
  std::map<std::string, double> numbers{{"attention.layer_norm_rms_epsilon", 1e-6}};
  for (const auto& [key, value] : changes) (value == std::floor(value) ? keys : numbers)[key] = value;
  GgufHead head;
  head.text("general.architecture", "deepseek2");
  for (const auto& [key, value] : keys)
    if (key == "expert_weights_norm")
      head.flag("deepseek2." + key, value != 0);
    else
      head.u32("deepseek2." + key, int64_t(value));
  for (const auto& [key, value] : numbers) head.f32("deepseek2." + key, value);
  if (changes.count("rope.scaling.factor") > 0) head.text("deepseek2.rope.scaling.type", "yarn");
  head.tensor("token_embd.weight", {4, 4}, GgufType::f32);
  testing::spill(dir / "m.gguf", head.bytes() + std::string(64, '\0'));
  return read_hf_config(dir / "m.gguf");
}

TEST(GgufLatents, KeysThatWeftDoesNotDoAreRefusedByName) {
  TempDir dir;
  EXPECT_EQ(read_keys({}, dir).spec.family, Family::deepseek_v3);
  const auto refusal = [&](const std::map<std::string, double>& changes) {
    return error_of([&] { read_keys(changes, dir); });
  };
  EXPECT_SAYS(refusal({{"nextn_predict_layers", 1}}), "\"deepseek2.nextn_predict_layers\": modules that predict");
  EXPECT_SAYS(refusal({{"attention.temperature_scale", 0.1}}), "\"deepseek2.attention.temperature_scale\"");
  EXPECT_SAYS(refusal({{"expert_gating_func", 3}}), "expected 1 (softmax) or 2 (sigmoid), got");
  EXPECT_SAYS(refusal({{"attention.layer_norm_rms_epsilon", 1e-5}}), "expected 1e-06");
  EXPECT_SAYS(refusal({{"attention.key_length_mla", 4}}), "expected more than the 4 of rope.dimension_count");
  EXPECT_SAYS(refusal({{"expert_count", 0}}), "\"deepseek2.expert_count\"");
  EXPECT_SAYS(refusal({{"rope.scaling.factor", 40}}), "\"deepseek2.rope.scaling.yarn_log_multiplier\"");
  EXPECT_SAYS(refusal({{"expert_gating_func", 1}, {"expert_weights_norm", 1}, {"expert_weights_scale", 2.5}}),
              "divided by their sum or scaled");
  EXPECT_SAYS(refusal({{"expert_group_count", 3}, {"expert_group_used_count", 1}}), "n_group");
}

TEST(GgufLatents, HostileSizesTakeNoMemory) {
  TempDir dir;
  for (const char* key : {"embedding_length", "block_count", "attention.head_count", "attention.key_length_mla",
                          "attention.value_length_mla", "attention.kv_lora_rank", "expert_count", "expert_shared_count",
                          "expert_feed_forward_length", "rope.dimension_count", "feed_forward_length"})
    EXPECT_NE(error_of<Error>([&] { read_keys({{key, 4294967295.0}}, dir); }), "") << key;
  const ModelSpec m = read_keys({{"block_count", 1000}, {"expert_count", 100}}, dir).spec;
  EXPECT_SAYS(error_of<FileError>([&] { open_weights(dir / "m.gguf", m); }), "it holds no whole model");
  const ModelSpec small = read_keys({}, dir).spec;
  EXPECT_SAYS(error_of<FileError>([&] { open_weights(dir / "m.gguf", small); }),
              "blk.1.attn_k_b.weight [2, 5, 3] is missing");
}

}  // namespace
}  // namespace weft
