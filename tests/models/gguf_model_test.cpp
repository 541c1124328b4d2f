// Models written as GGUF files and read again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/gguf_models.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/gguf_config.h"
#include "weft/models/gguf_export.h"
#include "weft/models/gguf_names.h"
#include "weft/models/rope_table.h"
#include "weft/models/weight_source.h"
#include "weft/tokenize/gguf_vocabulary.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using gguf_models::change_config;
using gguf_models::golden;
using gguf_models::largest_difference;
using gguf_models::numbers_of;
using gguf_models::words_of;
using gguf_models::write_gguf_file;
using gguf_models::write_small;
using testing::error_of;
using testing::TempDir;

class GgufModel : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufModel, IsTheSameAfterwards) {
  TempDir dir;
  const fs::path model = golden(GetParam()), file = dir / "m.gguf";
  write_gguf_file(model, file, GgufType::f32);
  const HfConfig before = read_hf_config(model), after = read_hf_config(file);
  EXPECT_EQ(words_of(before.spec), words_of(after.spec));
  EXPECT_EQ(before.spec.family, after.spec.family);
  EXPECT_EQ(after.warnings, std::vector<std::string>());
  EXPECT_EQ(largest_difference(*open_weights(model, before.spec), *open_weights(file, after.spec)), 0);
}

INSTANTIATE_TEST_SUITE_P(Golden, GgufModel,
                         ::testing::Values("llama-gqa", "qwen2-bias", "qwen3-qknorm", "gpt2", "olmo2", "mixtral",
                                           "gpt-oss", "deepseek-v3-bias", "deepseek-v3-seqaux"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GgufModels, Llama3ScalingBecomesFactorsOfFrequencies) {
  TempDir dir;
  write_gguf_file(golden("llama3-rope-tied"), dir / "m.gguf", GgufType::f32);
  const ModelSpec before = read_hf_config(golden("llama3-rope-tied")).spec, after = read_hf_config(dir / "m.gguf").spec;
  EXPECT_TRUE(after.tied_head);
  const auto a = rope_frequencies(*before.rope, before.head_dim, 256),
             b = rope_frequencies(*after.rope, after.head_dim, 256);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(b[i] / a[i], 1, 1e-6);
  EXPECT_NE(rope_frequencies({.theta = before.rope->theta}, before.head_dim, 256), a) << "it is scaled";
  write_gguf_file(dir / "m.gguf", dir / "again.gguf", GgufType::f32);
  EXPECT_EQ(testing::slurp(dir / "m.gguf"), testing::slurp(dir / "again.gguf")) << "a GGUF file is a model too";
}

TEST(GgufModels, AWindowBecomesTheContext) {
  TempDir dir;
  std::vector<std::string> notes;
  write_gguf_file(golden("mistral-window"), dir / "m.gguf", GgufType::f32, &notes);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_SAYS(notes[0], "24 tokens");
  const ModelSpec after = read_hf_config(dir / "m.gguf").spec;
  EXPECT_EQ(after.family, Family::llama);
  EXPECT_EQ(after.max_positions, 24);
}

TEST(GgufModels, GemmaNormsHaveTheirOneThere) {
  for (const char* name : {"gemma2", "gemma3"}) {
    TempDir dir;
    const bool two = name[5] == '2';
    change_config(name,
                  two ? Json{{"query_pre_attn_scalar", 12}}
                      : Json{{"query_pre_attn_scalar", 12}, {"sliding_window_pattern", 6}, {"layer_types", nullptr}},
                  dir);
    write_gguf_file(dir.path(), dir / "m.gguf", GgufType::f32);
    const ModelSpec before = read_hf_config(dir.path()).spec, after = read_hf_config(dir / "m.gguf").spec;
    EXPECT_EQ(words_of(before), words_of(after)) << name;
    EXPECT_EQ(before.rope, after.rope);
    const auto a = open_weights(dir.path(), before), b = open_weights(dir / "m.gguf", after);
    EXPECT_LT(largest_difference(*a, *b), 2e-7) << name;
    const GgufFile file(dir / "m.gguf");
    float there;
    file.read_row(*file.find("output_norm.weight"), 0, 3, {&there, 1});
    for (size_t i = 0; i < a->tensors().size(); ++i)
      if (a->tensors()[i].name == "model.norm.weight") { EXPECT_EQ(there, 1 + numbers_of(*a, i)[3]); }
  }
}

TEST(GgufModels, Phi3KeepsItsFactorsAndFusedMatrices) {
  TempDir dir;
  const ModelSpec before =
      write_small({{"model_type", "phi3"},
                   {"vocab_size", 11},
                   {"hidden_size", 16},
                   {"num_hidden_layers", 2},
                   {"num_attention_heads", 2},
                   {"num_key_value_heads", 1},
                   {"intermediate_size", 6},
                   {"max_position_embeddings", 64},
                   {"original_max_position_embeddings", 16},
                   {"partial_rotary_factor", 0.5},
                   {"sliding_window", nullptr},
                   {"rope_scaling", {{"type", "longrope"}, {"short_factor", {1.25, 2}}, {"long_factor", {3, 4}}}}},
                  dir);
  write_gguf_file(dir.path(), dir / "m.gguf", GgufType::f32);
  const ModelSpec after = read_hf_config(dir / "m.gguf").spec;
  EXPECT_EQ(words_of(before), words_of(after));
  EXPECT_EQ(after.rope->long_factors, before.rope->long_factors);
  EXPECT_EQ(after.rope->short_factors, before.rope->short_factors);
  EXPECT_NEAR(after.rope->magnitude, before.rope->magnitude, 1e-6);
  EXPECT_EQ(largest_difference(*open_weights(dir.path(), before), *open_weights(dir / "m.gguf", after)), 0);
}

Json config_with_experts(const std::string& family) {
  Json config{{"model_type", family},    {"vocab_size", 11},         {"hidden_size", 32},
              {"num_hidden_layers", 2},  {"num_attention_heads", 2}, {"num_key_value_heads", 1},
              {"head_dim", 16},          {"intermediate_size", 64},  {"max_position_embeddings", 16},
              {"num_experts_per_tok", 2}};
  config[family == "mixtral" ? "num_local_experts" : "num_experts"] = 3;
  if (family == "mixtral") return config;
  config["moe_intermediate_size"] = 64;
  config["norm_topk_prob"] = family == "qwen3_moe";
  if (family == "qwen2_moe") config["shared_expert_intermediate_size"] = 96;
  return config;
}

TEST(GgufModels, ExpertsAreOneTensorOfABlock) {
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe"}) {
    TempDir dir;
    const ModelSpec before = write_small(config_with_experts(family), dir);
    write_gguf_file(dir.path(), dir / "m.gguf", GgufType::f32);
    const HfConfig after = read_hf_config(dir / "m.gguf");
    EXPECT_EQ(words_of(before), words_of(after.spec)) << family;
    EXPECT_EQ(before.family, after.spec.family);
    EXPECT_EQ(after.warnings, std::vector<std::string>());
    const auto folder = open_weights(dir.path(), before), there = open_weights(dir / "m.gguf", after.spec);
    EXPECT_EQ(largest_difference(*folder, *there), 0) << family;
    const GgufFile file(dir / "m.gguf");
    const GgufTensor* down = file.find("blk.1.ffn_down_exps.weight");
    ASSERT_NE(down, nullptr);
    EXPECT_EQ(down->shape, (std::vector<int64_t>{3, 32, 64}));
    write_gguf_file(dir.path(), dir / "m8.gguf", GgufType::q8_0);
    EXPECT_LE(largest_difference(*folder, *open_weights(dir / "m8.gguf", after.spec)), 0.005) << family;
    EXPECT_EQ(GgufFile(dir / "m8.gguf").find("blk.0.ffn_gate_inp.weight")->type, uint32_t(GgufType::f32));
    EXPECT_EQ(GgufFile(dir / "m8.gguf").find("blk.0.ffn_up_exps.weight")->type, uint32_t(GgufType::q8_0));
  }
}

TEST(GgufModels, ExpertsThatLlamaCppComputesOtherwiseAreRefused) {
  const auto refusal = [](const std::string& family, const Json& changes) {
    TempDir dir;
    Json config = config_with_experts(family);
    config.update(changes);
    testing::spill(dir / "config.json", config.dump());
    return error_of<ConfigError>([&] { require_gguf(read_hf_config(dir.path()), "m"); });
  };
  EXPECT_SAYS(refusal("qwen2_moe", {{"norm_topk_prob", true}}), "norm_topk_prob = false");
  EXPECT_SAYS(refusal("qwen3_moe", {{"norm_topk_prob", false}}), "norm_topk_prob = true");
  EXPECT_SAYS(refusal("qwen3_moe", {{"mlp_only_layers", {1}}}), "layer 1 has none");
  EXPECT_SAYS(refusal("qwen2_moe", {{"shared_expert_intermediate_size", 0}}), "shared expert");
}

// llama.cpp does not load olmo2 without output.weight.
TEST(GgufModels, ATiedOlmo2HasItsTableTwice) {
  TempDir dir;
  const ModelSpec before = write_small({{"model_type", "olmo2"},
                                        {"vocab_size", 11},
                                        {"hidden_size", 32},
                                        {"num_hidden_layers", 1},
                                        {"num_attention_heads", 2},
                                        {"num_key_value_heads", 2},
                                        {"intermediate_size", 32},
                                        {"max_position_embeddings", 16},
                                        {"tie_word_embeddings", true}},
                                       dir);
  for (const GgufType type : {GgufType::f32, GgufType::q4_0}) {
    write_gguf_file(dir.path(), dir / "m.gguf", type);
    const GgufFile file(dir / "m.gguf");
    ASSERT_NE(file.find("output.weight"), nullptr);
    EXPECT_TRUE(gguf_head_is_table(file)) << name_of(type);
    EXPECT_TRUE(read_hf_config(dir / "m.gguf").spec.tied_head);
    const double off = largest_difference(*open_weights(dir.path(), before), *open_weights(dir / "m.gguf", before));
    EXPECT_LE(off, type == GgufType::f32 ? 0 : 0.2);
  }
}

TEST(GgufModels, BlocksOf256AreReadNearWhatWasWritten) {
  TempDir dir;
  const ModelSpec model = write_small({{"model_type", "llama"},
                                       {"vocab_size", 11},
                                       {"hidden_size", 256},
                                       {"num_hidden_layers", 2},
                                       {"num_attention_heads", 1},
                                       {"head_dim", 2},
                                       {"intermediate_size", 32},
                                       {"max_position_embeddings", 64}},
                                      dir);
  std::vector<std::string> notes;
  write_gguf_file(dir.path(), dir / "m.gguf", GgufType::q4_k, &notes);
  const GgufFile file(dir / "m.gguf");
  const auto type_of = [&](const char* name) { return name_of(find_gguf_type(file.find(name)->type)->type); };
  EXPECT_EQ(type_of("blk.1.ffn_gate.weight"), "Q4_K");
  EXPECT_EQ(type_of("blk.1.ffn_down.weight"), "Q5_0");
  EXPECT_EQ(type_of("blk.1.attn_output.weight"), "F16");
  EXPECT_EQ(type_of("output.weight"), "Q6_K");
  EXPECT_SAYS(fmt::format("{}", fmt::join(notes, "\n")), "the head is Q6_K, as llama.cpp has it");
  const auto before = open_weights(dir.path(), model), after = open_weights(dir / "m.gguf", model);
  // Numbers from -1 to 1: half a step of Q4_K is 1 / 15, of Q5_0 1 / 32; a whole one at an end.
  EXPECT_LT(largest_difference(*before, *after), 2.0 / 15);
  write_gguf_file(dir.path(), dir / "n.gguf", GgufType::q6_k);
  EXPECT_LT(largest_difference(*before, *open_weights(dir / "n.gguf", model)), 2.0 / 32);
}

TEST(GgufModels, RowsOfLlamaQueriesAreNeighbouringPairs) {
  const ModelSpec m = read_hf_config(golden("llama-gqa")).spec;
  for (const GgufName& n : gguf_names(m)) {
    if (n.name != "blk.1.attn_k.weight") continue;
    EXPECT_EQ(n.turned_heads, 4);
    // Heads of 8 rows: the pairs (0, 4), (1, 5), (2, 6), (3, 7) become (0, 1), (2, 3), (4, 5), (6, 7).
    const int64_t expected[] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(gguf_row(n, i), i / 8 * 8 + expected[i % 8]);
      EXPECT_EQ(folder_row(n, gguf_row(n, i)), i);
    }
    return;
  }
  FAIL() << "no such tensor";
}

TEST(GgufModels, RowsThatAreNoWholeBlocksFallBack) {
  using T = GgufType;
  EXPECT_EQ(gguf_type_of_matrix(T::q4_k, false, 256), T::q4_k);
  EXPECT_EQ(gguf_type_of_matrix(T::q4_k, false, 96), T::q5_0);
  EXPECT_EQ(gguf_type_of_matrix(T::q6_k, false, 96), T::q8_0);
  EXPECT_EQ(gguf_type_of_matrix(T::q4_0, false, 96), T::q4_0);
  EXPECT_EQ(gguf_type_of_matrix(T::q4_k, true, 512), T::q6_k);
  EXPECT_EQ(gguf_type_of_matrix(T::q4_0, true, 96), T::q8_0);
  EXPECT_EQ(gguf_type_of_matrix(T::q8_0, true, 256), T::q8_0);
  for (const T type : {T::q8_0, T::q4_0, T::q4_k, T::q6_k}) EXPECT_EQ(gguf_type_of_matrix(type, false, 100), T::f16);
  for (const T type : {T::f32, T::f16, T::bf16}) EXPECT_EQ(gguf_type_of_matrix(type, true, 100), type);
}

TEST(GgufModels, SaysWhichMatricesAreOfAnotherType) {
  TempDir dir;
  std::vector<std::string> notes;
  write_gguf_file(golden("llama-gqa"), dir / "m.gguf", GgufType::q4_k, &notes);
  const std::string all = fmt::format("{}", fmt::join(notes, "\n"));
  EXPECT_SAYS(all, "the head is Q8_0: rows of 64 numbers are no whole blocks of Q6_K (256)");
  EXPECT_SAYS(all, "rows of 64 numbers are no whole blocks of Q4_K (256)");
  EXPECT_SAYS(all, "matrices are F16: rows of 176 numbers");
  const GgufFile file(dir / "m.gguf");
  EXPECT_EQ(file.find("blk.0.attn_norm.weight")->type, uint32_t(GgufType::f32));
  EXPECT_EQ(file.find("blk.0.attn_q.weight")->type, uint32_t(GgufType::q5_0));
  EXPECT_EQ(file.fields().integer("general.file_type", 0, 99), 14);
  write_gguf_file(golden("llama-gqa"), dir / "m.gguf", GgufType::q4_0, &notes);
  EXPECT_SAYS(fmt::format("{}", fmt::join(notes, "\n")), "the head is Q8_0: rows of 64 numbers");
}

TEST(GgufModels, EveryTypeIsReadNearWhatWasWritten) {
  TempDir dir;
  const HfConfig config = read_hf_config(golden("llama-gqa"));
  const auto before = open_weights(golden("llama-gqa"), config.spec);
  double last = 0;
  for (const GgufType type : {GgufType::f32, GgufType::f16, GgufType::bf16, GgufType::q8_0, GgufType::q4_0}) {
    write_gguf_file(golden("llama-gqa"), dir / "m.gguf", type);
    const double here = largest_difference(*before, *open_weights(dir / "m.gguf", config.spec));
    EXPECT_LT(here, type == GgufType::q4_0 ? 0.05 : 0.002) << name_of(type);
    EXPECT_TRUE(here > last || type == GgufType::f32 || type == GgufType::q8_0) << name_of(type);
    last = here;
  }
}

std::string refusal_of(const std::string& name, const Json& changes) {
  TempDir dir;
  change_config(name, changes, dir);
  return error_of<ConfigError>([&] { require_gguf(read_hf_config(dir.path()), "m"); });
}

TEST(GgufModels, WhatLlamaCppDoesNotDoIsRefusedByName) {
  EXPECT_SAYS(refusal_of("gemma2", Json::object()), "the nearest that works");
  EXPECT_SAYS(refusal_of("gemma2", Json::object()), "query_pre_attn_scalar = 12");
  EXPECT_SAYS(refusal_of("gemma2", {{"tie_word_embeddings", false}}), "tie_word_embeddings = true");
  EXPECT_SAYS(refusal_of("gemma3", {{"query_pre_attn_scalar", 12}}), "each sixth");
  EXPECT_SAYS(refusal_of("gpt2", {{"activation_function", "gelu"}}), "gelu_new");
  EXPECT_SAYS(refusal_of("qwen2-bias", {{"use_sliding_window", true}, {"max_window_layers", 0}, {"sliding_window", 8}}),
              "use_sliding_window = false");
  EXPECT_SAYS(refusal_of("reward-model", Json::object()), "scores");
}

TEST(GgufModels, NumbersThatATypeCannotHoldAreNamed) {
  TempDir dir;
  std::string weights = testing::slurp(golden("llama-gqa") / "model.safetensors");
  uint64_t header;
  std::memcpy(&header, weights.data(), sizeof header);
  weights.replace(8 + header, 4, std::string("\x00\x24\x74\x48", 4));  // 250000, in the first tensor: the embedding
  testing::spill(dir / "model.safetensors", weights);
  fs::copy(golden("llama-gqa") / "config.json", dir / "config.json");
  const std::string error = error_of<FileError>([&] { write_gguf_file(dir.path(), dir / "m.gguf", GgufType::q8_0); });
  EXPECT_SAYS(error, "--type BF16");
  EXPECT_SAYS(error, "token_embd.weight holds 250000");
}

TEST(GgufModels, TensorsThatAreMissingAreNamed) {
  TempDir dir;
  write_gguf_file(golden("llama-gqa"), dir / "m.gguf", GgufType::f32);
  std::string bytes = testing::slurp(dir / "m.gguf");
  bytes.replace(bytes.find("blk.2.ffn_up.weight"), 5, "blk.9");
  testing::spill(dir / "m.gguf", bytes);
  const HfConfig config = read_hf_config(dir / "m.gguf");
  const std::string error = error_of<FileError>([&] { open_weights(dir / "m.gguf", config.spec); });
  EXPECT_SAYS(error, "blk.2.ffn_up.weight [176, 64] is missing");
  EXPECT_SAYS(error, "blk.9.ffn_up.weight");
  bytes.replace(bytes.find("llama.block_count"), 17, "llama.block_cnout");
  testing::spill(dir / "m.gguf", bytes);
  EXPECT_SAYS(error_of<FileError>([&] { read_hf_config(dir / "m.gguf"); }), "\"llama.block_count\": is missing");
  bytes.replace(bytes.find("architecture") + 24, 5, "alien");
  testing::spill(dir / "m.gguf", bytes);
  EXPECT_SAYS(error_of<ConfigError>([&] { read_hf_config(dir / "m.gguf"); }), "weft reads llama, qwen2");
}

TEST(GgufModels, KeysThatAreNotLookedAtAreToldOrRefused) {
  TempDir dir;
  write_gguf_file(golden("olmo2"), dir / "m.gguf", GgufType::f32);
  std::string bytes = testing::slurp(dir / "m.gguf");
  const size_t at = bytes.find("olmo2.attention.value_length");
  bytes.replace(at, 28, "olmo2.attention.value_lengtj");
  testing::spill(dir / "m.gguf", bytes);
  const std::vector<std::string> warnings = read_hf_config(dir / "m.gguf").warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_SAYS(warnings[0], "\"olmo2.attention.value_lengtj\" is passed over");
  GgufHead window;
  window.text("general.architecture", "olmo2");
  for (const char* key : {"embedding_length", "attention.head_count", "block_count", "feed_forward_length",
                          "context_length", "attention.sliding_window"})
    window.u32(fmt::format("olmo2.{}", key), 4);
  window.f32("olmo2.attention.layer_norm_rms_epsilon", 1e-6);
  window.tensor("token_embd.weight", {4, 4}, GgufType::f32);
  testing::spill(dir / "w.gguf", window.bytes() + std::string(64, '\0'));
  EXPECT_SAYS(error_of<ConfigError>([&] { read_hf_config(dir / "w.gguf"); }), "windows in files of olmo2 are not read");
}

TEST(GgufModels, AnEndThatThereIsNotIsNoToken) {
  TempDir dir;
  const HfConfig config = read_hf_config(golden("llama-gqa"));
  GgufVocabulary bytes = gguf_vocabulary_of("byte", config.spec.vocab_size);
  std::string file;
  write_gguf({.model = golden("llama-gqa"), .name = "m"}, config, bytes,
             [&](std::string_view piece) { file += piece; });
  testing::spill(dir / "m.gguf", file);
  EXPECT_EQ(read_hf_config(dir / "m.gguf").json["eos_token_id"], 256);
  const std::string key = "tokenizer.ggml.eos_token_id";
  for (const uint32_t type : {4u, 5u}) {  // u32 2^32 - 1, i32 -1
    std::string value(reinterpret_cast<const char*>(&type), sizeof type);
    file.replace(file.find(key) + key.size(), 8, value + std::string(4, '\xff'));
    testing::spill(dir / "m.gguf", file);
    EXPECT_FALSE(read_hf_config(dir / "m.gguf").json.contains("eos_token_id")) << type;
    EXPECT_EQ(read_gguf_vocabulary(GgufFile(dir / "m.gguf").fields()).end, -1) << type;
  }
}

TEST(GgufModels, TheEndOfATurnEndsATextToo) {
  TempDir dir;
  GgufHead head;
  head.text("general.architecture", "llama");
  head.u32("llama.attention.head_count", 2);
  for (const char* key : {"embedding_length", "block_count", "feed_forward_length", "context_length"})
    head.u32(fmt::format("llama.{}", key), 4);
  head.f32("llama.attention.layer_norm_rms_epsilon", 1e-6);
  head.f32("llama.rope.freq_base_swa", 100);  // a base of Gemma 3's windows: nothing to a Llama
  head.u32("tokenizer.ggml.eos_token_id", 2);
  head.u32("tokenizer.ggml.eot_token_id", 3);
  head.tensor("token_embd.weight", {4, 4}, GgufType::f32);
  testing::spill(dir / "m.gguf", head.bytes() + std::string(64, '\0'));
  const HfConfig config = read_hf_config(dir / "m.gguf");
  EXPECT_EQ(config.json["eos_token_id"], (nlohmann::json{2, 3}));
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_SAYS(config.warnings[0], "\"llama.rope.freq_base_swa\" is passed over");
}

TEST(GgufModels, StoriesFromElsewhereAreTheFoldersWeights) {
  WEFT_NEEDS_SHARED();
  const fs::path folder = testing::shared_dir() / "data/models/stories260K";
  const HfConfig config = read_hf_config(folder), there = read_hf_config(folder / "stories260K.gguf");
  EXPECT_EQ(there.spec.family, Family::llama);
  EXPECT_EQ(there.spec.num_kv_heads, config.spec.num_kv_heads);
  const auto own = open_weights(folder, config.spec);
  EXPECT_EQ(largest_difference(*own, *open_weights(folder / "stories260K.gguf", there.spec)), 0);
  EXPECT_LT(largest_difference(*own, *open_weights(folder / "stories260K-f16.gguf", there.spec)), 4e-3);
}

}  // namespace
}  // namespace weft
