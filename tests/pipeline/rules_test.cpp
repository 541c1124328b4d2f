// Each rule on cases small enough to judge by eye, and on those of CS336's data assignment.
#include "weft/pipeline/rule.h"

#include "pipeline/pipeline_support.h"
#include "weft/base/json.h"
#include "weft/pipeline/html_text.h"
#include "weft/pipeline/ngram_model.h"
#include "weft/pipeline/pii.h"

namespace weft {
namespace {

using testing::shared_dir;
using testing::slurp;
using testing::spill;
using testing::TempDir;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// The reason for which the rule drops this text; empty: it is kept.
std::string verdict(const Rule& rule, const std::string& text) {
  Document d;
  d.text = text;
  std::map<std::string, int64_t> changes;
  const auto drop = rule.judge(d, changes);
  return drop ? drop->reason : "";
}

// All kinds of personal data.
int64_t mask_all(std::string& text) {
  int64_t n = 0;
  for (const PiiKind& kind : pii_kinds()) n += mask_pii(text, kind);
  return n;
}

nlohmann::json cs336_cases(const TempDir& dir) {
  testing::unpack_cs336(dir);
  return read_json_file(dir / "expected.json");
}

TEST(Rules, GopherQualityJudgesTheCasesOfCs336) {
  WEFT_NEEDS_SHARED();
  const TempDir dir;
  const auto rule = make_gopher_quality_rule({});
  const auto cases = cs336_cases(dir).at("gopher");
  for (const auto& one : cases) {
    const std::string text = one.at("text");
    EXPECT_EQ(verdict(*rule, repeated(text, one.at("repeat"))).empty(), one.at("keep").get<bool>()) << text;
  }
}

TEST(Rules, PiiIsMaskedAsInTheCasesOfCs336) {
  WEFT_NEEDS_SHARED();
  const TempDir dir;
  const auto cases = cs336_cases(dir).at("pii");
  for (const auto& one : cases) {
    std::string text = one.at("text");
    const int64_t n = mask_all(text);
    EXPECT_EQ(text, one.at("masked").get<std::string>());
    EXPECT_EQ(n, one.at("n").get<int64_t>());
  }
}

TEST(Rules, LanguageKnowsTheCasesOfCs336) {
  WEFT_NEEDS_SHARED();
  const TempDir dir;
  const auto cases = cs336_cases(dir).at("langid");
  for (const auto& one : cases) {
    const std::string text =
        one.contains("text") ? one.at("text").get<std::string>() : slurp(dir / one.at("file").get<std::string>());
    const std::string language = one.at("lang");
    EXPECT_EQ(verdict(*make_language_rule({.keep = {language}}), text), "");
    EXPECT_EQ(verdict(*make_language_rule({.keep = {language == "en" ? "zh" : "en"}}), text), "language.min_share");
  }
}

TEST(Rules, TheHtmlOfCs336GivesItsText) {
  WEFT_NEEDS_SHARED();
  const TempDir dir;
  testing::unpack_cs336(dir);
  std::string expected = slurp(dir / "fixtures/moby_extracted.txt");
  while (expected.ends_with('\n')) expected.pop_back();
  EXPECT_EQ(html_text(slurp(dir / "fixtures/moby.html")), expected);
}

TEST(Rules, GopherAndC4KeepTheGoodPageOfCs336) {
  WEFT_NEEDS_SHARED();
  const TempDir dir;
  testing::unpack_cs336(dir);
  const std::string good = slurp(dir / "fixtures/high_quality_wiki_reference.txt");
  for (const auto& rule : {make_gopher_quality_rule({}), make_gopher_repetition_rule({})})
    EXPECT_EQ(verdict(*rule, good), "");
  EXPECT_EQ(verdict(*make_c4_rule({.drop_curly_brackets = false}), good), "");
}

TEST(Rules, GopherRepetitionNamesWhatRepeats) {
  const auto rule = make_gopher_repetition_rule({});
  EXPECT_EQ(verdict(*rule, "One line of words.\nAnother one here.\nAnd a third that differs."), "");
  EXPECT_EQ(verdict(*rule, repeated("The same line again.\n", 10)), "gopher_repetition.lines");
  EXPECT_EQ(verdict(*rule, repeated("buy now ", 20)), "gopher_repetition.top_2grams");
  std::string unlike;
  for (int i = 0; i < 60; ++i) unlike += fmt::format("w{} ", i);
  EXPECT_EQ(verdict(*rule, unlike), "");
  EXPECT_EQ(verdict(*make_gopher_repetition_rule({.top_ngrams = {}}), unlike + unlike),
            "gopher_repetition.repeated_5grams");
}

TEST(Rules, C4TakesOutLinesAndDropsPages) {
  const auto rule = make_c4_rule({.min_sentences = 2});
  Document d;
  d.text =
      "Home | About\nThis is a sentence. Here is one more!\nToo short.\nPlease enable Javascript for this page.\n"
      "We have a privacy policy that you may read.\nAnd the end of all of it.";
  std::map<std::string, int64_t> changes;
  EXPECT_FALSE(rule->judge(d, changes));
  EXPECT_EQ(d.text, "This is a sentence. Here is one more!\nAnd the end of all of it.");
  EXPECT_EQ(changes, (std::map<std::string, int64_t>{{"c4.drop_javascript_lines", 1},
                                                     {"c4.drop_policy_lines", 1},
                                                     {"c4.lines_end_in_punctuation", 1},
                                                     {"c4.min_words_per_line", 1}}));
  EXPECT_EQ(verdict(*rule, "if (x) { return; }"), "c4.drop_curly_brackets");
  EXPECT_EQ(verdict(*rule, "Lorem Ipsum dolor sit amet."), "c4.drop_lorem_ipsum");
  EXPECT_EQ(verdict(*rule, "There is one sentence."), "c4.min_sentences");
}

TEST(Rules, BadWordsAreFoundAsWordsAndPhrases) {
  const TempDir dir;
  spill(dir / "bad.txt", "darn\nbad thing\n\xf0\x9f\x96\x95\n");
  const auto rule = make_bad_words_rule({.file = (dir / "bad.txt").string()});
  EXPECT_EQ(verdict(*rule, "DARN it"), "bad_words");
  EXPECT_EQ(verdict(*rule, "a bad, thing"), "bad_words");
  EXPECT_EQ(verdict(*rule, "see \xf0\x9f\x96\x95"), "bad_words");
  EXPECT_EQ(verdict(*rule, "darning a bad old thing"), "");
  Document d;
  d.text = "a BAD thing, darn, Darn";
  std::map<std::string, int64_t> changes;
  EXPECT_EQ(rule->judge(d, changes)->detail, "3 hits: \"bad thing\", \"darn\"");
}

TEST(Rules, LengthAndSymbolsCountCharacters) {
  EXPECT_EQ(verdict(*make_length_rule({.min_characters = 5}), "\u00e9\u00e9\u00e9\u00e9"), "length.min_characters");
  EXPECT_EQ(verdict(*make_length_rule({.min_characters = 4, .max_words = 1}), "ab cd"), "length.max_words");
  const auto rule = make_symbols_rule({});
  EXPECT_EQ(verdict(*rule, "Plain words, and a mark."), "");
  EXPECT_EQ(verdict(*rule, "### *** === a"), "symbols.max_non_alphanumeric");
  EXPECT_EQ(verdict(*rule, "1234567 abc"), "symbols.max_digits");
  EXPECT_EQ(verdict(*rule, "ALL IN CAPITALS"), "symbols.max_upper");
}

// One of a kind in the middle of a sentence: masked by it, as a whole, and by the whole rule.
TEST(Rules, EachKindOfPersonalDataIsMaskedByName) {
  const std::pair<const char*, const char*> cases[] = {{"emails", "jane.doe+x@mail.example.org"},
                                                       {"ips", "192.0.2.7"},
                                                       {"ipv6", "2001:db8::8a2e:370:7334"},
                                                       {"ipv6", "2001:0db8:0000:0000:0000:8a2e:0370:7334"},
                                                       {"ipv6", "::ffff:0:192.0.2.128"},
                                                       {"phones", "(283)-182-3829"},
                                                       {"international_phones", "+44 20 7946 0958"},
                                                       {"international_phones", "+49 (0)30 123456"},
                                                       {"international_phones", "+33-1-99-00-12-34"},
                                                       {"international_phones", "+358401234567"},
                                                       {"international_phones", "+1 202 555 0143"},
                                                       {"ibans", "GB82 WEST 1234 5698 7654 32"},
                                                       {"ibans", "DE89370400440532013000"},
                                                       {"ibans", "NO9386011117947"},
                                                       {"cards", "4111 1111 1111 1111"},
                                                       {"cards", "5500-0000-0000-0004"},
                                                       {"cards", "3782 822463 10005"},
                                                       {"cards", "6011000990139424"}};
  for (const auto& [key, data] : cases) {
    const std::string text = fmt::format("Write, call or pay ({}), or {}: that is it.", data, data);
    const std::string_view name = key;
    const auto kinds = pii_kinds();
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const PiiKind& k) { return k.key == name; });
    ASSERT_NE(kind, kinds.end()) << key;
    std::string masked = text, by_all = text;
    EXPECT_EQ(mask_pii(masked, *kind, "<{}>"), 2) << text;
    EXPECT_EQ(masked, fmt::format("Write, call or pay (<{0}>), or <{0}>: that is it.", kind->label));
    EXPECT_EQ(mask_all(by_all), 2) << by_all;
    EXPECT_EQ(by_all.find(data), std::string::npos) << by_all;
  }
}

TEST(Rules, PiiCountsByKindAndMasksAsAsked) {
  Document d;
  d.text = "a@example.org, b@example.org, 4111111111111111 and 192.0.2.7";
  std::map<std::string, int64_t> changes;
  EXPECT_FALSE(make_pii_rule({.ips = false, .mask = "[gone]"})->judge(d, changes));
  EXPECT_EQ(d.text, "[gone], [gone], [gone] and 192.0.2.7");
  EXPECT_EQ(changes, (std::map<std::string, int64_t>{{"pii.cards", 1}, {"pii.emails", 2}}));
}

TEST(Rules, MaskingIsLinearAndLeavesWhatIsNoData) {
  for (const char* text : {"a@b",
                           "1.2.3.4.5",
                           "256.1.1.1",
                           "12345678901",
                           "no.at.sign",
                           "x@.com",
                           "version 1.2.3",
                           "at 12:30:45",
                           "00:1a:2b:3c:4d:5e",
                           "std::vector",
                           "a::b",
                           "::1",
                           ".:",
                           "DE44 5001 0517 5407 3249 32",
                           "DE8937040044053201300",
                           "4111 1111 1111 1112",
                           "3.4111111111111111",
                           "id 41111111111111110",
                           "x4111111111111111",
                           "2+44207946",
                           "+0 20 7946 0958",
                           "+28 20 7946 0958",
                           "+44 20",
                           "+1 555 0100",
                           "+442079460958442079460958"}) {
    std::string copy = text;
    EXPECT_EQ(mask_all(copy), 0) << text << " -> " << copy;
  }
  std::string hostile = repeated("a", 1 << 20) + repeated("@", 1 << 20) + repeated("1.", 1 << 20) +
                        repeated("1:", 1 << 18) + repeated("+", 1 << 18) + repeated("+44 ", 1 << 15) +
                        repeated("AB12", 1 << 15) + repeated("4000 ", 1 << 15);
  EXPECT_EQ(mask_all(hostile), 0);
}

TEST(Rules, PerplexityIsLowForWhatIsLikeTheModelsText) {
  const TempDir dir;
  NgramModel model(4);
  for (int i = 0; i < 40; ++i) model.learn("the cat sat on the mat and the dog sat on the cat. ");
  model.finish();
  const double known = model.perplexity("the dog sat on the mat"), unknown = model.perplexity("q7#zz!xk0&vj^w");
  EXPECT_LT(known, 3);
  EXPECT_GT(unknown, 50);
  model.write(dir / "m.ngram");
  EXPECT_EQ(NgramModel::read(dir / "m.ngram").perplexity("the dog sat on the mat"), known);
  EXPECT_EQ(verdict(*make_perplexity_rule({.model = (dir / "m.ngram").string(), .max = 20}), "q7#zz!xk0&vj^w"),
            "perplexity.max");
  spill(dir / "cut.ngram", slurp(dir / "m.ngram").substr(0, 21));
  EXPECT_THROW(NgramModel::read(dir / "cut.ngram"), FileError);
}

TEST(Rules, PerplexityTellsTheGoodPageOfCs336FromTheBadOne) {
  WEFT_NEEDS_SHARED();
  const TempDir dir;
  testing::unpack_cs336(dir);
  NgramModel model(4);
  model.learn(slurp(testing::shared_dir() / "data/text/wikitext2/wiki.test.raw").substr(0, 200'000));
  model.finish();
  const double good = model.perplexity(slurp(dir / "fixtures/high_quality_wiki_reference.txt"));
  const double bad = model.perplexity(slurp(dir / "fixtures/low_quality_cc.txt"));
  EXPECT_GT(bad, 1.2 * good) << good << " " << bad;
}

}  // namespace
}  // namespace weft
