// Models made of some of another's blocks.
#include "weft/models/draft_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "random_models.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/models/gptq_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::error_of;
using testing::TempDir;

// A model of six small layers; `more` says which family.
Json six_layers(const Json& more) {
  Json config{
      {"vocab_size", 32},         {"hidden_size", 8},         {"intermediate_size", 12},      {"num_hidden_layers", 6},
      {"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"max_position_embeddings", 16}};
  config.update(more);
  return config;
}
const Json kSixOfGpt2{{"model_type", "gpt2"}, {"vocab_size", 32}, {"n_embd", 8}, {"n_layer", 6}, {"n_head", 2}};
const Json kSixOfGemma =
    six_layers({{"model_type", "gemma3_text"}, {"head_dim", 4}, {"sliding_window", 4}, {"sliding_window_pattern", 3}});
const Json kSixOfQwen = six_layers({{"model_type", "qwen3_moe"},
                                    {"head_dim", 4},
                                    {"num_experts", 3},
                                    {"num_experts_per_tok", 2},
                                    {"moe_intermediate_size", 4},
                                    {"decoder_sparse_step", 2},
                                    {"mlp_only_layers", {3}}});
const Json kSixOfOss = six_layers({{"model_type", "gpt_oss"},
                                   {"head_dim", 4},
                                   {"num_local_experts", 2},
                                   {"num_experts_per_tok", 1},
                                   {"sliding_window", 4},
                                   {"rope_scaling", nullptr},
                                   {"layer_types",
                                    {"sliding_attention", "full_attention", "sliding_attention", "full_attention",
                                     "sliding_attention", "full_attention"}}});
Json six_of_deepseek(int every) {
  return six_layers({{"model_type", "deepseek_v3"},
                     {"num_key_value_heads", 2},
                     {"q_lora_rank", nullptr},
                     {"kv_lora_rank", 4},
                     {"qk_nope_head_dim", 4},
                     {"qk_rope_head_dim", 2},
                     {"v_head_dim", 4},
                     {"n_routed_experts", 4},
                     {"num_experts_per_tok", 1},
                     {"n_group", 2},
                     {"topk_group", 1},
                     {"moe_intermediate_size", 4},
                     {"n_shared_experts", 1},
                     {"first_k_dense_replace", 2},
                     {"moe_layer_freq", every}});
}

// A model with these numbers, and its draft, as folders.
class Drafts : public ::testing::Test {
 protected:
  HfConfig make(const Json& config, const std::vector<int64_t>& layers) {
    testing::write_random_model(dir_ / "model", config, 3);
    const HfConfig model = read_hf_config(dir_ / "model");
    const HfConfig draft = draft_config(model, layers, DType::f32);
    const auto source = open_weights(dir_ / "model", model.spec);
    const SafetensorsLayout layout = layout_in(hf_tensors(draft.spec), FileDType::f32);
    fs::create_directory(dir_ / "draft");
    create_files(dir_ / "draft", layout);
    SharedWriter writer(dir_ / "draft", layout);
    write_draft(*source, draft.spec, layers, FileDType::f32, writer);
    testing::spill(dir_ / "draft/config.json", draft.json.dump());
    return draft;
  }
  // Every tensor of the draft's files is, byte by byte, the one of that layer in the model's files.
  void expect_layers(const std::string& of_layer, const std::vector<int64_t>& layers) {
    const auto model = SafetensorsFolder::open(dir_ / "model"), draft = SafetensorsFolder::open(dir_ / "draft");
    size_t of_blocks = 0;
    for (const auto& t : draft.tensors()) {
      std::string name = t.name();
      for (size_t i = 0; i < layers.size(); ++i)
        if (const std::string here = of_layer + std::to_string(i) + "."; t.name().starts_with(here)) {
          name = of_layer + std::to_string(layers[i]) + t.name().substr(here.size() - 1);
          ++of_blocks;
        }
      const auto* there = model.find(name);
      ASSERT_NE(there, nullptr) << name;
      EXPECT_EQ(t.entry->shape, there->entry->shape) << name;
      const auto a = draft.bytes(t), b = model.bytes(*there);
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << t.name() << " is not " << name;
    }
    EXPECT_GE(of_blocks, 9 * layers.size());
  }
  TempDir dir_;
};

TEST_F(Drafts, HaveTheLayersThatWereNamed) {
  for (const auto& [config, of_layer] :
       {std::pair(six_layers({{"model_type", "llama"}}), "model.layers."), std::pair(kSixOfGpt2, "transformer.h."),
        std::pair(kSixOfGemma, "model.layers."), std::pair(kSixOfQwen, "model.layers."),
        std::pair(kSixOfOss, "model.layers."), std::pair(six_of_deepseek(1), "model.layers.")}) {
    SCOPED_TRACE(config["model_type"]);
    const std::vector<int64_t> layers{0, 2, 3, 5};
    const HfConfig draft = make(config, layers);
    expect_layers(of_layer, layers);
    const ModelSpec read = read_hf_config(dir_ / "draft").spec, model = read_hf_config(dir_ / "model").spec;
    ASSERT_EQ(read.num_layers, 4);
    for (size_t i = 0; i < layers.size(); ++i)
      EXPECT_EQ(read.layer(int64_t(i)), model.layer(layers[i])) << "what it is: windows, rotations, experts";
    open_weights(dir_ / "draft", read);  // all are there, and no others
    fs::remove_all(dir_ / "model");
    fs::remove_all(dir_ / "draft");
  }
}

TEST_F(Drafts, WriteDownWhatALayersNumberSaidInTheModel) {
  const Json gemma = make(kSixOfGemma, {1, 2, 5}).json;
  EXPECT_EQ(gemma["layer_types"], Json({"sliding_attention", "full_attention", "full_attention"}));
  EXPECT_EQ(gemma["num_hidden_layers"], 3);
  fs::remove_all(dir_ / "model");
  fs::remove_all(dir_ / "draft");
  const Json qwen = make(kSixOfQwen, {1, 2, 3, 5}).json;  // of which 1 and 5 have experts
  EXPECT_EQ(qwen["mlp_only_layers"], Json({1, 2}));
  EXPECT_EQ(qwen["decoder_sparse_step"], 1);
}

TEST_F(Drafts, OfAllLayersAreTheModel) {
  const Json config =
      six_layers({{"model_type", "llama"}, {"architectures", {"LlamaForCausalLM"}}, {"torch_dtype", "float32"}});
  EXPECT_EQ(make(config, {0, 1, 2, 3, 4, 5}).json, config);
  expect_layers("model.layers.", {0, 1, 2, 3, 4, 5});
}

TEST(DraftLayers, AreSpreadEvenlyWithTheFirstAndTheLast) {
  EXPECT_EQ(spread_layers(12, 2), (std::vector<int64_t>{0, 11}));
  EXPECT_EQ(spread_layers(12, 4), (std::vector<int64_t>{0, 4, 7, 11}));
  EXPECT_EQ(spread_layers(32, 16), (std::vector<int64_t>{0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31}));
  for (int64_t n = 2; n < 40; ++n) {
    std::vector<int64_t> all(static_cast<size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(spread_layers(n, n), all);
    for (int64_t count = 2; count <= n; ++count) {
      const auto layers = spread_layers(n, count);
      EXPECT_EQ(layers.front(), 0);
      EXPECT_EQ(layers.back(), n - 1);
      for (size_t i = 1; i < layers.size(); ++i) EXPECT_LT(layers[i - 1], layers[i]) << n << " " << count;
    }
  }
}

TEST(DraftLayers, ThatCannotBeAreRefusedByName) {
  const auto refused = [](const Json& config, std::vector<int64_t> layers) {
    return error_of<ConfigError>([&] { draft_config(parse_hf_config(config, "config.json"), layers, DType::f32); });
  };
  const Json llama = six_layers({{"model_type", "llama"}});
  EXPECT_SAYS(refused(llama, {0, 6}), "--layers 0,6: there is no layer 6: the model has 6, counted from 0 to 5");
  EXPECT_SAYS(refused(llama, {-1}), "there is no layer -1");
  EXPECT_SAYS(refused(llama, {3, 3}), "name each layer once, in the model's order");
  EXPECT_SAYS(refused(llama, {3, 1}), "name each layer once, in the model's order");
  EXPECT_SAYS(refused(llama, {}), "one layer at least");
  EXPECT_SAYS(refused(six_of_deepseek(2), {2, 3}),  // experts are in 2 and 4
              "a config.json of deepseek_v3 cannot say which of these have experts; the nearest that works");
}

}  // namespace
}  // namespace weft
