// Small tokenizers of every kind, by hand.
#include "tokenize/tokenize_support.h"

namespace weft {
namespace {

using testing::Ids;
using testing::ids_of;
using testing::refusal_of;
using testing::text_of;
using testing::tokenizer_of;

// "Ġ" stands for a space.
constexpr const char* kByteLevel = R"({
  "added_tokens": [{"id": 8, "content": "<end>", "special": true, "normalized": false},
                   {"id": 9, "content": "  ", "special": false, "normalized": true}],
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "decoder": {"type": "ByteLevel"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<end>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<end>": {"id": "<end>", "ids": [8], "tokens": ["<end>"]}}},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "Ã": 3, "©": 4, "ab": 5, "Ġab": 6, "Ã©": 7},
            "merges": ["a b", "Ġ ab", ["Ã", "©"]]}})";

TEST(TokenizerJson, OfBytesMergesWithinPieces) {
  const auto t = tokenizer_of(kByteLevel);
  EXPECT_EQ(t->vocab_size(), 10);
  EXPECT_EQ(ids_of(*t, "ab ab"), (Ids{5, 6}));
  EXPECT_EQ(ids_of(*t, "\xc3\xa9"), (Ids{7}));
  EXPECT_EQ(ids_of(*t, ""), Ids{});
  EXPECT_EQ(text_of(*t, {5, 6, 7, 8}), "ab ab\xc3\xa9<end>");
  EXPECT_EQ(t->decode(Ids{5, 8}, Tokenizer::Specials::kHidden), "ab");
  EXPECT_EQ(t->beginning(), (Ids{8}));
}

TEST(TokenizerJson, ComposesFirst) {
  const auto t =
      tokenizer_of(R"({"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "model": {"type": "BPE", "vocab": {"Ã": 3, "©": 4, "Ã©": 7}, "merges": ["Ã ©"]}})");
  EXPECT_EQ(ids_of(*t, "e\xcc\x81"), (Ids{7}));
}

TEST(TokenizerJson, FindsMarksOnlyWhereTheyAreAskedForAndWordsAlways) {
  const auto t = tokenizer_of(kByteLevel);
  EXPECT_EQ(ids_of(*t, "a<end>b", SpecialText::kParsed), (Ids{0, 8, 1}));
  EXPECT_EQ(ids_of(*t, "a<end>b"), (Ids{0, 1}));  // the vocabulary has no '<'
  EXPECT_EQ(ids_of(*t, "a  b"), (Ids{0, 9, 1}));
}

TEST(TokenizerJson, FallsBackOnBytes) {
  const auto t = tokenizer_of(R"({
      "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                     {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
      "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                  {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
        "vocab": {"<unk>": 0, "<0xC3>": 1, "<0xA9>": 2, "▁": 3, "a": 4, "▁a": 5, "▁▁": 6}, "merges": ["▁ a", "▁ ▁"]}})");
  EXPECT_EQ(ids_of(*t, "a a"), (Ids{5, 5}));
  EXPECT_EQ(ids_of(*t, "a\xc3\xa9"), (Ids{5, 1, 2}));
  EXPECT_EQ(ids_of(*t, "xy a"), (Ids{3, 0, 5}));  // two unknown ones are one
  EXPECT_EQ(text_of(*t, {5, 5, 1, 2}), "a a\xc3\xa9");
}

TEST(TokenizerJson, OfUnigramTakesTheLikeliestTokens) {
  const auto t = tokenizer_of(R"({
      "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
      "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
      "model": {"type": "Unigram", "unk_id": 0,
        "vocab": [["<unk>", 0], ["▁", -2], ["a", -3], ["b", -3], ["ab", -5], ["▁a", -6], ["▁ab", -6.5]]}})");
  EXPECT_EQ(ids_of(*t, "ab b"), (Ids{6, 1, 3}));
  EXPECT_EQ(ids_of(*t, "aab"), (Ids{1, 2, 4}));  // -2 -3 -5 before -6 -5 by one
  EXPECT_EQ(ids_of(*t, "xyb"), (Ids{1, 0, 3}));
  EXPECT_EQ(text_of(*t, {6, 1, 3}), "ab b");
}

TEST(TokenizerJson, OfWordPieceTakesTheLongestBeginnings) {
  const auto t = tokenizer_of(R"({
      "normalizer": {"type": "BertNormalizer", "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"},
      "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
      "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 6], "cls": ["[CLS]", 5]},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 8,
        "vocab": {"[UNK]": 0, "un": 1, "##able": 2, "##a": 3, "!": 4, "[CLS]": 5, "[SEP]": 6, "中": 7, "e": 8}}})");
  EXPECT_EQ(ids_of(*t, "UNable \xc3\x89!"), (Ids{1, 2, 8, 4}));
  EXPECT_EQ(ids_of(*t,
                   "unx un\xe4\xb8\xad"
                   "e"),
            (Ids{0, 1, 7, 8}));
  EXPECT_EQ(ids_of(*t, "unaaaaaaaaa"), (Ids{0}));  // longer than eight characters
  EXPECT_EQ(text_of(*t, {1, 2, 4}), "unable!");
  EXPECT_EQ(t->beginning(), (Ids{5}));
  EXPECT_EQ(t->ending(), (Ids{6}));
}

// A double array by hand would be long: of one unit, it maps nothing.
TEST(TokenizerJson, ReadsNoPlaceOutsideOfACharacterMap) {
  const auto of_map = [](const std::string& map) {
    return R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ")" + map + R"("},
               "model": {"type": "WordLevel", "unk_token": "u", "vocab": {"u": 0, "ab": 1}}})";
  };
  EXPECT_EQ(ids_of(*tokenizer_of(of_map("BAAAAP////8=")), "ab"), (Ids{1}));  // its unit points far away
  EXPECT_SAYS(refusal_of(of_map("/////w==")), "are no map of characters");
  EXPECT_SAYS(refusal_of(of_map("BAAA")), "are no map of characters");
  EXPECT_SAYS(refusal_of(of_map("x")), "is not base64");
}

TEST(TokenizerJson, SplitsAsItsStepsSay) {
  const auto pieces = [](const std::string& pre, const std::string& text) {
    const auto t = tokenizer_of(R"({"pre_tokenizer": )" + pre + R"(, "model": {"type": "WordLevel", "unk_token": "u",
        "vocab": {"u": 0, "a": 1, "-": 2, "a-": 3, "-b": 4, "b": 5, "12": 6, "1": 7, "2": 8, "--": 9, "ab": 10}}})");
    return ids_of(*t, text);
  };
  const auto split = [](const std::string& behavior) {
    return R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + behavior + R"("})";
  };
  EXPECT_EQ(pieces(split("Removed"), "a-b"), (Ids{1, 5}));
  EXPECT_EQ(pieces(split("Isolated"), "a-b"), (Ids{1, 2, 5}));
  EXPECT_EQ(pieces(split("MergedWithPrevious"), "a-b"), (Ids{3, 5}));
  EXPECT_EQ(pieces(split("MergedWithNext"), "a-b"), (Ids{1, 4}));
  EXPECT_EQ(pieces(split("Contiguous"), "a--b"), (Ids{1, 9, 5}));
  EXPECT_EQ(pieces(R"({"type": "Digits", "individual_digits": true})", "a12"), (Ids{1, 7, 8}));
  EXPECT_EQ(pieces(R"({"type": "Digits"})", "a12"), (Ids{1, 6}));
  EXPECT_EQ(pieces(R"({"type": "Whitespace"})", "a --\n b"), (Ids{1, 9, 5}));
  EXPECT_EQ(pieces(R"({"type": "Punctuation"})", "a--b"), (Ids{1, 2, 2, 5}));
  EXPECT_EQ(pieces(R"({"type": "CharDelimiterSplit", "delimiter": "|"})", "a|b"), (Ids{1, 5}));
  EXPECT_EQ(pieces(R"({"type": "FixedLength", "length": 2})", "abab"), (Ids{10, 10}));
}

// Pieces are searched alone, so that an expression sees where they end; threads share out what the first step made.
TEST(TokenizerJson, ThreadsGiveTheSameIdsWhateverTheStepsAre) {
  const auto tokenizer = tokenizer_of(R"j({"model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1,
    "aa": 2, "12": 3, "1": 4, "b": 5, "\u0120": 6}}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{N}{1,2}"}, "behavior": "Isolated"},
    {"type": "Split", "pattern": {"Regex": "^a|a$|\\s+(?!\\S)"}, "behavior": "Isolated"},
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}})j");
  EXPECT_EQ(ids_of(*tokenizer, "aaaa12aa1b"), (Ids{1, 2, 1, 3, 1, 1, 4, 5}));
  std::string text;
  for (int i = 0; text.size() < 600'000; ++i) text += i % 3 == 0 ? "aaaa12" : i % 7 == 0 ? "b  " : "aa1";
  Ids by_threads;
  tokenizer->encode(text, by_threads, SpecialText::kText, 3);
  EXPECT_TRUE(by_threads == ids_of(*tokenizer, text));
}

TEST(TokenizerJson, WordsEndWithASuffix) {
  const auto t = tokenizer_of(R"({"pre_tokenizer": {"type": "WhitespaceSplit"},
      "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
      "model": {"type": "BPE", "unk_token": "<u>", "end_of_word_suffix": "</w>",
        "vocab": {"<u>": 0, "a": 1, "b</w>": 2, "ab</w>": 3, "a</w>": 4}, "merges": ["a b</w>"]}})");
  EXPECT_EQ(ids_of(*t, "ab a x"), (Ids{3, 4, 0}));
  EXPECT_EQ(text_of(*t, {3, 4}), "ab a");
}

TEST(TokenizerJson, RefusesWhatItDoesNotKnowByName) {
  const std::string model = R"("model": {"type": "WordLevel", "unk_token": "u", "vocab": {"u": 0}}})";
  EXPECT_SAYS(refusal_of(R"({"normalizer": {"type": "Rot13"}, )" + model),
              "normalizer: \"Rot13\": weft does not know it");
  EXPECT_SAYS(refusal_of(R"({"pre_tokenizer": {"type": "X"}, )" + model),
              "pre_tokenizer: \"X\": weft does not know it");
  EXPECT_SAYS(refusal_of(R"({"decoder": {"type": "Y"}, )" + model), "decoder: \"Y\": weft does not know it");
  EXPECT_SAYS(refusal_of(R"({"post_processor": {"type": "Z"}, )" + model), "post_processor: \"Z\": weft does not know");
  EXPECT_SAYS(refusal_of(R"({"model": {"type": "Markov"}})"), "\"Markov\": weft does not know it; it knows BPE");
}

TEST(TokenizerJson, RefusesWhatCannotBe) {
  const auto bpe = [](const std::string& vocab, const std::string& merges, const std::string& more = "") {
    return refusal_of(R"({"model": {"type": "BPE", "vocab": {)" + vocab + R"(}, "merges": [)" + merges + "]" + more +
                      "}}");
  };
  EXPECT_EQ(bpe("\"a\": 0", ""), "");
  EXPECT_SAYS(bpe("\"a\": 0, \"b\": 0", ""), "the id 0 is given to two tokens, \"a\" and \"b\"");
  EXPECT_SAYS(bpe("\"a\": 16000000", ""), "has the id 16000000; about 1 tokens have ids from 0 to");
  EXPECT_SAYS(bpe("\"a\": -1", ""), "the id -1");
  EXPECT_SAYS(bpe("\"a\": \"x\"", ""), "expected an id, got \"x\"");
  EXPECT_SAYS(bpe("\"a\": 0, \"a\": 1", ""), "appears twice");
  EXPECT_SAYS(bpe("\"a\": 0", "\"a a\""), "number 0: \"aa\" is not in the vocabulary");
  EXPECT_SAYS(bpe("\"a\": 0", "\"a\""), "number 0: expected two tokens, got \"a\"");
  EXPECT_SAYS(bpe("\"a\": 0, \"\": 1", "[\"\", \"a\"]"), "number 0: an empty token");
  EXPECT_SAYS(bpe("\"a\": 0", "", ", \"dropout\": 0.1"), "does not leave out merges at random");
  EXPECT_SAYS(bpe("\"a\": 0", "", ", \"unk_token\": \"u\""), "\"u\" is not in the vocabulary");
  EXPECT_SAYS(refusal_of(R"({"model": {"type": "Unigram", "unk_id": 7, "vocab": [["a", 0]]}})"), "from 0 to 0, got 7");
  EXPECT_SAYS(refusal_of(R"({"added_tokens": [{"id": 0, "content": "x"}, {"id": 0, "content": "y"}],
                             "model": {"type": "BPE", "vocab": {}, "merges": []}})"),
              "the id 0 is given to \"x\" and \"y\"");
  EXPECT_SAYS(refusal_of(std::string(100, '[')), "nested");
  EXPECT_SAYS(refusal_of("{\"model\": \"\xff\"}"), "not UTF-8");
}

}  // namespace
}  // namespace weft
