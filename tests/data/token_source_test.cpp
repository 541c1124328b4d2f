#include "weft/data/token_source.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"
#include "weft/data/data_stream.h"
#include "weft/data/text_tokens.h"

namespace weft {
namespace {

using testing::slurp;
using testing::spill;
using testing::TempDir;

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "";
}
#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::vector<int32_t> all_of(const TokenSource& source) {
  std::vector<int32_t> ids(size_t(source.size()), 0);
  source.read(0, ids);
  return ids;
}

TEST(RawTokens, ReadWhatWasWritten) {
  TempDir dir;
  const std::vector<int32_t> ids{0, 1, 65535, 300};
  write_raw_tokens(dir / "a.bin", ids, "uint16");
  EXPECT_EQ(all_of(*open_raw_tokens(dir / "a.bin", "uint16", 0)), ids);
  EXPECT_EQ(slurp(dir / "a.bin").size(), 8u);
}

TEST(RawTokens, AnIdBeyondTheVocabularyNamesFileOffsetAndId) {
  TempDir dir;
  write_raw_tokens(dir / "a.bin", std::vector<int32_t>{1, 2, 99, 3}, "uint16");
  const auto source = open_raw_tokens(dir / "a.bin", "uint16", 50);
  const std::string e = error_of([&] { all_of(*source); });
  EXPECT_SAYS(e, "a.bin: token 2 at byte 4 is 99");
  EXPECT_SAYS(e, "50 ids");
  spill(dir / "b.bin", std::string("\xff\xff\xff\xff", 4));
  EXPECT_SAYS(error_of([&] { all_of(*open_raw_tokens(dir / "b.bin", "uint32", 0)); }), "4294967295");
}

TEST(RawTokens, EmptyAndTruncatedFilesAreRefused) {
  TempDir dir;
  spill(dir / "empty.bin", "");
  spill(dir / "odd.bin", "abc");
  EXPECT_SAYS(error_of([&] { open_raw_tokens(dir / "empty.bin", "uint16", 0); }), "empty");
  EXPECT_SAYS(error_of([&] { open_raw_tokens(dir / "odd.bin", "uint16", 0); }),
              "3 bytes are no whole number of 2-byte ids");
  EXPECT_SAYS(error_of([&] { open_raw_tokens(dir / "absent.bin", "uint16", 0); }), "absent.bin");
}

TEST(MegatronTokens, WrittenByWeftAreReadBack) {
  TempDir dir;
  const std::vector<std::vector<int32_t>> documents{{1, 2, 3}, {}, {4, 70000}};
  write_megatron_tokens(dir / "m", documents, "int32");
  const auto source = open_megatron_tokens(dir / "m", 0);
  EXPECT_EQ(all_of(*source), (std::vector<int32_t>{1, 2, 3, 4, 70000}));
  EXPECT_EQ(source->num_documents(), 3);
}

TEST(MegatronTokens, ThoseOfOthersAreReadAndWrittenAgainByteForByte) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/conformance/megatron";
  TempDir dir;
  for (const char* name :
       {"ag_news_prompt_inputs_document", "ag_news_prompt_targets_document", "meg-gpt2-openwebtext_text_document"}) {
    const auto source = open_megatron_tokens(folder / name, 0);
    EXPECT_GT(source->size(), 0);
    EXPECT_GT(source->num_documents(), 0);
    EXPECT_EQ(all_of(*source).size(), size_t(source->size()));
  }
}

// Every byte of the index is changed in turn, and the file cut everywhere: an error or an answer, never a crash.
TEST(MegatronTokens, ABrokenIndexIsRefusedByName) {
  TempDir dir;
  write_megatron_tokens(dir / "m", {{1, 2, 3}, {4}}, "uint16");
  const std::string good = slurp(dir / "m.idx");
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = char(bad[at] ^ 0x81);
    spill(dir / "m.idx", bad);
    const std::string e = error_of([&] { all_of(*open_megatron_tokens(dir / "m", 1000)); });
    EXPECT_SAYS(e, "m.") << at;
    spill(dir / "m.idx", good.substr(0, at));
    EXPECT_FALSE(error_of([&] { open_megatron_tokens(dir / "m", 1000); }).empty()) << at;
  }
  spill(dir / "m.idx", good + "x");
  EXPECT_SAYS(error_of([&] { open_megatron_tokens(dir / "m", 1000); }), "follow its end");
}

TEST(LossMask, OfAnotherLengthIsRefusedWithBoth) {
  TempDir dir;
  write_raw_tokens(dir / "a.bin", std::vector<int32_t>{1, 2, 3}, "uint16");
  spill(dir / "mask", std::string("\1\1", 2));
  const auto source = open_raw_tokens(dir / "a.bin", "uint16", 0);
  EXPECT_SAYS(error_of([&] { open_loss_mask(dir / "mask", *source); }), "2 bytes for the 3 tokens");
  spill(dir / "mask", std::string("\1\2\1", 3));
  std::vector<uint8_t> counted(3);
  EXPECT_SAYS(error_of([&] { open_loss_mask(dir / "mask", *source)->read(0, counted); }), "byte 1 is 2");
}

DataSpec text_spec(const std::filesystem::path& path) {
  DataSpec spec;
  spec.paths = {path.string()};
  spec.vocab_size = 257;
  spec.seq_length = 2;
  return spec;
}

TEST(Text, BecomesBytesAndAnEnd) {
  TempDir dir;
  spill(dir / "t.txt", "h\xc3\xa9");
  EXPECT_EQ(all_of(*open_sources(text_spec(dir / "t.txt"))[0].tokens), (std::vector<int32_t>{'h', 0xc3, 0xa9, 256}));
}

TEST(Text, IsTokenizedOnceAndAgainWhenItChanges) {
  TempDir dir;
  const auto tokenizer = make_byte_tokenizer();
  spill(dir / "t.txt", "first");
  const TextTokens made = tokenize_once({.text = dir / "t.txt", .tokenizer = *tokenizer});
  const auto time = std::filesystem::last_write_time(made.file);
  EXPECT_EQ(std::filesystem::last_write_time(tokenize_once({.text = dir / "t.txt", .tokenizer = *tokenizer}).file),
            time);
  spill(dir / "t.txt", "second!");
  EXPECT_EQ(
      open_raw_tokens(tokenize_once({.text = dir / "t.txt", .tokenizer = *tokenizer}).file, "uint16", 257)->size(), 8);
}

TEST(Jsonl, IsADocumentALineAndABrokenLineIsNamed) {
  TempDir dir;
  spill(dir / "t.jsonl", "{\"text\": \"ab\"}\n\n{\"text\": \"c\", \"x\": 1}\n");
  EXPECT_EQ(all_of(*open_sources(text_spec(dir / "t.jsonl"))[0].tokens),
            (std::vector<int32_t>{'a', 'b', 256, 'c', 256}));
  spill(dir / "bad.jsonl", "{\"text\": \"ab\"}\n{\"text\": 3}\n");
  EXPECT_SAYS(error_of([&] { open_sources(text_spec(dir / "bad.jsonl")); }), "bad.jsonl: line 2");
  spill(dir / "worse.jsonl", "{\"text\": \"\xff\"}\n");
  EXPECT_SAYS(error_of([&] { open_sources(text_spec(dir / "worse.jsonl")); }), "worse.jsonl: line 1");
}

TEST(Sources, ThatCannotBeAreRefusedWithAdvice) {
  TempDir dir;
  EXPECT_SAYS(error_of([&] { open_sources(text_spec(dir.path())); }), "is a folder");
  EXPECT_SAYS(error_of([&] { open_sources(text_spec(dir / "none.txt")); }), "no such file");
  write_raw_tokens(dir / "a.bin", std::vector<int32_t>{1, 2}, "uint16");
  EXPECT_SAYS(error_of([&] { open_sources(text_spec(dir / "a.bin")); }), "2 tokens give no training sample of 2");
  spill(dir / "t.txt", "abc");
  DataSpec small = text_spec(dir / "t.txt");
  small.vocab_size = 256;
  EXPECT_SAYS(error_of([&] { open_sources(small); }), "vocab_size is 256; make it 257");
}

}  // namespace
}  // namespace weft
