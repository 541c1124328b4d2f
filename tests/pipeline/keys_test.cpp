// Keys of rows: nested ones, ones that no row has, and texts that several make.
#include "apps/program.h"
#include "pipeline/pipeline_support.h"
#include "weft/pipeline/file_texts.h"
#include "weft/pipeline/row_template.h"

namespace weft {
namespace {

using testing::config_over;
using testing::error_of;
using testing::Harness;
using testing::spill;
using testing::TempDir;
using Texts = std::vector<std::string>;

// The read stage over files of these contents; what it says is in `error`.
struct Read {
  explicit Read(const std::vector<std::pair<std::string, std::string>>& files, const std::string& more = "") {
    std::string list;
    for (const auto& [name, content] : files) {
      spill(dir / name, content);
      list += (list.empty() ? "\"" : ", \"") + (dir / name).string() + "\"";
    }
    Harness harness;
    error = error_of([&] { harness.run(config_over(dir / "out", "[" + list + "]", more)); });
  }
  std::vector<Document> documents() const { return testing::documents_of(dir / "out/read"); }
  Texts texts() const { return testing::texts_of(dir / "out/read"); }
  TempDir dir;
  std::string error;
};

TEST(Keys, OfKeysAreFound) {
  const Read read({{"a.jsonl",
                    "{\"a\": {\"text\": \"one\", \"url\": \"http://x/1\", \"n\": {\"m\": 7}}}\n"
                    "{\"a.text\": \"two\", \"a\": {\"url\": \"http://x/2\"}}\n"}},
                  "text_key = \"a.text\"\nurl_key = \"a.url\"\nmeta_keys = [\"a.n.m\"]\n");
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(read.texts(), (Texts{"one", "two"}));
  EXPECT_EQ(read.documents()[0].url, "http://x/1");
  EXPECT_EQ(read.documents()[1].url, "http://x/2");
  EXPECT_EQ(read.documents()[0].meta, (nlohmann::json{{"a.n.m", 7}}));
  EXPECT_TRUE(read.documents()[1].meta.empty());
}

TEST(Keys, OfKeysMakeUrlsThatAreCompared) {
  const Read read({{"a.jsonl",
                    "{\"text\": \"one\", \"metadata\": {\"url\": \"http://x/1\"}}\n"
                    "{\"text\": \"two\", \"metadata\": {\"url\": \"https://x/1/\"}}\n"}},
                  "url_key = \"metadata.url\"\n[dedup]\nurls = true\nnear = false\n");
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(testing::texts_of(read.dir / "out/dedup"), (Texts{"one"}));
}

TEST(Keys, ThatNoRowHasAreRefusedWithThoseThatThereAre) {
  const std::string row = "{\"text\": \"one\", \"id\": 3, \"meta\": {\"link\": \"http://x\", \"n\": 1}}\n";
  const std::string there = "; there are \"id\", \"meta.link\", \"meta.n\", \"text\"";
  EXPECT_EQ(Read({{"a.jsonl", row}}, "url_key = \"metadata.url\"\n").error,
            "source \"s\": no row has the key \"metadata.url\" (source.url_key)" + there);
  EXPECT_EQ(Read({{"a.jsonl", row}}, "meta_keys = [\"id\", \"ids\"]\n").error,
            "source \"s\": no row has the key \"ids\" (source.meta_keys)" + there);
  EXPECT_EQ(Read({{"a.jsonl", row}}, "text_key = \"body\"\n").error,
            "source \"s\": no row has the key \"body\" (source.text_key)" + there);
  EXPECT_EQ(Read({{"a.jsonl", row}}, "messages_key = \"chat\"\n").error,
            "source \"s\": no row has the key \"chat\" (source.messages_key)" + there);
  EXPECT_EQ(Read({{"a.csv", "text,link\none,x\n"}}, "url_key = \"url\"\n").error,
            "source \"s\": no row has the key \"url\" (source.url_key); there are \"link\", \"text\"");
}

TEST(Keys, ThatOnlySomeRowsHaveAreFine) {
  EXPECT_EQ(Read({{"a.jsonl", "{\"text\": \"one\"}\n"}, {"b.jsonl", "{\"text\": \"two\", \"url\": null}\n"}},
                 "url_key = \"url\"\n")
                .error,
            "");
  EXPECT_EQ(Read({{"a.csv", "text\none\n"}, {"b.csv", "text,url\ntwo,\n"}}, "url_key = \"url\"\n").error, "");
}

// Nothing is known of keys where there are no rows; a default that no row has is no slip.
TEST(Keys, OfFilesWithoutRowsAreNotAskedFor) {
  EXPECT_EQ(Read({{"a.jsonl", ""}, {"b.txt", "x"}}, "url_key = \"url\"\n").error, "");
  EXPECT_EQ(Read({{"a.jsonl", "{broken\n[1]\n"}, {"b.txt", "x"}}, "url_key = \"url\"\n").error, "");
  EXPECT_EQ(Read({{"a.jsonl", "{\"text\": \"one\"}\n"}}, "").error, "");
}

// More rows than are checked before the work: found at its end, whoever made the shards.
TEST(Keys, OfALargeSourceAreKnownAtItsEnd) {
  std::string rows;
  for (int i = 0; i < 400; ++i) rows += "{\"text\": \"" + std::string(10000, 'x') + "\", \"id\": 1}\n";
  EXPECT_EQ(Read({{"a.jsonl", rows}}, "url_key = \"link\"\n").error,
            "source \"s\": no row has the key \"link\" (source.url_key); there are \"id\", \"text\"");
  EXPECT_EQ(Read({{"a.jsonl", rows + "{\"text\": \"last\", \"link\": \"http://x\"}\n"}}, "url_key = \"link\"\n").error,
            "");
}

TEST(Keys, OfUrlsThatAreNowhereLeaveDedupNothingToDo) {
  const std::string dedup = "[dedup]\nurls = true\nnear = false\n";
  EXPECT_SAYS(Read({{"a.jsonl", "{\"text\": \"one\", \"link\": \"http://x\"}\n"}}, dedup).error,
              "dedup.urls = true, but no document has a URL");
  EXPECT_SAYS(Read({{"a.jsonl", "{\"text\": \"one\", \"url\": \"N/A\"}\n"}}, dedup + "documents = false\n").error,
              "dedup.urls = true, but no document has a URL (as https://example.org/page)");
}

// What data.train names is read without a pipeline.
TEST(Keys, OfTextsThatAreTrainedOnMayBeTemplatesAndConversationsAreToldFromTexts) {
  const TempDir dir;
  spill(dir / "a.jsonl", "{\"q\": \"1+1?\", \"a\": 2}\n");
  const DocumentFiles files = more_document_files();
  ASSERT_TRUE(files.reads(dir / "a.jsonl", "{q} {a}"));
  EXPECT_FALSE(files.reads(dir / "a.jsonl", "q"));  // as lines, by their number
  Texts texts;
  files.for_each(dir / "a.jsonl", "{q} {a}", [&](std::string_view text, double) { texts.emplace_back(text); });
  EXPECT_EQ(texts, Texts{"1+1? 2"});
  spill(dir / "b.json", "[\n{\"messages\": []}]\n");
  EXPECT_SAYS(error_of([&] { files.for_each(dir / "b.json", "text", [](std::string_view, double) {}); }),
              "b.json: row 1: is a conversation (a list of \"messages\"), not a text");
}

TEST(RowTemplate, JoinsTheValuesOfARow) {
  const nlohmann::json row = {{"q", "What?"}, {"n", 4}, {"deep", {{"a", "That."}}}, {"empty", ""}, {"none", nullptr}};
  const auto fill = [&](const char* text) { return RowTemplate(text).fill(row); };
  EXPECT_EQ(fill("Question: {q}\nAnswer: {deep.a}!"), "Question: What?\nAnswer: That.!");
  EXPECT_EQ(fill("{n} {{q}} {q}"), "4 {q} What?");
  EXPECT_EQ(fill("{q}\n\n{empty?}\n\n{n}"), "What?\n\n4");
  EXPECT_EQ(fill("{q} ({missing?}){none?}."), "What?.");
  EXPECT_EQ(fill("{q}[{empty}]"), "What?[]");
  EXPECT_EQ(fill("q"), "What?");
  EXPECT_EQ(error_of([&] { fill("{q} {what}"); }),
            "no key \"what\"; there are \"deep.a\", \"empty\", \"n\", \"none\", \"q\"");
  EXPECT_SAYS(error_of([&] { fill("{none}"); }), "no value under \"none\"");
  EXPECT_SAYS(error_of([&] { fill("{deep}"); }), "\"deep\": expected a text or a number");
  for (const char* bad : {"{q", "q}", "{}", "{{q}}", "{a{b}}", "{?}"})
    EXPECT_THROW(RowTemplate{bad}, ConfigError) << bad;
}

TEST(Keys, ThatAreTemplatesMakeTexts) {
  const Read read({{"a.jsonl", "{\"question\": \"1+1?\", \"answer\": \"2\"}\n{\"question\": \"no answer\"}\n"}},
                  "text_key = \"Question: {question}\\nAnswer: {answer}\"\n");
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(read.texts(), (Texts{"Question: 1+1?\nAnswer: 2"}));
  EXPECT_SAYS(testing::slurp(read.dir / "out/read/broken-00000.jsonl"), "no key \\\"answer\\\"; there are");
  EXPECT_EQ(Read({{"a.csv", "q,a\n1+1?,2\n"}}, "text_key = \"{q} {a}\"\n").texts(), (Texts{"1+1? 2"}));
  EXPECT_SAYS(Read({{"a.csv", "q,a\n1+1?,2\n"}}, "text_key = \"{q} {b}\"\n").error,
              "no column (source.text_key) \"b\"");
  EXPECT_SAYS(Read({{"a.jsonl", "{}\n"}}, "text_key = \"{q\"\n").error,
              "source \"s\": source.text_key = \"{q\": a { without its }");
}

constexpr const char* kTokens = "[tokens]\nchat_template = \"chatml\"\n";

TEST(Pairs, AreConversationsOfTwoMessages) {
  const std::string keys = "prompt_key = \"{instruction}\\n\\n{input?}\"\ncompletion_key = \"output\"\n";
  const Read read({{"a.jsonl",
                    "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": 3}\n"
                    "{\"instruction\": \"Greet.\", \"input\": \"\", \"output\": \"Hi\"}\n"}},
                  keys + kTokens);
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(read.texts(), (Texts{"Add.\n\n1 2\n\n3", "Greet.\n\nHi"}));
  const std::string bytes = testing::slurp(read.dir / "out/tokens/train-00000.bin"),
                    mask = testing::slurp(read.dir / "out/tokens/train-00000.mask");
  std::string text, counted;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    text += bytes[i];
    if (i > 0 && mask[i / 2 - 1]) counted += bytes[i];
  }
  EXPECT_EQ(text,
            "<|im_start|>user\nAdd.\n\n1 2<|im_end|>\n<|im_start|>assistant\n3<|im_end|>\n"
            "<|im_start|>user\nGreet.<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n");
  EXPECT_EQ(counted, "3<|im_end|>\nHi<|im_end|>\n");
}

TEST(Pairs, MayBeColumnsOrListsOfMessages) {
  const std::string keys = "prompt_key = \"prompt\"\ncompletion_key = \"completion\"\n";
  EXPECT_EQ(Read({{"a.csv", "prompt,completion\n25-759=,-734\n"}}, keys).texts(), (Texts{"25-759=\n\n-734"}));
  const Read read(
      {{"a.jsonl",
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, "
        "{\"role\": \"user\", \"content\": \"c\"}], \"completion\": [{\"role\": \"assistant\", \"content\": "
        "\"d\"}]}\n"}},
      keys + kTokens);
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(read.texts(), (Texts{"a\n\nb\n\nc\n\nd"}));
  EXPECT_EQ(open_stage(read.dir / "out/tokens").manifest["files"][0]["counted"], 12);  // d<|im_end|> and a line feed
}

TEST(Pairs, OfListsOfMessagesKeepTheirToolsAndTheOrderOfTheirKeys) {
  const std::string completion =
      "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"z\":1,"
      "\"a\":2}}}]}]";
  const std::string tools = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\"}}]";
  const Read read({{"a.jsonl", "{\"prompt\": \"a\", \"completion\": " + completion + ", \"tools\": " + tools + "}\n" +
                                   "{\"prompt\": \"b\", \"completion\": \"c\", \"tools\": \"hammer\"}\n"}},
                  "prompt_key = \"prompt\"\ncompletion_key = \"completion\"\n");
  ASSERT_EQ(read.error, "");
  ASSERT_EQ(read.documents().size(), 2u);
  EXPECT_EQ(read.documents()[0].conversation, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}," +
                                                  completion.substr(1) + ",\"tools\":" + tools + "}");
}

TEST(Pairs, ASystemsTextIsTheFirstMessageWhereNoTemplateAsksForIt) {
  const std::string row = "{\"q\": \"a\", \"a\": \"b\", \"system\": \"Be brief.\"}\n";
  const auto texts = [&](const std::string& rows, const std::string& prompt) {
    return Read({{"a.jsonl", rows}}, "prompt_key = \"" + prompt + "\"\ncompletion_key = \"a\"\n").texts();
  };
  EXPECT_EQ(texts(row, "q"), (Texts{"Be brief.\n\na\n\nb"}));
  EXPECT_EQ(texts(row, "{system} {q}"), (Texts{"Be brief. a\n\nb"}));
  EXPECT_EQ(texts("{\"q\": \"a\", \"a\": \"b\", \"system\": 3}\n", "q"), (Texts{"a\n\nb"}));
  EXPECT_EQ(
      Read({{"a.csv", "q,a,system\none,two,Be brief.\n"}}, "prompt_key = \"q\"\ncompletion_key = \"a\"\n").texts(),
      (Texts{"Be brief.\n\none\n\ntwo"}));
}

TEST(Pairs, OfColumnsThatAreNotUtf8ArePutAside) {
  const Read read({{"a.csv", "q,a\none,1\ncaf\xe9,2\nthree,3\n"}}, "prompt_key = \"q\"\ncompletion_key = \"a\"\n");
  ASSERT_EQ(read.error, "");
  EXPECT_EQ(read.texts(), (Texts{"one\n\n1", "three\n\n3"}));
}

TEST(Pairs, AreRefusedByHalves) {
  const auto error = [](const std::string& keys) { return Read({{"a.jsonl", "{\"text\": \"x\"}\n"}}, keys).error; };
  EXPECT_SAYS(error("prompt_key = \"q\"\n"), "source.prompt_key without source.completion_key");
  EXPECT_SAYS(error("prompt_key = \"q\"\ncompletion_key = \"a\"\nmessages_key = \"m\"\n"), "leave one out");
  EXPECT_SAYS(error("prompt_key = \"q\"\ncompletion_key = \"a\"\ntext_key = \"m\"\n"), "source.text_key has no effect");
  EXPECT_SAYS(error("prompt_key = \"q\"\ncompletion_key = \"a\"\n"), "no row has the key \"q\" (source.prompt_key)");
}

}  // namespace
}  // namespace weft
