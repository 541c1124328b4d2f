#include "weft/data/text_tokens.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "data/data_support.h"
#include "token_files.h"
#include "weft/data/sample_order.h"

namespace weft {
namespace {

using testing::all_of;
using testing::error_of;
using testing::slurp;
using testing::spill;
using testing::TempDir;

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

// The ids of a text, tokenized where that is needed.
std::vector<int32_t> tokens_of(const std::filesystem::path& text, const std::filesystem::path& cache_dir = {}) {
  const auto tokenizer = make_byte_tokenizer();
  const auto made = tokenize_once({.text = text, .tokenizer = *tokenizer, .cache_dir = cache_dir});
  return all_of(*open_megatron_tokens(made, tokenizer->vocab_size()));
}
ino_t inode_of(const std::filesystem::path& file) {
  struct stat info;
  return stat(file.c_str(), &info) == 0 ? info.st_ino : 0;
}
std::vector<int32_t> as_ids(const std::string& text) {
  std::vector<int32_t> ids;
  for (unsigned char c : text) ids.push_back(c);
  ids.push_back(256);
  return ids;
}

TEST(Text, OfManyPiecesIsWhole) {
  TempDir dir;
  std::string text;
  for (int i = 0; text.size() < (3 << 20) + 17; ++i) text += std::to_string(i) + "\n";
  spill(dir / "t.txt", text);
  std::vector<double> reports;
  const auto tokenizer = make_byte_tokenizer();
  tokenize_once({.text = dir / "t.txt", .tokenizer = *tokenizer, .progress = [&](double d) { reports.push_back(d); }});
  EXPECT_EQ(tokens_of(dir / "t.txt"), as_ids(text));
  EXPECT_EQ(reports.size(), 4u);
  EXPECT_TRUE(std::is_sorted(reports.begin(), reports.end()));
  EXPECT_EQ(reports.back(), 1.0);
}

TEST(Text, IsTokenizedOnceAndAgainWhenItChanges) {
  TempDir dir;
  spill(dir / "t.txt", "first");
  EXPECT_EQ(tokens_of(dir / "t.txt"), as_ids("first"));
  const ino_t made = inode_of(dir / "t.txt.byte-1.bin");
  EXPECT_EQ(tokens_of(dir / "t.txt"), as_ids("first"));
  EXPECT_EQ(inode_of(dir / "t.txt.byte-1.bin"), made);  // not written again
  spill(dir / "t.txt", "second!");
  EXPECT_EQ(tokens_of(dir / "t.txt"), as_ids("second!"));
}

TEST(Text, ThatChangesWithoutASignOnTheOutsideIsTokenizedAgain) {
  TempDir dir;
  spill(dir / "t.txt", "first");
  const auto time = std::filesystem::last_write_time(dir / "t.txt");
  tokens_of(dir / "t.txt");
  spill(dir / "t.txt", "other");
  std::filesystem::last_write_time(dir / "t.txt", time);
  EXPECT_EQ(tokens_of(dir / "t.txt"), as_ids("other"));
}

TEST(Text, WhoseTokensAreDamagedIsTokenizedAgain) {
  TempDir dir;
  spill(dir / "t.txt", "first");
  for (const char* part : {"t.txt.byte-1.bin", "t.txt.byte-1.idx", "t.txt.byte-1.json"}) {
    tokens_of(dir / "t.txt");
    std::string bytes = slurp(dir / part);
    bytes[2] = char(bytes[2] ^ 1);
    spill(dir / part, bytes);
    EXPECT_EQ(tokens_of(dir / "t.txt"), as_ids("first")) << part;
    spill(dir / part, bytes.substr(0, bytes.size() / 2));
    EXPECT_EQ(tokens_of(dir / "t.txt"), as_ids("first")) << part;
    std::filesystem::remove(dir / part);
    EXPECT_EQ(tokens_of(dir / "t.txt"), as_ids("first")) << part;
  }
}

TEST(Text, TokenizedBySeveralAtOnceIsWholeForAll) {
  TempDir dir;
  const std::string text(2 << 20, 'x');
  spill(dir / "t.txt", text);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { right += tokens_of(dir / "t.txt") == as_ids(text); });
  for (auto& t : threads) t.join();
  EXPECT_EQ(right, 4);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}),
            4);  // text, ids, index, stamp: no remains
}

// In a process without the rights of root, which may write anywhere.
TEST(Text, WhoseFolderCannotBeWrittenHasItsTokensInTheCacheFolder) {
  TempDir dir, cache;
  spill(dir / "t.txt", "first");
  chmod(dir.path().c_str(), 0555);
  chmod(cache.path().c_str(), 0777);
  const auto judge = [&] {
    constexpr uid_t kNobody = 65534;
    if (getuid() == 0 && setuid(kNobody) != 0) return 3;
    if (error_of([&] { tokens_of(dir / "t.txt"); }).find("make the folder writable") == std::string::npos) return 1;
    return tokens_of(dir / "t.txt", cache.path() / "tokens") == as_ids("first") ? 0 : 2;
  };
  EXPECT_EXIT(_exit(judge()), ::testing::ExitedWithCode(0), "");
  chmod(dir.path().c_str(), 0755);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache / "tokens"), {}), 3);
}

TEST(Text, OnAFullDiskLeavesNothingBehind) {
  TempDir dir;
  spill(dir / "t.txt", std::string(3 << 20, 'x'));
  const auto judge = [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    return error_of([&] { tokens_of(dir / "t.txt"); }).find("t.txt.byte-1.bin: cannot be written") == std::string::npos;
  };
  EXPECT_EXIT(_exit(judge()), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(Text, ThatIsNoneIsRefused) {
  TempDir dir;
  spill(dir / "empty.txt", "");
  EXPECT_SAYS(error_of([&] { tokens_of(dir / "empty.txt"); }), "empty.txt: is empty");
  spill(dir / "t.jsonl.gz", "\x1f\x8b\x08");
  EXPECT_SAYS(error_of([&] { tokens_of(dir / "t.jsonl.gz"); }), "is compressed by gzip; decompress it");
  spill(dir / "t.npy", std::string("ab\0d", 4));
  EXPECT_SAYS(error_of([&] { tokens_of(dir / "t.npy"); }), "is no text: byte 2 is 0");
}

TEST(Jsonl, IsADocumentALine) {
  TempDir dir;
  // a byte order mark, an empty line, other fields, another line end, an empty document, no line end at the end
  spill(dir / "t.jsonl",
        "\xef\xbb\xbf{\"text\": \"ab\"}\n\n{\"text\": \"\\u00e9\", \"x\": [1]}\r\n{\"text\": \"\"}\n{\"text\":\"c\"}");
  EXPECT_EQ(tokens_of(dir / "t.jsonl"), (std::vector<int32_t>{'a', 'b', 256, 0xc3, 0xa9, 256, 256, 'c', 256}));
}

// A model's folder with a tokenizer.json: its tokens, whatever the number of threads, each document with its ends.
TEST(Text, IsOfTheTokenizerOfTheModelsFolder) {
  TempDir dir;
  spill(dir / "tokenizer.json", R"({"added_tokens": [{"id": 3, "content": "<end>", "special": true},
        {"id": 4, "content": "<begin>", "special": true}], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<begin>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<begin>": {"id": "<begin>", "ids": [4], "tokens": ["<begin>"]}}},
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  spill(dir / "tokenizer_config.json", R"({"eos_token": "<end>"})");
  spill(dir / "t.txt", "ab<end>a");  // in a text, a mark is text, for which this vocabulary has nothing but "a" and "b"
  spill(dir / "t.jsonl", "{\"text\": \"abb\"}\n{\"text\": \"\"}\n{\"text\": \"b\"}\n");
  for (const auto& [file, ids] : {std::pair("t.txt", std::vector<int32_t>{4, 2, 0, 3}),
                                  std::pair("t.jsonl", std::vector<int32_t>{4, 2, 1, 3, 4, 3, 4, 1, 3})}) {
    DataSpec spec = text_spec(dir / file);
    spec.model_folder = dir.path();
    spec.vocab_size = 5;
    EXPECT_EQ(all_of(*open_sources(spec)[0].tokens), ids) << file;
    spec.vocab_size = 4;
    EXPECT_SAYS(error_of([&] { open_sources(spec); }), "has 5 ids, the model's vocab_size is 4");
  }
}

TEST(Jsonl, AnotherKeyIsAnotherText) {
  TempDir dir;
  spill(dir / "t.jsonl", "{\"text\": \"ab\", \"title\": \"c\"}\n");
  tokens_of(dir / "t.jsonl");
  DataSpec spec = text_spec(dir / "t.jsonl");
  spec.text_key = "title";
  EXPECT_EQ(all_of(*open_sources(spec)[0].tokens), as_ids("c"));
  spec.text_key = "body";
  EXPECT_SAYS(error_of([&] { open_sources(spec); }), "t.jsonl: line 1: \"body\" is missing; say by data.text_key");
  EXPECT_SAYS(error_of([&] { open_sources(spec); }), "\"text\", \"title\"");
}

TEST(Jsonl, ABrokenLineIsNamed) {
  TempDir dir;
  const auto error_in_line_2 = [&](const std::string& line) {
    spill(dir / "t.jsonl", "{\"text\": \"ab\"}\n" + line + "\n{\"text\": \"c\"}\n");
    return error_of([&] { tokens_of(dir / "t.jsonl"); });
  };
  EXPECT_SAYS(error_in_line_2("{\"text\": 3}"), "t.jsonl: line 2: \"text\": expected a string, got 3");
  EXPECT_SAYS(error_in_line_2("{\"text\": \"\xff\"}"), "t.jsonl: line 2, column 11 (byte 10): not UTF-8");
  EXPECT_SAYS(error_in_line_2("{\"text\": \"a\""), "t.jsonl: line 2, column");
  EXPECT_SAYS(error_in_line_2("{\"text\": \"a\"} x"), "t.jsonl: line 2, column");
  EXPECT_SAYS(error_in_line_2("{\"text\": \"\\ud800\"}"), "t.jsonl: line 2, column");
  EXPECT_SAYS(error_in_line_2("[]"), "t.jsonl: line 2: expected a JSON object");
  EXPECT_SAYS(error_in_line_2(std::string(100000, '[')), "t.jsonl: line 2: objects and arrays are nested");
  spill(dir / "array.json", "[\n{\"text\": \"ab\"}\n]\n");
  EXPECT_SAYS(error_of([&] { tokens_of(dir / "array.json"); }), "array.json: is one JSON array");
  spill(dir / "blank.jsonl", "\n \n");
  EXPECT_SAYS(error_of([&] { tokens_of(dir / "blank.jsonl"); }), "blank.jsonl: holds no text");
}

TEST(Sources, AreWhatTheirNamesSay) {
  TempDir dir;
  testing::write_megatron_tokens(dir / "pair", {{7, 8, 9}}, "int32");
  for (const char* name : {"pair", "pair.bin", "pair.idx"})
    EXPECT_EQ(all_of(*open_sources(text_spec(dir / name))[0].tokens), (std::vector<int32_t>{7, 8, 9})) << name;
  spill(dir / "raw.bin", "\x01\x01\x02\x01");
  DataSpec raw = text_spec(dir / "raw.bin");
  raw.vocab_size = 300 + 257;
  EXPECT_EQ(all_of(*open_sources(raw)[0].tokens), (std::vector<int32_t>{257, 258}));
  spill(dir / "notes.md", "hey");
  EXPECT_EQ(all_of(*open_sources(text_spec(dir / "notes.md"))[0].tokens), as_ids("hey"));
  // A text keeps its name's meaning beside a pair that is called after it.
  testing::write_megatron_tokens(dir / "notes.md", {{7, 8, 9}}, "int32");
  EXPECT_EQ(all_of(*open_sources(text_spec(dir / "notes.md"))[0].tokens), as_ids("hey"));
}

TEST(Sources, ThatCannotBeAreRefusedWithAdvice) {
  TempDir dir;
  EXPECT_SAYS(error_of([&] { open_sources(text_spec(dir.path())); }), "is a folder");
  EXPECT_SAYS(error_of([&] { open_sources(text_spec(dir / "none.txt")); }), "none.txt: no such file");
  EXPECT_SAYS(error_of([&] { open_sources(text_spec(dir / "*.txt")); }), "patterns are not expanded");
  spill(dir / "lone.idx", "");
  EXPECT_SAYS(error_of([&] { open_sources(text_spec(dir / "lone.idx")); }), "its .bin file is missing");
  EXPECT_SAYS(error_of([&] { open_sources(text_spec("")); }), "a path is empty");
  testing::write_raw_tokens(dir / "a.bin", std::vector<int32_t>{1, 2}, "uint16");
  EXPECT_SAYS(error_of([&] { SampleOrder order(text_spec(dir / "a.bin")); }), "2 tokens give no training sample of 2");
  spill(dir / "t.txt", "abc");
  DataSpec small = text_spec(dir / "t.txt");
  small.vocab_size = 256;
  EXPECT_SAYS(error_of([&] { open_sources(small); }), "vocab_size is 256; make it 257");
}

}  // namespace
}  // namespace weft
