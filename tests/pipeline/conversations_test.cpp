// Conversations through the pipeline: rendered, tokenized, with a mask that training uses.
#include "apps/program.h"
#include "pipeline/pipeline_support.h"
#include "weft/chat/conversation.h"
#include "weft/data/sample_order.h"
#include "weft/data/token_source.h"
#include "weft/pipeline/provenance.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::config_over;
using testing::Harness;
using testing::slurp;
using testing::spill;
using testing::TempDir;

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

std::string row(const std::string& question, const std::string& answer) {
  return nlohmann::json{
             {"messages", {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}}}}
             .dump() +
         "\n";
}

struct Case {
  explicit Case(const std::string& rows, const std::string& source = "", const std::string& tokens = "") {
    spill(dir / "chats.txt", rows);
    spill(dir / "t.jinja", kTemplate);
    config = config_over(dir / "set", "[\"" + (dir / "chats.txt").string() + "\"]",
                         "messages_key = \"messages\"\n" + source + "[tokens]\nchat_template = \"" +
                             (dir / "t.jinja").string() + "\"\n" + tokens);
  }
  nlohmann::json tokens() const { return open_stage(dir / "set/tokens").manifest; }
  std::string prefix() const { return (dir / "set/tokens/train-00000").string(); }

  TempDir dir;
  PipelineConfig config;
};

// The texts of those targets of a sample that count, a list for each run of them.
std::vector<std::string> counted_texts(const SampleOrder& stream, int64_t sample, int64_t seq_length) {
  const size_t n = size_t(seq_length);
  std::vector<int32_t> ids(n), targets(n), positions(n);
  std::vector<uint8_t> counted(n);
  stream.read(sample, {ids, targets, counted, positions});
  std::vector<std::string> texts;
  for (size_t i = 0; i < n; ++i) {
    if (!counted[i]) continue;
    if (i == 0 || !counted[i - 1]) texts.emplace_back();
    texts.back() += char(targets[i]);
  }
  return texts;
}

TEST(Conversations, AreTrainedOnWhereTheAssistantSpeaks) {
  const Case c(row("one?", "first") + row("two?", "second"));
  Harness harness;
  harness.run(c.config);
  DataSpec spec;
  spec.paths = {c.prefix()};
  spec.vocab_size = 257, spec.seq_length = 80;
  spec.packing = PackingKind::first_fit, spec.documents_apart = true;
  const SampleOrder stream(spec);
  ASSERT_EQ(stream.samples_per_epoch(), 1);
  EXPECT_EQ(counted_texts(stream, 0, 80), (std::vector<std::string>{"first</>", "second</>"}));
  EXPECT_EQ(c.tokens()["files"][0]["counted"], stream.counted_targets(0));
  EXPECT_TRUE(audit_dataset(c.dir / "set").problems.empty());
  EXPECT_NE(testing::weft({"data", "stats", (c.dir / "set").string()})
                .out.find(fmt::format("of which count {}", stream.counted_targets(0))),
            std::string::npos);
}

// The bytes of a shard are those of encode_conversation, its mask one position earlier.
TEST(Conversations, AreWhatTheTemplateAndTheTokenizerMakeOfThem) {
  const std::string talk = row("one?", "first");
  const Case c(talk);
  Harness harness;
  harness.run(c.config);
  const auto bytes = make_byte_tokenizer();
  const auto expected =
      chat::encode_conversation(chat::read_chat_template("byte", {.file = c.dir / "t.jinja", .name = {}}), *bytes,
                                chat::read_conversation(talk, "c"));
  const auto source = open_megatron_tokens(c.prefix(), 0);
  std::vector<int32_t> ids(size_t(source->size()), 0);
  source->read(0, ids);
  EXPECT_EQ(ids, expected.ids);
  const std::string mask = slurp(c.prefix() + ".mask");
  ASSERT_EQ(mask.size(), ids.size());
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(mask[i], char(expected.mask[i + 1])) << i;
  EXPECT_EQ(mask.back(), 0);
}

TEST(Conversations, OfShareGptAreTheSameAsOthers) {
  const char* talk =
      R"({"messages": [{"from": "human", "value": "one?", "weight": 0}, {"from": "gpt", "value": "first"}]})";
  const Case named(row("one?", "first")),
      c(std::string(talk) + "\n{\"messages\": [{\"from\": \"who\", \"value\": \"x\"}]}\n");
  Harness harness;
  harness.run(named.config);
  harness.run(c.config);
  EXPECT_EQ(slurp(c.prefix() + ".bin"), slurp(named.prefix() + ".bin"));
  EXPECT_EQ(slurp(c.prefix() + ".mask"), slurp(named.prefix() + ".mask"));
  const std::string broken = slurp(c.dir / "set/read/broken-00000.jsonl");
  EXPECT_NE(broken.find("\\\"who\\\"; it may be human, user, gpt"), std::string::npos) << broken;
}

// As LLaMA-Factory's files have it; a row that is no text there is broken.
TEST(Conversations, ASystemBesideTheMessagesIsTheFirstOfThem) {
  const std::string talk = R"("messages": [{"from": "human", "value": "one?"}, {"from": "gpt", "value": "first"}]})";
  const Case c(R"({"system": "Be brief.", )" + talk + "\n" + R"({"system": 3, )" + talk + "\n");
  Harness().run(c.config);
  const auto read = testing::documents_of(c.dir / "set/read");
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].text, "Be brief.\n\none?\n\nfirst");
  EXPECT_SAYS(slurp(c.dir / "set/read/broken-00000.jsonl"), "expected a text, got 3");
  std::string bytes, text = slurp(c.prefix() + ".bin");
  for (size_t i = 0; i < text.size(); i += 2) bytes += text[i];
  EXPECT_EQ(bytes, "<system>Be brief.</><user>one?</><assistant>first</>");
}

TEST(Conversations, ContentsInPartsAreTheirTextsAndOthersAreBroken) {
  const std::string parts =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "one?"}]},
                       {"role": "assistant", "content": [{"type": "text", "text": "first"}]}]})";
  const std::string value = R"({"messages": [{"role": "user", "content": [{"type": "text", "words": "one?"}]}]})";
  std::string row_of_parts = parts;
  std::erase(row_of_parts, '\n');
  const Case whole(row("one?", "first")), c(row_of_parts + "\n" + value + "\n");
  Harness harness;
  harness.run(whole.config);
  harness.run(c.config);
  EXPECT_EQ(slurp(c.prefix() + ".bin"), slurp(whole.prefix() + ".bin"));
  EXPECT_EQ(open_stage(c.dir / "set/read").counts.dropped, (std::map<std::string, int64_t>{{"broken", 1}}));
  const std::string broken = slurp(c.dir / "set/read/broken-00000.jsonl");
  EXPECT_NE(broken.find("has no \\\"text\\\", but \\\"type\\\", \\\"words\\\""), std::string::npos) << broken;
}

TEST(Conversations, WhatIsBrokenNamesTheKeyOfTheMessages) {
  const TempDir dir;
  spill(dir / "in.jsonl", "{\"talk\": 3}\n{\"talk\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  Harness harness;
  harness.run(config_over(dir / "set", "[\"" + (dir / "in.jsonl").string() + "\"]", "messages_key = \"talk\"\n"));
  const std::string broken = slurp(dir / "set/read/broken-00000.jsonl");
  EXPECT_NE(broken.find("\\\"talk\\\": expected a list"), std::string::npos) << broken;
}

TEST(Conversations, ThatAreNoneOrThatTheTemplateRefusesAreCountedAndPutAside) {
  const Case c(row("one?", "first") + "{\"messages\": [{\"content\": \"who?\"}]}\n" + "{\"text\": \"no talk\"}\n" +
               "{\"messages\": [{\"role\": \"user\", \"content\": \"alone\"}]}\n");
  Harness harness;
  harness.run(c.config);
  EXPECT_EQ(open_stage(c.dir / "set/read").counts.dropped.at("broken"), 2);
  EXPECT_EQ(c.tokens()["counts"]["dropped"]["tokens.no_assistant"], 1);
  spill(c.dir / "t.jinja", "{{ raise_exception('never') }}");
  harness.again = true;
  harness.run(c.config);  // another template does the stage again
  EXPECT_EQ(c.tokens()["counts"]["dropped"]["tokens.chat_template"], 2);
  EXPECT_TRUE(c.tokens()["files"].empty());
}

TEST(Conversations, WhoseToolsTheTemplateLeavesOutAreDroppedAndCounted) {
  auto with_tools = nlohmann::json::parse(row("two?", "second"));
  with_tools["tools"] = {{{"type", "function"}, {"function", {{"name", "add"}}}}};
  const Case c(row("one?", "first") + with_tools.dump() + "\n");
  Harness harness;
  harness.run(c.config);
  EXPECT_EQ(c.tokens()["counts"]["dropped"], (nlohmann::json{{"tokens.chat_template", 1}}));
  spill(c.dir / "t.jinja", std::string("{{ tools | tojson if tools }}") + kTemplate);
  harness.again = true;
  harness.run(c.config);
  EXPECT_FALSE(c.tokens()["counts"]["dropped"].contains("tokens.chat_template")) << c.tokens()["counts"];
}

TEST(Conversations, AreFilteredAndDeduplicatedByWhatTheySay) {
  const Case c(row("one?", "the same words") + row("one?", "the same words") + row("x", "y"),
               "[length]\nmin_words = 3\n[dedup]\nnear = false\n");
  Harness harness;
  harness.run(c.config);
  const auto kept = testing::documents_of(c.dir / "set/dedup");
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].text, "one?\n\nthe same words");
  const Provenance provenance(*find_dataset(c.prefix()));
  const auto stories = provenance.stories({provenance.document(0)});
  EXPECT_EQ(stories[0].duplicates.size(), 1u);
  EXPECT_EQ(stories[0].read->origin.row, 1);
}

TEST(Conversations, TextsBesideThemCountWhole) {
  TempDir dir;
  spill(dir / "chats.jsonl", row("one?", "first"));
  spill(dir / "a.txt", "plain");
  spill(dir / "t.jinja", kTemplate);
  const auto at = [&](const char* name) { return "\"" + (dir / name).string() + "\""; };
  Harness harness;
  harness.run(testing::config_of("[run]\ndir = " + at("set") + "\n[[source]]\nname = \"a\"\nfiles = [" + at("a.txt") +
                                 "]\n[[source]]\nname = \"b\"\nmessages_key = \"messages\"\nfiles = [" +
                                 at("chats.jsonl") + "]\n[tokens]\nchat_template = " + at("t.jinja") + "\n"));
  EXPECT_EQ(slurp(dir / "set/tokens/train-00000.mask").substr(0, 6), std::string("\1\1\1\1\1\0", 6));
}

TEST(Conversations, StagesThatWouldChangeTheirTextsAreRefused) {
  const auto refusal = [](const std::string& more) {
    return testing::error_of<ConfigError>([&] { Case c("", more); });
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal("[pii]\n"), "");
  EXPECT_NE(refusal("[c4]\n").find("[c4] changes texts"), std::string::npos);
  EXPECT_NE(refusal("[dedup]\nlines = \"keep_none\"\n").find("dedup.lines takes lines out"), std::string::npos);
  EXPECT_NE(refusal("format = \"csv\"\n").find("use \"jsonl\""), std::string::npos);
}

// In messages, tools and what functions are called with, which stays JSON; names of roles stay.
TEST(Conversations, PersonalDataIsMaskedInAllThatTheySay) {
  const std::string arguments = R"("{\"to\": \"jo@example.org\", \"phone\": 2125550187, \"n\": 7}")";
  const Case c(
      R"({"messages": [{"role": "user", "content": "I am ann@example.org, call 212-555-0187"}, {"role": )"
      R"("assistant", "content": "ok", "tool_calls": [{"type": "function", "function": {"name": "mail", )"
      R"("arguments": )" +
          arguments +
          R"(}}]}, {"role": "tool", "content": [{"type": "text", "text": )"
          R"("from 81.2.69.142"}]}], "tools": [{"type": "function", "function": {"name": "mail", "description": )"
          R"("by root@example.org", "parameters": {"max": 2125550187}}}]})"
          "\n" +
          row("one?", "first"),
      "[pii]\nmask = \"<{}>\"\n");
  Harness harness;
  harness.run(c.config);
  const auto kept = testing::documents_of(c.dir / "set/filter");
  ASSERT_EQ(kept.size(), 2u);
  const auto said = nlohmann::json::parse(kept[0].conversation);
  EXPECT_EQ(said["messages"][0]["content"], "I am <EMAIL_ADDRESS>, call <PHONE_NUMBER>");
  const std::string masked = said["messages"][1]["tool_calls"][0]["function"]["arguments"];
  EXPECT_EQ(nlohmann::json::parse(masked),
            (nlohmann::json{{"to", "<EMAIL_ADDRESS>"}, {"phone", "<PHONE_NUMBER>"}, {"n", 7}}));
  EXPECT_EQ(said["messages"][2]["content"][0]["text"], "from <IP_ADDRESS>");
  EXPECT_EQ(said["tools"][0]["function"]["description"], "by <EMAIL_ADDRESS>");
  EXPECT_EQ(kept[0].text.find("example.org"), std::string::npos) << kept[0].text;
  EXPECT_EQ(kept[1].conversation, nlohmann::ordered_json::parse(kept[1].conversation).dump());
  const auto changed = open_stage(c.dir / "set/filter").counts.changed;
  EXPECT_EQ(changed.at("pii.emails"), 3);
  EXPECT_EQ(changed.at("pii.phones"), 3);
  EXPECT_EQ(changed.at("pii.ips"), 1);
}

TEST(Conversations, ATemplateDateThatIsNoneIsRefused) {
  const Case c(row("one?", "first"), "", "template_date = \"tomorrow\"\n");
  Harness harness;
  EXPECT_THROW(harness.run(c.config), ConfigError);
}

// A mask that is gone would silently train on the questions too.
TEST(Conversations, AMaskThatIsMissingIsNoticed) {
  const Case c(row("one?", "first"));
  Harness harness;
  harness.run(c.config);
  fs::remove(c.prefix() + ".mask");
  EXPECT_THROW(find_dataset(c.prefix()), FileError);
  EXPECT_EQ(audit_dataset(c.dir / "set").problems.size(), 1u);
}

// The example: real conversations would lie where its own do.
TEST(ConversationsSlow, TheExampleRunsAndTrains) {
  TempDir dir;
  fs::copy(std::string(testing::kSourceDir) + "/examples", dir / "examples", fs::copy_options::recursive);
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  const auto made = testing::weft({"data", "run", "examples/data/conversations.toml"});
  EXPECT_EQ(made.status, 0) << made.err;
  const auto trained = testing::weft({"train", "examples/sft.toml", "train.train_iters=6", "train.seq_length=128"});
  EXPECT_EQ(trained.status, 0) << trained.err;
  const auto why = testing::weft({"data", "why", "runs/sft", "--step", "1"});
  EXPECT_EQ(why.status, 0) << why.err;
  fs::current_path(before);
}

}  // namespace
}  // namespace weft
