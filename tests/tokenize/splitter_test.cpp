#include "weft/tokenize/splitter.h"

#include "tokenize/tokenize_support.h"
#include "weft/base/mapped_file.h"
#include "weft/base/rng.h"
#include "weft/tokenize/pattern.h"

namespace weft {
namespace {

std::vector<std::string> pieces_by_hand(const Splitter& splitter, std::string_view text) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t end = splitter.end_of_piece(text, at);
    pieces.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

std::vector<std::string> pieces_by_pattern(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> pieces;
  PatternSpace space;
  Span m;
  for (size_t at = 0; at < text.size(); at = m.end) {
    if (!pattern.find(text, at, space, m)) return {"no match"};
    if (m.begin != at) return {"a gap"};
    pieces.emplace_back(m.of(text));
  }
  return pieces;
}

class SplitterOf : public ::testing::TestWithParam<const char*> {
 protected:
  Splitter splitter{*Splitter::rules_named(GetParam()), make_character_table()};
  Pattern pattern{Splitter::expression_of(splitter.rules()), "test"};
};

TEST_P(SplitterOf, SplitsWordsAsTheExpressionDoes) {
  for (const char* text :
       {"Hello, world! It's 12345 o'clock; they'LL  go.\n\n\tNow\r\n x", "'s 'S '\xc5\xbf 're've'll 'd", "   a\n  b \n",
        "  \n\n  ", " \xc2\xa0x\xe3\x80\x80y", "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xd0\xbf\xd1\x80\xd0\xb8",
        "A\xcc\x81\xcc\x81"
        "bC//\n/x McDonald\xe2\x80\x99s IDs",
        "\xf0\x9f\x98\x80\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd 1\xd9\xa3\xe0\xa5\xa9 2"})
    EXPECT_EQ(pieces_by_hand(splitter, text), pieces_by_pattern(pattern, text)) << text;
}

// Every character next to others of every kind.
TEST_P(SplitterOf, SplitsRandomTextsAsTheExpressionDoes) {
  const std::u32string some =
      U" \n\r\t'stSdrvemlLDaZ09./"
      U"-_\u017f\u00a0\u3000\u0301\u4e2d\u01c5\u02b0\u0435\u0410\u0663\u2167\u20ac\U0001f600\u200d\u180e\u0085";
  for (uint64_t n = 0; n < 4000; ++n) {
    std::string text;
    const uint32_t length = 1 + random_bits(n, 0) % 12;
    for (uint32_t i = 0; i < length; ++i) append_character(text, some[random_bits(n, 1 + i) % some.size()]);
    ASSERT_EQ(pieces_by_hand(splitter, text), pieces_by_pattern(pattern, text)) << n << ": " << text;
  }
}

TEST_P(SplitterOf, SplitsRealTextsAsTheExpressionDoes) {
  WEFT_NEEDS_SHARED();
  for (const char* file : {"data/tokenizers/vectors/lines.jsonl", "data/text/multilingual/botchan.txt"}) {
    const MappedFile mapped(testing::shared_dir() / file);
    std::string copy;
    const std::string_view text = well_formed(mapped.text(), copy);
    EXPECT_EQ(pieces_by_hand(splitter, text), pieces_by_pattern(pattern, text)) << file;
  }
}

TEST_P(SplitterOf, IsLinearInHostileTexts) {
  for (const std::string unit : {" ", "a", "'", "\n", "1", "\xcc\x81", " \n", "A", "\xe4\xb8\xad"}) {
    std::string text;
    while (text.size() < 2 << 20) text += unit;
    EXPECT_FALSE(pieces_by_hand(splitter, text + "x").empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Known, SplitterOf, ::testing::Values("r50k", "cl100k", "qwen2", "o200k"),
                         [](const auto& info) { return std::string(info.param); });

// Where in a text of all characters an expression matches.
std::vector<bool> matched_bytes(const char* expression, const std::string& text) {
  const Pattern pattern(expression, "test");
  PatternSpace space;
  std::vector<bool> matched(text.size(), false);
  Span m;
  for (size_t at = 0; at < text.size() && pattern.find(text, at, space, m); at = m.end)
    for (size_t i = m.begin; i < m.end; ++i) matched[i] = true;
  return matched;
}

TEST(CharacterTable, SaysOfEachCharacterWhatTheExpressionsSay) {
  const CharacterTable table;
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c)
    if (c < 0xd800 || c >= 0xe000) append_character(text, c);
  const auto letters = matched_bytes("\\p{L}", text), numbers = matched_bytes("\\p{N}", text);
  const auto spaces = matched_bytes("\\s", text), upper = matched_bytes("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", text);
  const auto lower = matched_bytes("[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]", text), assigned = matched_bytes("\\P{Cn}", text);
  for (size_t at = 0; at < text.size();) {
    const Character c = first_character(std::string_view(text).substr(at));
    const uint8_t kind = table.of(c.code);
    const auto is = [&](uint8_t bit) { return (kind & bit) != 0; };
    if (assigned[at]) {  // the two libraries know different versions of Unicode
      ASSERT_EQ(is(CharacterTable::kLetter), letters[at]) << uint32_t(c.code);
      ASSERT_EQ(is(CharacterTable::kNumber), numbers[at]) << uint32_t(c.code);
      ASSERT_EQ(is(CharacterTable::kSpace), spaces[at]) << uint32_t(c.code);
      ASSERT_EQ(is(CharacterTable::kUpperLike), upper[at]) << uint32_t(c.code);
      ASSERT_EQ(is(CharacterTable::kLowerLike), lower[at]) << uint32_t(c.code);
    }
    at += c.bytes;
  }
}

TEST(Pattern, MeansWhatItsAuthorsLibraryMeans) {
  const auto matches = [](const char* expression, std::string_view text) {
    const Pattern pattern(expression, "test");
    PatternSpace space;
    Span m;
    return pattern.find(text, 0, space, m) && m.size() == text.size();
  };
  EXPECT_FALSE(matches("\\s", "\xe1\xa0\x8e"));  // U+180E is a space to PCRE2 alone
  EXPECT_FALSE(matches("[\\s]", "\xe1\xa0\x8e"));
  EXPECT_TRUE(matches("[^\\S]", "\xc2\x85"));
  EXPECT_TRUE(matches("\\w+",
                      "a\xcc\x81\xe2\x80\xbf"
                      "b"));  // marks and connectors are parts of words
  EXPECT_TRUE(matches("\\u00e9", "\xc3\xa9"));
}

TEST(Pattern, IsRefusedWhereItMeansSomethingElse) {
  const auto refusal = [](const std::string& e) { return testing::error_of([&] { Pattern(e, "f: x"); }); };
  EXPECT_SAYS(refusal("[a&&b]"), "f: x: regular expression \"[a&&b]\": operations on sets");
  EXPECT_SAYS(refusal("[a[b]]"), "a set within a set");
  EXPECT_SAYS(refusal("\\h"), "\\h");
  EXPECT_SAYS(refusal("(a"), "f: x: regular expression \"(a\": missing closing parenthesis");
  EXPECT_SAYS(refusal(std::string(100000, 'a')), "100000 bytes");
}

// A search that takes too many steps is an error, not the end of the text.
TEST(Pattern, NeverDropsText) {
  const Pattern slow("(?:(a+)+)+[bc]", "test");
  const std::string text(64, 'a');
  PatternSpace space;
  Span m;
  EXPECT_SAYS(testing::error_of([&] { slow.find(text, 0, space, m); }), "gave up at byte 0 of a text of 64");
}

}  // namespace
}  // namespace weft
