#include "weft/chat/conversation.h"

#include <gtest/gtest.h>

#include "chat/marked.h"
#include "support.h"
#include "weft/base/error.h"

namespace weft::chat {
namespace {

using testing::chat_of;
using testing::spill;
using testing::TempDir;

constexpr const char* kChatMl =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
constexpr const char* kTalk =
    R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}, {"role": "user", "content": "é"},
        {"role": "assistant", "content": "No"}])";

std::string refusal(const std::string& text, const std::string& conversation = kTalk) {
  return testing::error_of<Error>([&] { chat_of(text).render_masked(read_conversation(conversation, "c"), {}); });
}
std::string marked(const std::string& text, const std::string& conversation = kTalk) {
  return testing::marked(chat_of(text), read_conversation(conversation, "c"));
}

TEST(ChatMask, IsWhatAMessageAddsToItsGenerationPrompt) {
  EXPECT_EQ(marked(kChatMl), "<|user|>Hi<end>\n<|assistant|>[Yes<end>\n]<|user|>é<end>\n<|assistant|>[No<end>\n]");
}

TEST(ChatMask, IsWhatGenerationBlocksHold) {
  EXPECT_EQ(
      marked("{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}.{% "
             "endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}"),
      "u:Hi;a:[Yes.];u:é;a:[No.];");
}

TEST(ChatMask, IsRefusedWhereItWouldBeWrong) {
  // What an earlier message looks like depends on those behind it.
  EXPECT_SAYS(refusal("{% for m in messages %}{{ m.role }}:{{ m.content if loop.last else '..' }}{% endfor %}"
                      "{% if add_generation_prompt %}assistant:{% endif %}"),
              "message 2");
  // The generation prompt is no beginning of what the assistant's message looks like.
  EXPECT_SAYS(refusal("{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}"
                      "{% if add_generation_prompt %}assistant:<think>{% endif %}"),
              "does not begin with the text before it");
  EXPECT_SAYS(refusal("{% if not messages[1:] %}{{ raise_exception('too short') }}{% endif %}"), "too short");
  EXPECT_SAYS(refusal("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}"),
              "stands in a macro");
}

// Three names of a weight, a message that says nothing, and one that calls a tool.
TEST(ChatMask, LeavesOutWhatDoesNotCount) {
  const std::string talk = R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "A", "weight": 0},
    {"role": "assistant", "content": "B", "weight": 1}, {"role": "assistant", "content": "C", "train": false},
    {"role": "assistant", "content": "D", "loss_weight": 0.0}, {"role": "assistant", "content": ""},
    {"role": "assistant", "content": null}, {"role": "assistant", "content": "", "tool_calls": [1]},
    {"role": "assistant", "content": "E", "train": true, "weight": null}])";
  const std::string blocks =
      "{% for m in messages %}{{ m.role[0] }}{% generation %}{{ m.content or '' }}{{ m.tool_calls or '' }}"
      "{% endgeneration %};{% endfor %}";
  const std::string plain =
      "{% for m in messages %}{{ m.role[0] }}{{ m.content or '' }}{{ m.tool_calls or '' }};{% endfor %}"
      "{% if add_generation_prompt %}a{% endif %}";
  EXPECT_EQ(marked(plain, talk), "uq;aA;a[B;]aC;aD;a;a;a[[1];]a[E;]");
  EXPECT_SAYS(refusal(blocks, talk), "the template marks 9 pieces with {% generation %} for 8 messages");
  const std::string of_assistant = "{% for m in messages if m.role == 'assistant' %}" + blocks.substr(23);
  EXPECT_EQ(marked(of_assistant, talk), "aA;a[B];aC;aD;a;a;a[[1]];a[E];");
  for (const char* weight : {"0.5", "\"no\"", "[]", "2"})
    EXPECT_SAYS(refusal(plain, R"([{"role": "assistant", "content": "x", "weight": )" + std::string(weight) + "}]"),
                "message 1: its \"weight\" is neither 0 nor 1");
}

// Else the answer would be learned without its question.
TEST(ChatMask, IsRefusedWhereTheTemplateLeavesARoleOut) {
  const std::string knows =
      "{% for m in messages %}{% if m.role in ['user', 'assistant', 'tool'] %}{{ m.role[0] }}{{ m.content }};"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}a{% endif %}";
  const auto talk = [](const std::string& role) {
    return R"([{"role": ")" + role + R"(", "content": "q"}, {"role": "assistant", "content": "r"}])";
  };
  EXPECT_EQ(marked(knows, talk("tool")), "tq;a[r;]");
  EXPECT_SAYS(refusal(knows, talk("usr")), "message 1: the template leaves out what the role \"usr\" says");
  EXPECT_SAYS(refusal(knows, talk("human")), "leaves out what the role \"human\" says");
}

// Else calls would be learned of what the model was never told of.
TEST(ChatMask, IsRefusedWhereTheTemplateLeavesTheToolsOut) {
  const std::string shows = "{% if tools %}{{ tools[0].function.name }};{% endif %}";
  const std::string counts = "{% if tools %}{{ tools | length }} tools;{% endif %}";
  const auto talk = [](const std::string& tools) {
    return fmt::format(R"({{"messages": {}, "tools": {}}})", kTalk, tools);
  };
  const std::string one = talk(R"([{"type": "function", "function": {"name": "f", "description": "d"}}])");
  EXPECT_EQ(marked(shows + kChatMl, one), "f;" + marked(kChatMl));
  for (const std::string& text : {std::string(kChatMl), counts + kChatMl})
    EXPECT_EQ(refusal(text, one),
              "the template leaves out the \"tools\": take a chat template that shows them, or leave them out of the "
              "row");
  for (const char* none : {"null", "[]", R"("")"}) EXPECT_EQ(marked(kChatMl, talk(none)), marked(kChatMl)) << none;
}

TEST(ChatMask, IsRefusedWhereTheTemplateLeavesTheDocumentsOut) {
  const auto talk = [](const std::string& documents) {
    return fmt::format(R"({{"messages": {}, "documents": {}}})", kTalk, documents);
  };
  const std::string one = talk(R"([{"title": "t", "text": "what it says"}])");
  EXPECT_EQ(marked("{{ documents[0].text if documents }};" + std::string(kChatMl), one),
            "what it says;" + marked(kChatMl));
  EXPECT_SAYS(refusal(kChatMl, one), "the template leaves out the \"documents\": take a chat template that shows them");
  EXPECT_EQ(marked(kChatMl, talk("[]")), marked(kChatMl));
  const auto chat = chat_of(std::string(kChatMl));
  EXPECT_EQ(chat.left_out(read_conversation(one, "c"), {}), std::vector<std::string>{"documents"});
  EXPECT_TRUE(chat.left_out(read_conversation(talk("null"), "c"), {}).empty());
}

TEST(ChatMask, OfTokensHasThoseWithAByteOfIt) {
  const auto bytes = make_byte_tokenizer();
  const auto c = read_conversation(kTalk, "c");
  const auto chat = chat_of(
      "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}a{% endif %}");
  const auto got = encode_conversation(chat, *bytes, c);
  EXPECT_EQ(bytes->decode(got.ids, Tokenizer::Specials::kShown), "uHiaYesuéaNo");
  EXPECT_EQ(got.mask, (std::vector<uint8_t>{0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1}));
}

TEST(ChatMask, OfATokenOnBothSidesOfTheBorderIsSet) {
  TempDir dir;
  spill(dir / "tokenizer.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3}, "merges": [["a", "b"]]}})");
  const auto tokenizer = read_tokenizer(dir.path());
  std::vector<int32_t> ids;
  tokenizer->encode("cabc", ids);
  ASSERT_EQ(ids, (std::vector<int32_t>{2, 3, 2}));
  EXPECT_EQ(token_mask(*tokenizer, "cabc", ids, {{2, 3}}), (std::vector<uint8_t>{0, 1, 0}));
  EXPECT_EQ(token_mask(*tokenizer, "cabc", ids, {{2, 4}}), (std::vector<uint8_t>{0, 1, 1}));
  EXPECT_EQ(token_mask(*tokenizer, "cabc", ids, {{1, 1}, {3, 4}}), (std::vector<uint8_t>{0, 0, 1}));
}

TEST(ChatMask, OfRealTokenizersDecodesToWhatTheAssistantSaid) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/tokenizers";
  const auto chat = chat_of(
      "{% for m in messages %}{{ m.role }}\n{{ m.content }}\n\n{% endfor %}"
      "{% if add_generation_prompt %}assistant\n{% endif %}");
  for (const char* name : {"gpt2", "llama2", "mistral", "llama3"}) {
    const auto tokenizer = read_tokenizer(folder / name);
    const auto got = encode_conversation(chat, *tokenizer, read_conversation(kTalk, "c"));
    std::vector<int32_t> said;
    for (size_t i = 0; i < got.ids.size(); ++i)
      if (got.mask[i] != 0) said.push_back(got.ids[i]);
    EXPECT_EQ(tokenizer->decode(said, Tokenizer::Specials::kShown), "Yes\n\nNo\n\n") << name;
  }
}

TEST(ChatMask, OfRealTemplatesHoldsTheAssistantsWordsAlone) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/tokenizers/chat_templates";
  const Value inputs = parse_value(testing::slurp(folder / "jinja_inputs.json"), "jinja_inputs.json");
  const Conversation c{.messages = *inputs.dict().get("conversations")->dict().get("user-assistant-user")};
  const auto content = [&](size_t i) { return c.messages.list().items[i].dict().get("content")->string(); };
  int masked = 0, refused = 0;
  for (const auto& [name, text] : inputs.dict().get("templates")->dict().items()) {
    try {
      const auto m = chat_of(text.string()).render_masked(c, {});
      ASSERT_EQ(m.assistant.size(), 1u) << name.string();
      const std::string said = m.text.substr(m.assistant[0].begin, m.assistant[0].end - m.assistant[0].begin);
      EXPECT_SAYS(said, content(1));
      EXPECT_EQ(said.find(content(0)), std::string::npos) << said;
      EXPECT_EQ(said.find(content(2)), std::string::npos) << said;
      EXPECT_LE(said.size(), content(1).size() + 60) << said;
      ++masked;
    } catch (const Error&) { ++refused; }
  }
  EXPECT_GE(masked, 24) << refused;
}

TEST(ChatTemplateFiles, TheTemplateIsFoundWhereModelsHaveIt) {
  TempDir dir;
  const auto conversation = read_conversation(R"({"messages": [], "tools": [{"a": 1}]})", "c");
  const auto text = [&](const TemplateChoice& choice = {}) {
    return read_chat_template(dir.path(), choice).render(conversation, {});
  };
  spill(dir / "tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "chat_template": "1{{ bos_token }}"})");
  EXPECT_EQ(text(), "1<s>");
  spill(dir / "special_tokens_map.json", R"({"bos_token": "x", "eos_token": "</s>"})");
  spill(dir / "tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": [
      {"name": "default", "template": "d{{ bos_token }}{{ eos_token }}"}, {"name": "tool_use", "template": "t"},
      {"name": "other", "template": "{% broken"}]})");
  EXPECT_EQ(text(), "t");
  EXPECT_EQ(text({.name = "default"}), "d<s></s>");
  EXPECT_THROW(text({.name = "other"}), FileError);
  EXPECT_THROW(text({.name = "none"}), FileError);
  spill(dir / "chat_template.jinja", "j{{ pad_token is defined }}");
  EXPECT_EQ(text({.name = "default"}), "jFalse");
  spill(dir / "mine.txt", "m");
  EXPECT_EQ(text({.file = dir / "mine.txt"}), "m");
}

// A conversation of one message with this content.
std::string talk_of(const std::string& content) { return R"([{"role": "user", "content": )" + content + "}]"; }

TEST(ChatParts, AreJoinedForATemplateThatTakesTextsAlone) {
  const std::string parts = talk_of(R"([{"type": "text", "text": "a"}, "b", {"type": "text", "text": "c"}])");
  EXPECT_EQ(marked("{{ messages[0]['content'] }}", parts), "a\nb\nc");  // else as Python writes the list
  EXPECT_EQ(marked("{{ messages[0]['role'] + ':' + messages[0]['content'] }}", parts), "user:a\nb\nc");
  EXPECT_EQ(marked("{{ messages[0].content | tojson }}", parts), R"("a\nb\nc")");
  EXPECT_EQ(marked("{{ messages[0].content }}", talk_of("[]")), "");  // not a list either
  EXPECT_SAYS(refusal(kChatMl, talk_of(R"([{"type": "image"}])")),
              "message 1: has a part of type \"image\", and the template takes texts alone");
}

TEST(ChatParts, AreLeftToATemplateThatTakesThem) {
  const std::string either =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
      "{% if p['type'] == 'text' %}({{ p['text'] }}){% else %}<image>{% endif %}{% endfor %}{% endif %}{% endfor %}";
  EXPECT_EQ(marked(either, talk_of(R"([{"type": "text", "text": "a"}, {"type": "image"}])")), "(a)<image>");
  EXPECT_EQ(marked(either, talk_of(R"("a")")), "a");
}

TEST(ChatParts, ThatShouldBeTextsAndAreNoneAreNamedWithTheirKeys) {
  const auto error = [](const std::string& parts) {
    return testing::error_of([&] { read_conversation(talk_of(parts), "c"); });
  };
  EXPECT_EQ(error(R"([{"type": "text", "text": "a"}, {"type": "text", "words": "b"}])"),
            "c: message 1: part 2 of its content: has no \"text\", but \"type\", \"words\"; a part is {\"type\": "
            "\"text\", \"text\": \"...\"}");
  EXPECT_EQ(marked(kChatMl, talk_of(R"([{"type": "text", "value": "a"}, {"type": "text", "text": "b"}])")),
            "<|user|>a\nb<end>\n");
  EXPECT_SAYS(error(R"([{"value": "b"}])"), "has no \"text\", but \"value\"");
  EXPECT_SAYS(error(R"([{"type": "text", "text": 3}])"), "\"text\" is no text");
  EXPECT_EQ(error(R"([{"type": "image", "url": "x"}, "b", []])"), "");
}

TEST(Conversation, OfShareGptHasRolesAndContents) {
  const auto c = read_conversation(
      R"({"talk": [{"from": "human", "value": "a", "n": 1}, {"from": "gpt", "value": "b"}]})", "c", "talk");
  ChatTemplate chat = chat_of("{% for m in messages %}{{ m.role }} {{ m.content }} {{ m.n }}|{% endfor %}");
  EXPECT_EQ(chat.render(c, {}), "user a 1|assistant b |");
  const auto error = [](const char* json) { return testing::error_of([&] { read_conversation(json, "c", "talk"); }); };
  EXPECT_EQ(error(R"({"talk": 1})"), "c: \"talk\": expected a list");
  EXPECT_SAYS(error(R"({"talk": [{"from": "who", "value": "b"}]})"), "message 1: \"from\" is \"who\"; it may be human");
  EXPECT_SAYS(error(R"({"messages": []})"), "an object with \"talk\"");
}

TEST(Conversation, ASystemBesideTheMessagesIsTheFirst) {
  const ChatTemplate chat = chat_of("{% for m in messages %}{{ m.role }} {{ m.content }}|{% endfor %}");
  const auto of = [&](const std::string& json) { return chat.render(read_conversation(json, "c"), {}); };
  const std::string hi = R"("messages": [{"role": "user", "content": "hi"}])";
  EXPECT_EQ(of(R"({"system": "Be brief.", )" + hi + "}"), "system Be brief.|user hi|");
  for (const char* none : {"null", R"("")", R"(" \n")"})
    EXPECT_EQ(of(fmt::format(R"({{"system": {}, {}}})", none, hi)), "user hi|");
  EXPECT_EQ(of(R"({"system": "no", "messages": [{"from": "system", "value": "a"}, {"from": "human", "value": "b"}]})"),
            "system a|user b|");
  EXPECT_SAYS(testing::error_of([&] { of(R"({"system": 3, )" + hi + "}"); }), "\"system\": expected a text");
}

// As rows of Parquet have it: each row has all columns.
TEST(Conversation, WhatIsNullBesideItIsNotThere) {
  const auto c = read_conversation(
      R"({"messages": [{"role": "user", "content": "a", "tool_calls": null, "weight": null}], "tools": null,
          "documents": null, "chat_template_kwargs": null})",
      "c");
  EXPECT_EQ(chat_of(kChatMl).render(c, {}), "<|user|>a<end>\n");
}

TEST(Conversation, SaysWhatIsNone) {
  const std::pair<const char*, const char*> cases[] = {
      {"3", "expected a list of messages"},
      {R"({"a": 1})", "expected a list of messages"},
      {R"({"messages": 1})", "\"messages\": expected a list"},
      {R"([{"content": "x"}])", "a \"role\""},
      {R"({"messages": [], "tools": 5})", "\"tools\": expected a list"},
      {"[", "not valid JSON"}};
  for (const auto& [json, said] : cases)
    EXPECT_SAYS(testing::error_of<FileError>([json = json] { read_conversation(json, "c"); }), said);
}

}  // namespace
}  // namespace weft::chat
