// Models with a score, as config.json says them.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/models/hf_config.h"

namespace weft {
namespace {

using nlohmann::json;

json config_with(const char* family, const json& more) {
  json all = {{"model_type", family},   {"vocab_size", 100},        {"hidden_size", 64},
              {"num_hidden_layers", 4}, {"num_attention_heads", 8}, {"intermediate_size", 176}};
  if (family == std::string("gpt2")) all.erase("intermediate_size");
  all.update(more);
  return all;
}

json classifier(const char* architecture, const json& more) {
  json all = {{"architectures", json::array({architecture})}};
  all.update(more);
  return all;
}

ModelSpec read(const char* family, const json& more) {
  return parse_hf_config(config_with(family, more), "config.json").spec;
}

// transformers takes the labels from id2label, and two where nothing is said.
TEST(ScoreConfig, AClassifierOfOneLabelIsAModelWithAScore) {
  const char* const llama = "LlamaForSequenceClassification";
  EXPECT_EQ(read("llama", json::object()).head, HeadKind::vocabulary);
  EXPECT_EQ(read("llama", classifier(llama, {{"num_labels", 1}})).head, HeadKind::score);
  const json labels = {{"tie_word_embeddings", true}, {"id2label", {{"0", "good"}}}};
  const ModelSpec tied = read("llama", classifier(llama, labels));
  EXPECT_TRUE(tied.head == HeadKind::score && !tied.tied_head);
  EXPECT_EQ(read("gpt2", classifier("GPT2ForSequenceClassification", {{"num_labels", 1}})).head, HeadKind::score);

  const auto refused = [](const char* architecture, const json& more, const char* part) {
    const std::string error = testing::error_of<ConfigError>([&] { read("llama", classifier(architecture, more)); });
    EXPECT_SAYS(error, part);
  };
  refused(llama, {{"num_labels", 3}}, "\"num_labels\": 3 is not supported");
  refused(llama, {{"num_labels", 1}, {"id2label", {{"0", "a"}, {"1", "b"}}}}, "\"id2label\"");
  refused(llama, json::object(), "\"id2label\": its absence is not supported");
  refused("Qwen2ForSequenceClassification", {{"num_labels", 1}},
          "of llama weft has LlamaForCausalLM and LlamaForSequenceClassification");
}

TEST(ScoreConfig, AModelOfTextBecomesAModelWithAScore) {
  HfConfig config = parse_hf_config(config_with("qwen2", {{"num_key_value_heads", 2}}), "config.json");
  make_reward_model(config);
  EXPECT_TRUE(config.spec.head == HeadKind::score && config.spec.begins_score);
  const json written = hf_config_of(config, DType::f32);
  EXPECT_EQ(written["architectures"], json::array({"Qwen2ForSequenceClassification"}));
  const HfConfig again = parse_hf_config(written, "config.json");
  EXPECT_TRUE(again.spec.head == HeadKind::score && !again.spec.begins_score);
  EXPECT_THROW(require_vocabulary_head(again.spec, "m"), ConfigError);
}

}  // namespace
}  // namespace weft
