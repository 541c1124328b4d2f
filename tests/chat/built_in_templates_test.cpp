#include "weft/chat/built_in_templates.h"

#include <gtest/gtest.h>

#include <fstream>

#include "chat/marked.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/chat/conversation.h"

namespace weft::chat {
namespace {

using testing::spill;
using testing::TempDir;

ChatTemplate named(const std::string& name, const std::filesystem::path& tokenizer = "byte") {
  return read_chat_template(tokenizer, {.file = name});
}
constexpr const char* kTalk =
    R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "So"}])";

// With what the assistant said in brackets, and the generation prompt behind a bar.
std::string marked(const std::string& name, const std::string& talk = kTalk) {
  const ChatTemplate chat = named(name);
  const Conversation c = read_conversation(talk, "c");
  const std::string text = chat.render(c, {}), prompted = chat.render(c, {.add_generation_prompt = true});
  EXPECT_TRUE(prompted.starts_with(text));
  return testing::marked(chat, c) + "|" + prompted.substr(text.size());
}

TEST(BuiltInTemplates, AreThoseThatModelsWerePublishedWith) {
  EXPECT_EQ(marked("chatml"),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Yes<|im_end|>\n]<|im_start|>user\nSo<|im_end|>\n|"
            "<|im_start|>assistant\n");
  EXPECT_EQ(marked("llama-3"),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant"
            "<|end_header_id|>\n\n[Yes<|eot_id|>]<|start_header_id|>user<|end_header_id|>\n\nSo<|eot_id|>|"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(marked("mistral"), "<s>[INST] Hi [/INST][Yes</s>][INST] So [/INST]|");
  EXPECT_EQ(marked("gemma"),
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n[Yes<end_of_turn>\n]<start_of_turn>user\n"
            "So<end_of_turn>\n|<start_of_turn>model\n");
  EXPECT_EQ(marked("zephyr"), "<|user|>\nHi</s>\n<|assistant|>\n[Yes</s>\n]<|user|>\nSo</s>\n|<|assistant|>\n");
  EXPECT_EQ(marked("alpaca"),
            "<s>Below is an instruction that describes a task. Write a response that appropriately completes the "
            "request.\n\n### Instruction:\nHi\n\n### Response:\n[Yes</s>]\n\n### Instruction:\nSo|\n\n### Response:\n");
}

TEST(BuiltInTemplates, TakeASystemsMessageWhereTheModelsDo) {
  const std::string talk = R"([{"role": "system", "content": "Be brief."}, )" + std::string(kTalk).substr(1);
  EXPECT_EQ(marked("mistral", talk), "<s>[INST] Be brief.\n\nHi [/INST][Yes</s>][INST] So [/INST]|");
  for (const char* name : {"chatml", "llama-3", "gemma", "zephyr", "alpaca"})
    EXPECT_NE(marked(name, talk).find("Be brief."), std::string::npos) << name;
}

TEST(BuiltInTemplates, OfGemmaRefusesRolesThatTheModelsDoNotKnow) {
  const Conversation c = read_conversation(
      R"([{"role": "user", "content": "Rice?"}, {"role": "tool", "content": "pilaf"}, {"role": "user", "content": "x"}])",
      "c");
  EXPECT_NE(testing::error_of([&] {
              named("gemma").render(c, {});
            }).find("Only user, assistant and a first system role are supported!"),
            std::string::npos);
}

TEST(BuiltInTemplates, OfAlpacaKnowsInputs) {
  EXPECT_NE(
      marked("alpaca", R"([{"role": "user", "content": "Add.\n\n### Input:\n1 2"},
                                 {"role": "assistant", "content": "3"}])")
          .find("paired with an input that provides further context. Write a response that appropriately completes "
                "the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n[3</s>]"),
      std::string::npos);
}

TEST(BuiltInTemplates, UseTheTokenizersOwnSpecialTokens) {
  TempDir dir;
  spill(dir / "tokenizer_config.json", R"({"eos_token": "<end>", "chat_template": "no"})");
  const Conversation c = read_conversation(kTalk, "c");
  EXPECT_EQ(named("mistral", dir.path()).render(c, {}), "[INST] Hi [/INST]Yes<end>[INST] So [/INST]");
}

// What a dataset and its checkpoints keep is the text alone, which stands beside a tokenizer that is as silent.
TEST(BuiltInTemplates, RenderTheSameFromTheirTextAlone) {
  const Conversation c = read_conversation(kTalk, "c");
  for (const char* name : {"chatml", "llama-3", "mistral", "gemma", "zephyr", "alpaca"}) {
    TempDir kept;
    spill(kept / "chat_template.jinja", chat_template_texts("byte", {.file = name}).at("default"));
    EXPECT_EQ(read_chat_template(kept.path()).render(c, {}), named(name).render(c, {})) << name;
  }
}

TEST(BuiltInTemplates, AFileOfTheirNameComesFirstAndOtherNamesAreRefused) {
  const auto error = testing::error_of([] { named("chatlm"); });
  EXPECT_EQ(error,
            "chatlm: there is no such file, and no chat template of this name is built in; there are chatml, llama-3, "
            "mistral, gemma, zephyr, alpaca");
  EXPECT_EQ(built_in_template("no"), nullptr);
}

// Where the collection has the very template of a family.
TEST(BuiltInTemplates, RenderWhatTheGoldenFilesHave) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/tokenizers/chat_templates";
  const Value inputs = parse_value(testing::slurp(folder / "jinja_inputs.json"), "jinja_inputs.json");
  TempDir dir;
  spill(dir / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  std::ifstream lines(folder / "jinja_golden.jsonl");
  int compared = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json golden = parse_json(line, "golden");
    const std::string of = golden.at("template"), name = of == "ollama/llama3-instruct"                 ? "llama-3"
                                                         : of == "llama.cpp/google-gemma-2-2b-it.jinja" ? "gemma"
                                                         : of == "ollama/chatml"                        ? "chatml"
                                                                                                        : "";
    const std::string talk = golden.at("conversation");
    const bool has_system = talk.starts_with("system") || talk == "unicode";
    if (name.empty() || !golden.contains("output") || talk.starts_with("tool")) continue;
    if (name == "chatml" && !has_system) continue;  // this one adds a system's message
    const Conversation c{.messages = *inputs.dict().get("conversations")->dict().get(talk)};
    EXPECT_EQ(named(name, dir.path()).render(c, {.add_generation_prompt = golden.at("add_generation_prompt")}),
              golden.at("output"))
        << line;
    ++compared;
  }
  EXPECT_GE(compared, 12);
}

}  // namespace
}  // namespace weft::chat
