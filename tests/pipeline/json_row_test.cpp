// Rows of JSON with a text: the same as the general reader and writer give, also for what is broken.
#include "weft/pipeline/json_row.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/pipeline/document.h"

namespace weft {
namespace {

// The text under "text", or what the failure says, up to where it says it.
std::string by_both(const std::string& row) {
  std::string fast, slow;
  try {
    const JsonRow r = parse_json_row(row, "text", "row", {});
    fast = r.has_text ? r.text : "no text";
  } catch (const Error&) { fast = "refused"; }
  try {
    const nlohmann::json json = parse_json(row, "row");
    slow = JsonFields(json, "row").string("text", "no text");
  } catch (const Error&) { slow = "refused"; }
  EXPECT_EQ(fast, slow) << row;
  return fast;
}

TEST(JsonRow, IsReadAsJsonIs) {
  EXPECT_EQ(by_both(R"({"text": "plain"})"), "plain");
  EXPECT_EQ(by_both(R"({"a": {"text": "inner"}, "b": ["text", "no"], "text" : "outer", "c": 1})"), "outer");
  EXPECT_EQ(by_both(R"({"a": "text", "text": "\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000|"})"),
            std::string("\"\\/\b\f\n\r\t\u00e9\U0001f600\0|", 16));
  EXPECT_EQ(by_both(R"({"te\u0078t": "by another name"})"), "by another name");
  EXPECT_EQ(by_both(R"({"a": 1})"), "no text");
  EXPECT_EQ(by_both(R"({"text": ""})"), "");
  for (const char* bad : {R"({"text": "a", "text": "b"})", R"({"text": "\ud800"})", R"({"text": "\ud800\u0041"})",
                          R"({"text": "\udc00"})", R"({"text": "\x41"})", R"({"text": "\u12g4"})", R"({"text": "open)",
                          R"({"text": "open\")", R"({"text": "a"} x)", R"({"text" "a"})", R"({"text": "a")",
                          "{\"text\": \"a\tb\"}", "{\"text\": \"\xff\"}", R"({"text": "a",})", "", "\""})
    EXPECT_EQ(by_both(bad), "refused") << bad;
}

TEST(JsonRow, IsWrittenAsJsonIs) {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += char(c);
  all += "\u00e9\u20ac\U0001f600";
  std::string json;
  append_json_string(json, all);
  EXPECT_EQ(json, nlohmann::json(all).dump());
  json.clear();
  append_json_string(json, "bad \xff byte");
  EXPECT_EQ(json, "\"bad \ufffd byte\"");
}

TEST(JsonRow, ADocumentsLineHasItsKeysInOrder) {
  Document d;
  d.id = {12, 345};
  d.source = "web";
  d.origin = {.file = "a \"b\".jsonl", .row = 3, .begin = 10, .end = 90};
  d.url = "http://x/";
  d.text = "one\ntwo";
  d.meta["date"] = "today";
  const std::string line = to_line(d);
  EXPECT_EQ(line, nlohmann::json::parse(line).dump() + "\n");
  const Document again = document_of_line(std::string_view(line).substr(0, line.size() - 1), "here");
  EXPECT_EQ(to_line(again), line);
}

}  // namespace
}  // namespace weft
