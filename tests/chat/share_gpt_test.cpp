// Conversations with tools, as ShareGPT's data sets and OpenAI's have them.
#include <gtest/gtest.h>

#include "chat/marked.h"
#include "support.h"
#include "weft/base/error.h"
#include "weft/chat/conversation.h"

namespace weft::chat {
namespace {

using testing::chat_of;
using testing::marked;

std::string error(const std::string& json) {
  return testing::error_of([&] { read_conversation(json, "c", "conversations"); });
}

constexpr const char* kTalk = R"({"conversations": [
    {"from": "human", "value": "Rice?"},
    {"from": "function_call", "value": "{\"name\": \"find\", \"arguments\": {\"what\": \"rice\", \"n\": 2}}"},
    {"from": "observation", "value": "[\"pilaf\"]"},
    {"from": "gpt", "value": "Pilaf."}],
  "tools": "[{\"name\": \"find\", \"description\": \"finds\", \"parameters\": {}}]"})";
// As templates of models have it.
constexpr const char* kWithTools =
    "{% if tools %}{% for t in tools %}<{{ t.function.name }}>{% endfor %}{% endif %}"
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% for c in m.tool_calls or [] %}"
    "({{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}){% endfor %}"
    "{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %};{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}";

TEST(ShareGpt, CallsAndObservationsAreThoseOfTools) {
  EXPECT_EQ(marked(chat_of(kWithTools), read_conversation(kTalk, "c", "conversations")),
            "<find>u:Rice?;a:[(000000001 find {\"what\": \"rice\", \"n\": 2});]t:[\"pilaf\"](000000001);a:[Pilaf.;]");
}

// As rows of a table have them, where some messages are of another form.
TEST(ShareGpt, NullsBesideWhatIsSaidCountAsNothing) {
  const char* talk = R"([{"role": null, "content": null, "from": "human", "value": "x", "weight": null},
    {"role": null, "from": "function_call", "value": "{\"name\": \"f\"}", "content": null},
    {"from": "observation", "value": "1", "tool_call_id": null},
    {"role": "assistant", "content": [{"type": "text", "text": null, "value": "a"}], "from": null, "value": null}])";
  EXPECT_EQ(marked(chat_of(kWithTools), read_conversation(talk, "c")),
            "u:x;a:[(000000001 f {});]t:1(000000001);a:[a;]");
  const Conversation with_tool =
      read_conversation(R"({"messages": [], "tools": "[{\"name\": \"f\", \"type\": null}]"})", "c");
  EXPECT_NE(given(with_tool.tools.list().items[0], "function"), nullptr);
  EXPECT_SAYS(testing::error_of([] { read_conversation(R"({"messages": null, "conversations": []})", "c"); }),
              "it has \"conversations\": name that");
}

TEST(ShareGpt, SeveralCallsAreAnsweredInTheirOrder) {
  const char* talk = R"([{"from": "human", "value": "x"},
    {"from": "function_call", "value": "[{\"name\": \"f\"}, {\"name\": \"g\", \"arguments\": \"{\\\"a\\\": 1}\"}]"},
    {"from": "observation", "value": "1"}, {"from": "observation", "value": "2"}])";
  EXPECT_EQ(marked(chat_of(kWithTools), read_conversation(talk, "c")),
            "u:x;a:[(000000001 f {})(000000002 g {\"a\": 1});]t:1(000000001);t:2(000000002);");
}

// Else the model would learn that the assistant says nothing there.
TEST(ShareGpt, ATemplateThatShowsNoCallsGetsThemAsText) {
  const std::string plain =
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}";
  Conversation talk = read_conversation(kTalk, "c", "conversations");
  EXPECT_SAYS(testing::error_of([&] { marked(chat_of(plain), talk); }), "leaves out the \"tools\"");
  talk.tools = {};
  EXPECT_EQ(
      marked(chat_of(plain), talk),
      "u:Rice?;a:[{\"name\": \"find\", \"arguments\": {\"what\": \"rice\", \"n\": 2}};]t:[\"pilaf\"];a:[Pilaf.;]");
  const char* openai = R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "Wait.",
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}])";
  EXPECT_EQ(marked(chat_of(plain), read_conversation(openai, "c")),
            "u:q;a:[Wait.\n{\"name\": \"f\", \"arguments\": {}};]");
}

TEST(ShareGpt, ToolsMayBeAText) {
  const auto tools = [](const std::string& json) {
    return chat_of("{{ tools | tojson }}")
        .render(read_conversation(R"({"messages": [], "tools": )" + json + "}", "c"), {});
  };
  EXPECT_EQ(tools(R"("[{\"name\": \"f\"}]")"), R"([{"type": "function", "function": {"name": "f"}}])");
  EXPECT_EQ(tools(R"("[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]")"),
            R"([{"type": "function", "function": {"name": "f"}}])");
  EXPECT_EQ(tools(R"("[]")"), "[]");
  EXPECT_EQ(tools(R"([{"name": "f"}])"), R"([{"name": "f"}])");  // a list is the template's affair
  const Conversation none = read_conversation(R"({"messages": [], "tools": ""})", "c");
  EXPECT_TRUE(none.tools.is_undefined());
}

TEST(ShareGpt, WhatIsNoCallOrNoRoleIsNamed) {
  EXPECT_SAYS(error(R"({"conversations": [{"from": "function_call", "value": "find rice"}]})"),
              "c: message 1: its \"value\" is no call of a function: ");
  EXPECT_SAYS(error(R"({"conversations": [{"from": "function_call", "value": "{\"arguments\": 1}"}]})"),
              "has no \"name\"");
  EXPECT_SAYS(error(R"({"conversations": [{"from": "who", "value": "x"}]})"), "\"from\" is \"who\"; it may be human");
  EXPECT_SAYS(error(R"({"conversations": [], "tools": "[{"})"), "c: \"tools\"");
  EXPECT_SAYS(error(R"({"conversations": [], "tools": "3"})"), "expected a list of tools");
}

TEST(ShareGpt, MessagesMayLieInAnObject) {
  const Conversation c =
      read_conversation(R"({"data": {"talk": [{"from": "human", "value": "x"}]}})", "c", "data.talk");
  EXPECT_EQ(text_in(c.messages.list().items.at(0)), "x");
}

}  // namespace
}  // namespace weft::chat
