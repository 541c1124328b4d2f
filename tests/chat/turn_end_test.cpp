#include "weft/chat/turn_end.h"

#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/json.h"

namespace weft::chat {
namespace {

using testing::spill;
using testing::TempDir;

// Bytes, and special tokens from id 256 on.
std::unique_ptr<Tokenizer> bytes_and(const std::vector<std::string>& specials) {
  nlohmann::json json = nlohmann::json::parse(byte_tokenizer_json());
  nlohmann::json& added = json["added_tokens"];
  for (const std::string& special : specials) {
    added.push_back(added[0]);
    added.back()["id"] = 256 + int(added.size()) - 1;
    added.back()["content"] = special;
  }
  TempDir dir;
  spill(dir / "tokenizer.json", json.dump());
  return read_tokenizer(dir / "tokenizer.json");
}
int32_t id_of(const Tokenizer& tokenizer, const std::string& special) {
  std::vector<int32_t> ids;
  tokenizer.encode(special, ids, SpecialText::kParsed);
  return ids.size() == 1 ? ids[0] : -1;
}
std::vector<int32_t> ids_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids, SpecialText::kParsed);
  return ids;
}
ChatTemplate template_of(const std::string& text) {
  TempDir dir;
  spill(dir / "chat_template.jinja", text);
  return read_chat_template(dir.path());
}

const std::pair<const char*, const char*> kEndsOfBuiltIns[] = {
    {"chatml", "<|im_end|>"},   {"llama-3", "<|eot_id|>"}, {"mistral", "</s>"},
    {"gemma", "<end_of_turn>"}, {"zephyr", "</s>"},        {"alpaca", "</s>"},
};

TEST(EndOfTurn, IsTheSpecialTokenBehindTheReplyInEveryBuiltInTemplate) {
  const auto tokenizer = bytes_and({"<|im_start|>", "<|im_end|>", "<|eot_id|>", "</s>", "<start_of_turn>",
                                    "<end_of_turn>", "<|start_header_id|>", "<|end_header_id|>"});
  for (const auto& [name, mark] : kEndsOfBuiltIns) {
    const TurnEnd end = end_of_turn(read_chat_template("byte", {.file = name}), *tokenizer);
    EXPECT_EQ(end.tokens, std::vector<int32_t>{id_of(*tokenizer, mark)}) << name;
    EXPECT_EQ(end.text, "") << name;
  }
}

TEST(EndOfTurn, IsATextWhereTheTokenizerHasNoTokenForIt) {
  const auto bytes = make_byte_tokenizer();
  for (const auto& [name, mark] : kEndsOfBuiltIns) {
    const TurnEnd end = end_of_turn(read_chat_template("byte", {.file = name}), *bytes);
    EXPECT_TRUE(end.tokens.empty()) << name;
    EXPECT_EQ(end.text, mark) << name;
    EXPECT_EQ(end.blanks, "") << name;
  }
}

TEST(EndOfTurn, MayBeWhatBeginsTheNextMessage) {
  const auto tokenizer = bytes_and({"<|user|>"});
  const ChatTemplate specials = template_of(
      "{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '<|you|>' }}{{ m.content }}{% endfor %}");
  EXPECT_EQ(end_of_turn(specials, *tokenizer).tokens, std::vector<int32_t>{257});
  const ChatTemplate names = template_of("{% for m in messages %}{{ '\\n' + m.role + ': ' + m.content }}{% endfor %}");
  EXPECT_EQ(end_of_turn(names, *tokenizer).text, "\nuser:");
  const TurnEnd none = end_of_turn(template_of("{{ messages[0].content }}"), *tokenizer);
  EXPECT_TRUE(none.tokens.empty() && none.text.empty());
  const TurnEnd refused = end_of_turn(template_of("{{ raise_exception('no') }}"), *tokenizer);
  EXPECT_TRUE(refused.tokens.empty() && refused.text.empty());
}

// Templates that models and programs were published with.
TEST(EndOfTurn, IsFoundInPublishedTemplates) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/tokenizers/chat_templates";
  const Value inputs = parse_value(testing::slurp(folder / "jinja_inputs.json"), "jinja_inputs.json");
  TempDir dir;
  spill(dir / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  const std::map<std::string, std::string> expected = {
      {"llama.cpp/CohereForAI-c4ai-command-r-plus-tool_use.jinja", "<|END_OF_TURN_TOKEN|>"},
      {"llama.cpp/Qwen-Qwen2.5-7B-Instruct.jinja", "<|im_end|>"},
      {"llama.cpp/google-gemma-2-2b-it.jinja", "<end_of_turn>"},
      {"llama.cpp/meta-llama-Llama-3.1-8B-Instruct.jinja", "<|eot_id|>"},
      {"llama.cpp/microsoft-Phi-3.5-mini-instruct.jinja", "<|end|>"},
      {"llama.cpp/mistralai-Mistral-Nemo-Instruct-2407.jinja", "</s>"},
      {"ollama/llama2-chat", "</s>"},
      {"ollama/openchat", "<|end_of_turn|>"},
      {"ollama/solar-instruct", "### User:"},
      {"ollama/falcon-instruct", "\nUser:"},
  };
  const auto bytes = make_byte_tokenizer();
  size_t found = 0, compared = 0;
  for (const auto& [name, text] : inputs.dict().get("templates")->dict().items()) {
    spill(dir / "chat_template.jinja", text.string());
    const TurnEnd end = end_of_turn(read_chat_template(dir.path()), *bytes);
    found += !end.text.empty();
    const auto known = expected.find(name.string());
    if (known == expected.end()) continue;
    EXPECT_EQ(end.text, known->second) << name.string();
    ++compared;
  }
  EXPECT_EQ(compared, expected.size());
  EXPECT_GE(found, 34u) << "one of them takes no such conversation";
}

TEST(EndOfTurn, IsFoundByTokenizersOfModels) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/tokenizers";
  const Value inputs = parse_value(testing::slurp(folder / "chat_templates/jinja_inputs.json"), "jinja_inputs.json");
  const auto end_in = [&](const std::string& name, const std::filesystem::path& file) {
    TempDir dir;
    spill(dir / "chat_template.jinja", inputs.dict().get("templates")->dict().get(name)->string());
    spill(dir / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
    return end_of_turn(read_chat_template(dir.path()), *read_tokenizer(folder / file));
  };
  const TurnEnd pieces = end_in("ollama/llama2-chat", "llama2/tokenizer.model");
  EXPECT_EQ(pieces.tokens, std::vector<int32_t>{2});
  EXPECT_EQ(pieces.blanks, " ");
  EXPECT_EQ(end_in("ollama/llama3-instruct", "llama3/tokenizer.model").tokens, std::vector<int32_t>{128009});
}

// The pieces that a reply of these tokens is shown in, one a token; "|" stands where it ends, and for what comes then.
std::string shown(const Tokenizer& tokenizer, const TurnEnd& end, const std::vector<int32_t>& ids) {
  Reply reply(tokenizer, end, {'x'});
  std::string all;
  for (const int32_t id : ids) {
    if (reply.has_ended()) break;
    reply.take(id);
    all += "[" + reply.news() + "]";
  }
  return all + (reply.has_ended() ? "|" : "") + reply.rest();
}

TEST(Reply, EndsAtATokenWhichIsNoPartOfIt) {
  const auto tokenizer = bytes_and({"<end>"});
  EXPECT_EQ(shown(*tokenizer, {.tokens = {9, 257}}, ids_of(*tokenizer, "ab<end>c")), "[a][b][]|");
  EXPECT_EQ(shown(*tokenizer, {.tokens = {257}}, ids_of(*tokenizer, "ab")), "[a][b]");
  EXPECT_EQ(shown(*tokenizer, {.tokens = {257}, .blanks = "\n"}, ids_of(*tokenizer, "a\n\n<end>")), "[a][][\n][]|");
  EXPECT_EQ(shown(*tokenizer, {.tokens = {257}, .blanks = "\n"}, ids_of(*tokenizer, "a\n")), "[a][]\n");
}

TEST(Reply, EndsAtATextOfSeveralTokensWhichAreNotShown) {
  const auto bytes = make_byte_tokenizer();
  const TurnEnd end{.text = "</s>"};
  EXPECT_EQ(shown(*bytes, end, ids_of(*bytes, "ab</s>c")), "[a][b][][][][]|");
  EXPECT_EQ(shown(*bytes, end, ids_of(*bytes, "a<<b")), "[a][][<][<b]") << "what was none is shown";
  EXPECT_EQ(shown(*bytes, end, ids_of(*bytes, "a</")), "[a][][]</") << "no more comes";
  EXPECT_EQ(shown(*bytes, {.text = "##", .blanks = " "}, ids_of(*bytes, "a # ##")), "[a][][][ #][][]|")
      << "the blanks before it are no part";
}

}  // namespace
}  // namespace weft::chat
