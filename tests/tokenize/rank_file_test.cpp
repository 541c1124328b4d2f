#include "tokenize/tokenize_support.h"

namespace weft {
namespace {

using testing::error_of;
using testing::Ids;
using testing::ids_of;
using testing::spill;
using testing::TempDir;
using testing::text_of;

std::string base64(std::string_view bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (i + k < bytes.size() ? uint8_t(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return out;
}

// All bytes, then these tokens.
std::string ranks_of(const std::vector<std::string>& tokens) {
  std::string file;
  for (int b = 0; b < 256; ++b) file += base64(std::string(1, char(b))) + " " + std::to_string(b) + "\n";
  for (size_t i = 0; i < tokens.size(); ++i) file += base64(tokens[i]) + " " + std::to_string(256 + i) + "\n";
  return file;
}

TEST(RankFile, MergesWhereBytesTogetherAreAToken) {
  TempDir dir;
  spill(dir / "my-cl100k.tiktoken", ranks_of({"bc", "ab", "abc", " x"}));
  const auto t = read_tokenizer(dir / "my-cl100k.tiktoken");
  EXPECT_EQ(ids_of(*t, "abc"), (Ids{258}));
  EXPECT_EQ(ids_of(*t, "abcd"), (Ids{258, 'd'}));  // a, bc; then both
  EXPECT_EQ(ids_of(*t, "ab bc"), (Ids{257, ' ', 256}));
  EXPECT_EQ(text_of(*t, {258, 259, 'y'}), "abc xy");
  EXPECT_EQ(ids_of(*t, "\xff"), (Ids{0xef, 0xbf, 0xbd}));  // what is broken is U+FFFD
}

TEST(RankFile, SaysWhatItNeeds) {
  TempDir dir;
  spill(dir / "tokens.model", ranks_of({}));
  EXPECT_SAYS(error_of([&] { read_tokenizer(dir / "tokens.model"); }), "does not say how text is split");
  EXPECT_EQ(ids_of(*read_tokenizer(dir / "tokens.model", {.pattern = "o200k"}), "a"), (Ids{'a'}));
  EXPECT_SAYS(error_of([&] { read_tokenizer(dir / "tokens.model", {.pattern = "x"}); }), "pattern \"x\": there are");
}

TEST(RankFile, IsRefusedWhereItIsBroken) {
  TempDir dir;
  const auto refusal = [&](const std::string& content) {
    spill(dir / "r50k.tiktoken", content);
    return error_of([&] { read_tokenizer(dir / "r50k.tiktoken"); });
  };
  const std::string good = ranks_of({});
  EXPECT_EQ(refusal(good), "");
  EXPECT_SAYS(refusal("IQ== 0\n"), "the byte 0x00 has no token: is the file cut short?");
  EXPECT_SAYS(refusal(good + "IQ== 300\n"), "the token \"!\" appears twice");
  EXPECT_SAYS(refusal(good + "ISE= 33\n"), "the id 33 is given to two tokens");
  EXPECT_SAYS(refusal(good + "ISE= 99999999999\n"), "the id 99999999999");
  EXPECT_SAYS(refusal(good + "ISE= x\n"), "line 257: expected base64, a space and a rank");
  EXPECT_SAYS(refusal(good + "ISE=\n"), "line 257: expected base64, a space and a rank");
  EXPECT_SAYS(refusal(good + "!!!! 256\n"), "line 257: \"!!!!\" is not base64");
  EXPECT_SAYS(refusal(good + base64(std::string(2000, 'a')) + " 256\n"), "line 257: a token of 2000 bytes");
}

TEST(RankFile, HasTheSpecialTokensOfTheFileBesideIt) {
  TempDir dir;
  spill(dir / "r50k.tiktoken", ranks_of({}));
  spill(dir / "tokenizer_config.json",
        R"({"eos_token": "<stop>", "added_tokens_decoder": {"256": {"content": "<stop>", "special": true}}})");
  const auto t = read_tokenizer(dir.path());
  EXPECT_EQ(t->end_of_document(), 256);
  EXPECT_EQ(t->vocab_size(), 257);
  EXPECT_EQ(ids_of(*t, "a<stop>", SpecialText::kParsed), (Ids{'a', 256}));
  EXPECT_EQ(ids_of(*t, "<").size(), 1u);
}

TEST(Merges, WithoutARegularEndAreLinear) {
  TempDir dir;
  spill(dir / "r50k.tiktoken", ranks_of({"aa", "aaaa", "aaaaaaaa"}));
  const auto t = read_tokenizer(dir / "r50k.tiktoken");
  const std::string text(3'000'001, 'a');
  const Ids ids = ids_of(*t, text);
  EXPECT_EQ(ids.size(), 375'001u);
  EXPECT_EQ(text_of(*t, ids), text);
}

TEST(VocabAndMerges, AreReadTogether) {
  TempDir dir;
  spill(dir / "my-vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  EXPECT_SAYS(error_of([&] { read_tokenizer(dir / "my-vocab.json"); }), "there is no my-merges.txt beside it");
  spill(dir / "my-merges.txt", "#version: 0.2\na b\n");
  const auto t = read_tokenizer(dir / "my-vocab.json");
  EXPECT_EQ(ids_of(*t, "abb"), (Ids{2, 1}));
  EXPECT_EQ(t->end_of_document(), 3);
}

}  // namespace
}  // namespace weft
