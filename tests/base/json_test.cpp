#include "weft/base/json.h"

#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

// What parsing says: empty, or the message.
std::string parse_error(std::string_view text, JsonLimits limits = {}) {
  return testing::error_of<FileError>([&] { parse_json(text, "f.json", limits); });
}

// What `get` says of this object.
template <class Get>
std::string field_error(const char* text, Get get) {
  const nlohmann::json json = parse_json(text, "f.json");
  return testing::error_of<FileError>([&] { get(JsonFields(json, "f.json")); });
}

TEST(Utf8, FindsTheFirstByteThatIsWrong) {
  EXPECT_EQ(utf8_error("abc \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"), std::string_view::npos);
  for (const char* bad : {"ab\x80", "ab\xc0\x80", "ab\xc1\xbf", "ab\xe0\x9f\xbf", "ab\xed\xa0\x80",
                          "ab\xf0\x8f\xbf\xbf", "ab\xf4\x90\x80\x80", "ab\xf5\x80\x80\x80", "ab\xff", "ab\xc3",
                          "ab\xe2\x82", "ab\xf0\x9f\x98", "ab\xc3\x28", "ab\xe2\x28\xa1"})
    EXPECT_EQ(utf8_error(bad), 2u) << bad;
}

TEST(ParseJson, BuildsTheSameValuesAsTheLibrary) {
  for (const char* text : {"{}", "[]", "7", "-7", "1.5", "18446744073709551615", "\"a\\u00e9\"", "null", "true",
                           R"({"a":[1,[2,{"b":null}],"x"],"c":{"d":{"e":[]}},"f":false})"})
    EXPECT_EQ(parse_json(text, "f.json"), nlohmann::json::parse(text)) << text;
}

TEST(ParseJson, NamesLineAndColumnOfAnError) {
  const std::string message = parse_error("{\n  \"a\": 1,\n  oops\n}");
  EXPECT_EQ(message.rfind("f.json: line 3, column 3 (byte 14): not valid JSON: syntax error", 0), 0u) << message;
}

TEST(ParseJson, RefusesWhatIsNotExactlyOneValue) {
  for (const char* text :
       {"", "{", "{} {}", "[1,]", "{\"a\":1,}", "// c\n{}", "nul", "\"\\ud800\"", "01", "1e999", "NaN"})
    EXPECT_NE(parse_error(text), "") << text;
  EXPECT_NE(parse_error(std::string_view("{}\0{}", 5)).find("NUL"), std::string::npos);
  EXPECT_NE(parse_error("{\"a\": \"\xff\"}").find("not UTF-8"), std::string::npos);
}

TEST(FirstDifference, IsThereWhereTwoValuesDifferAndOnlyThere) {
  const auto difference = [](const char* a, const char* b) {
    const auto d = first_difference(parse_json(a, "a"), parse_json(b, "b"));
    return d ? d->path + ": " + d->a + " | " + d->b : "none";
  };
  EXPECT_EQ(difference(R"({"a": [1, {"b": 2}]})", R"({"a": [1, {"b": 2}]})"), "none");
  EXPECT_EQ(difference(R"({"a": [1, {"b": 2}]})", R"({"a": [1, {"b": "2"}]})"), "a/1/b: 2 | \"2\"");
  EXPECT_EQ(difference(R"({"a": 1, "c": 2})", R"({"a": 1})"), "c: 2 | nothing");
  EXPECT_EQ(difference(R"({"a": []})", R"({"a": null})"), R"(: {"a":[]} | {"a":null})");
}

TEST(ParseJson, RefusesAKeyGivenTwice) {
  EXPECT_EQ(parse_error(R"({"a":{"b":1,"b":1}})"), "f.json: the key \"b\" appears twice in one object");
  EXPECT_EQ(parse_error(R"([{"b":1},{"b":1}])"), "");
}

TEST(ParseJson, IsBounded) {
  EXPECT_NE(parse_error(std::string(1'000'000, '[')).find("more than 64 deep"), std::string::npos);
  EXPECT_EQ(parse_error("[[1]]", {.max_depth = 2}), "");
  EXPECT_NE(parse_error("[[{}]]", {.max_depth = 2}), "");
  EXPECT_NE(parse_error("[1, 2]", {.max_bytes = 5}).find("more than the 5 allowed"), std::string::npos);
  const std::string message = parse_error("\"" + std::string(1'000'000, 'x'));
  EXPECT_LT(message.size(), 300u);
}

TEST(ReadJsonFile, NamesTheFile) {
  testing::TempDir dir;
  testing::spill(dir / "a.json", "[1");
  try {
    read_json_file(dir / "a.json");
    FAIL();
  } catch (const FileError& e) {
    EXPECT_EQ(std::string(e.what()).rfind((dir / "a.json").string() + ": line 1", 0), 0u) << e.what();
  }
}

TEST(JsonFields, GetsWhatIsThereAndFallsBackWhereItIsNot) {
  const nlohmann::json json = parse_json(R"({"i":3,"x":1.5,"b":true,"s":"t","o":{"i":4},"n":null})", "f.json");
  const JsonFields f(json, "f.json");
  EXPECT_EQ(f.integer("i", {}), 3);
  EXPECT_EQ(f.number("x", {}), 1.5);
  EXPECT_EQ(f.number("i", {}), 3);
  EXPECT_TRUE(f.flag("b"));
  EXPECT_EQ(f.string("s"), "t");
  EXPECT_EQ(f.object("o").integer("i", {}), 4);
  EXPECT_FALSE(f.has("n"));
  EXPECT_EQ(f.integer("n", {}, 9), 9);
  EXPECT_EQ(f.number("none", {}, 9.5), 9.5);
  EXPECT_FALSE(f.flag("none", false));
  EXPECT_EQ(f.string("none", "z"), "z");
}

TEST(JsonFields, NamesFileKeyAndValue) {
  const auto integer = [](const JsonFields& f) { f.integer("hidden_size", {}); };
  EXPECT_EQ(field_error(R"({"hidden_size":"64"})", integer),
            "f.json: \"hidden_size\": expected a whole number of at least 1, got \"64\"");
  EXPECT_EQ(field_error("{}", integer), "f.json: \"hidden_size\": is missing");
  for (const char* bad : {"0", "-1", "1.5", "true", "[]", "18446744073709551615", "64.0"})
    EXPECT_NE(field_error((std::string("{\"hidden_size\":") + bad + "}").c_str(), integer), "") << bad;
  const auto inner = [](const JsonFields& f) { f.object("o").number("x", {.min = 0, .max = 1}); };
  EXPECT_EQ(field_error(R"({"o":{"x":2}})", inner), "f.json: \"o.x\": expected a number from 0 to 1, got 2");
  EXPECT_EQ(field_error(R"({"o":[]})", inner), "f.json: \"o\": expected an object, got []");
  EXPECT_EQ(field_error(R"({"b":0})", [](const JsonFields& f) { f.flag("b"); }),
            "f.json: \"b\": expected true or false, got 0");
  EXPECT_EQ(field_error(R"({"s":0})", [](const JsonFields& f) { f.string("s"); }),
            "f.json: \"s\": expected a string, got 0");
}

TEST(InQuotes, ShowsAnyBytesSafelyAndShortly) {
  EXPECT_EQ(in_quotes("a\n\"b\x01"), R"("a\n\"b\u0001")");
  EXPECT_EQ(in_quotes("\xff"), "\"\xef\xbf\xbd\"");
  EXPECT_LT(in_quotes(std::string(1000, 'x')).size(), 90u);
  EXPECT_LT(shown(nlohmann::json(std::vector<int>(1000))).size(), 90u);
}

}  // namespace
}  // namespace weft
