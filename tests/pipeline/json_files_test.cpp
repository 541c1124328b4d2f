// JSON files that are no lines: lists of rows, rows over several lines, lists within an object.
#include <random>

#include "apps/program.h"
#include "pipeline/pipeline_support.h"
#include "weft/pipeline/json_row.h"
#include "weft/pipeline/row_reader.h"

namespace weft {
namespace {

using testing::ReadFile;
using Texts = std::vector<std::string>;

Texts texts_in(const std::string& json, const std::string& name = "a.json") { return ReadFile(name, json).texts(); }

TEST(JsonFiles, AListGivesItsElements) {
  for (const char* json : {"[{\"text\": \"one\"}, {\"text\": \"two\"}]",
                           "\xef\xbb\xbf\n[\n {\"text\": \"one\"},\n"
                           " {\"text\":\n\"two\"}\n]\n",
                           "[{\"text\":\"one\"},{\"text\":\"two\"},]", "[{\"text\":\"one\"}]\n[\n{\"text\":\"two\"}]",
                           "[{\"text\":\"one\"}\r\n,{\"text\":\"two\"}\r\n]"}) {
    EXPECT_EQ(texts_in(json), (Texts{"one", "two"})) << json;
    EXPECT_EQ(texts_in(json, "a.jsonl"), (Texts{"one", "two"})) << json;
  }
  EXPECT_EQ(texts_in("[]"), Texts{});
  EXPECT_EQ(texts_in("[{\"text\": \"a ] } \\\" [ b\\\\\", \"x\": [[1, {\"y\": []}], null, -1.5e3]}]"),
            (Texts{"a ] } \" [ b\\"}));
}

TEST(JsonFiles, LinesStayLines) {
  EXPECT_EQ(texts_in("{\"text\": \"one\"}\n{\"text\": \"two\"}\n"), (Texts{"one", "two"}));
  EXPECT_EQ(texts_in("{\"text\": \"[one]\"}\n"), (Texts{"[one]"}));
  EXPECT_EQ(texts_in("[1]\n{\"text\": \"one\"}\n", "a.jsonl"), (Texts{"one"}));
  EXPECT_EQ(texts_in("{\"text\": \"cut\n{\"text\": \"one\"}\n"), (Texts{"one"}));
  EXPECT_EQ(texts_in("{\"text\": \"one\", \"list\": [{\"a\": 1}]}\n"), (Texts{"one"}));
  EXPECT_EQ(texts_in("{\"list\": [{\"a\": 1}]}\n{\"text\": \"two\", \"list\": [{\"a\": 1}]}\n"), (Texts{"two"}));
}

TEST(JsonFiles, ObjectsMayTakeSeveralLines) {
  EXPECT_EQ(texts_in("{\n  \"text\": \"one\"\n}\n{\n  \"text\": \"two\"\n}\n"), (Texts{"one", "two"}));
  EXPECT_EQ(texts_in("{\n  \"list\": [{\"a\": 1}],\n  \"text\": \"one\"\n}\n"), (Texts{"one"}));
}

TEST(JsonFiles, AnObjectOnTopGivesTheListInIt) {
  const std::string rows = "[{\"text\": \"one\"}, {\"text\": \"two\"}]";
  EXPECT_EQ(texts_in("{\"version\": \"1\", \"tags\": [\"a\", {}], \"data\": " + rows + ", \"n\": 2}"),
            (Texts{"one", "two"}));
  EXPECT_EQ(texts_in("{\n  \"data\": " + rows + "\n}\n"), (Texts{"one", "two"}));
  const ReadFile two("a.json", "{\"train\": " + rows + ", \"test\": " + rows + "}");
  EXPECT_EQ(two.texts(), (Texts{"one", "two"}));
  EXPECT_EQ(two.broken(), 1);
  EXPECT_SAYS(two.why(), "the rows are the list \"train\"; \"test\" is another list, which is left out");
}

TEST(JsonFiles, ALongObjectOnTopIsNoRow) {
  std::string json = "{\"data\": [";
  for (int i = 0; i < 2000; ++i) json += fmt::format("{{\"text\": \"{} {}\"}}, ", i, std::string(600, 'x'));
  const ReadFile read("a.json", json + "]}", "[read]\nmax_row_mb = 1\n");
  EXPECT_EQ(read.texts().size(), 2000u);
  EXPECT_EQ(read.broken(), 0);
}

TEST(JsonFiles, ARowIsWhereItSays) {
  const std::string json = "[\n  {\"text\": \"one\"},\n  3,\n  {\"text\": \"two\"}\n]\n";
  const ReadFile read("a.json", json);
  EXPECT_EQ(read.broken(), 1);
  EXPECT_EQ(read.first_broken().at("row"), 2);
  const Document two = testing::documents_of(read.dir / "out/read").at(1);
  EXPECT_EQ(two.origin.row, 3);
  EXPECT_EQ(json.substr(size_t(two.origin.begin), size_t(two.origin.end - two.origin.begin)), "{\"text\": \"two\"}");
}

TEST(JsonFiles, ABrokenElementCostsItselfAlone) {
  for (const std::string between : {", ", ",\n  "})
    for (const std::string bad : {"{\"text\": \"no\", \"x\": [{\"text\": 1]}", "{\"text\": \"no}",
                                  "{\"text\": \"he said \"no\" to it\"}", "{\"text\" \"no\"}", "{\"text\": \"no\"",
                                  "{\"text\": no}", "{\"text\": \"\\q\"}", "{\"text\": \"no\",}", "]"}) {
      std::string json = "[";
      for (int i = 0; i < 6; ++i) json += (i > 0 ? between : "") + (i == 3 ? bad : "{\"text\": \"good\"}");
      const ReadFile read("a.json", json + "]");
      const bool swallows_one = bad == "{\"text\": \"no}" && between == ", ";
      EXPECT_GE(read.texts().size(), swallows_one ? 4u : 5u) << json;
      EXPECT_LE(read.texts().size(), 5u) << json;
      EXPECT_GE(read.broken(), 1) << json;
      EXPECT_EQ(read.failure(), "") << json;
    }
}

TEST(JsonFiles, OfObjectsOneAfterTheOtherABrokenOneCostsItselfAlone) {
  std::string json;
  for (const char* text : {"\"one\"", "\"two\", 3", "\"three\""}) json += fmt::format("{{\n  \"text\": {}\n}}\n", text);
  const ReadFile read("a.json", json);
  EXPECT_EQ(read.texts(), (Texts{"one", "three"}));
  EXPECT_EQ(read.broken(), 1);
  EXPECT_EQ(read.failure(), "");
}

TEST(JsonFiles, OneThatIsCutOffIsNamed) {
  const std::string json = "[{\"text\": \"one\"}, {\"text\": \"two\"}]";
  for (const size_t size : {json.size() - 1, size_t{25}, size_t{17}, size_t{18}}) {
    const ReadFile read("a.json", json.substr(0, size));
    EXPECT_EQ(read.texts().size(), size == json.size() - 1 ? 2u : 1u);
    EXPECT_EQ(read.broken(), 1);
    EXPECT_SAYS(read.failure(), "cut short: the JSON ends too early");
  }
  EXPECT_SAYS(ReadFile("a.json", json + " no").failure(), "other text follows the list");
}

TEST(JsonFiles, AnElementThatIsTooLongIsPutAside) {
  const std::string json =
      "[{\"text\": \"one\"},\n{\"x\": \"" + std::string(3 << 20, 'x') + "\"},\n{\"text\": \"two\"}]";
  const ReadFile read("a.json", json, "[read]\nmax_row_mb = 1\n");
  EXPECT_EQ(read.texts(), (Texts{"one", "two"}));
  EXPECT_EQ(read.broken(), 1);
  EXPECT_SAYS(read.why(), "longer than 1048576 bytes (read.max_row_mb)");
}

TEST(JsonFiles, ListsOfConversationsAreRows) {
  const ReadFile read("a.json",
                      "[{\"conversations\": [{\"from\": \"human\", \"value\": \"Hi\"}, {\"from\": \"gpt\", \"value\": "
                      "\"Hello\"}]}]",
                      "messages_key = \"conversations\"\n");
  EXPECT_EQ(read.texts(), (Texts{"Hi\n\nHello"}));
}

// A file of any size: memory does not grow with it.
TEST(JsonFiles, AListIsReadAsAStream) {
  class Endless final : public ByteReader {
   public:
    size_t read(std::span<char> out) override {
      constexpr std::string_view kRow = " {\"text\": \"a row of the list\"},\n";
      for (char& c : out) c = made_ == 0 ? '[' : kRow[size_t(made_) % kRow.size()], ++made_;
      return out.size();
    }
    int64_t bytes_in() const override { return made_; }

   private:
    int64_t made_ = 0;
  };
  const auto rows = read_json(Input(std::make_unique<Endless>()), {"text"}, 1 << 20);
  Row row;
  for (int i = 0; i < 100000; ++i) ASSERT_TRUE(rows->next(row) && row.broken.empty());
  EXPECT_EQ(row.bytes, "{\"text\": \"a row of the list\"}");
  EXPECT_LT(rows->bytes_in() - row.end, 1 << 20) << "not read ahead";
}

TEST(JsonScan, EndsWhereTheValueEndsHoweverItIsCut) {
  const std::string values[] = {"{\"a\": [1, 2.5e-3, {\"b\": null}], \"c\\\"d\": \"\\\\\"}", "[]", "{}", "\"x\"",
                                "[[[]]]"};
  std::mt19937 random(7);
  for (const std::string& value : values) {
    const std::string text = value + " , rest";
    for (int repeat = 0; repeat < 50; ++repeat) {
      JsonScan scan;
      size_t at = 0;
      while (!scan.done() && scan.broken().empty() && at < text.size())
        at += scan.take(text.substr(at, 1 + random() % 7));
      EXPECT_TRUE(scan.done());
      EXPECT_EQ(at, value.size()) << value;
    }
  }
  for (const char* bad : {"{1}", "[1 2]", "{\"a\" 1}", "{\"a\":}", "[,]", "}", "{\"a\":1]", "\"\n\"", "{\"a\":1,}"}) {
    JsonScan scan;
    scan.take(bad);
    EXPECT_FALSE(scan.broken().empty()) << bad;
  }
}

}  // namespace
}  // namespace weft
