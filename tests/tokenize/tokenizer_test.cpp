#include "weft/tokenize/tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <iterator>
#include <random>

#include "tokenize/tokenize_support.h"

namespace weft {
namespace {

using testing::error_of;
using testing::slurp;
using testing::spill;
using testing::TempDir;

std::string decoded(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  IncrementalDecoder decoder(tokenizer);
  for (int32_t id : ids) text += decoder.next(id);
  return text;
}

TEST(ByteTokenizer, GivesBackEveryText) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  for (const std::string text : {"plain", "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80!", "line\nline\t"}) {
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    EXPECT_EQ(ids.size(), text.size());
    EXPECT_EQ(decoded(*tokenizer, ids), text);
  }
  EXPECT_EQ(prompt_ids(*tokenizer, ""), (std::vector<int32_t>{256}));  // as at the beginning of a document
}

TEST(ByteTokenizer, ShowsACharacterWhenItIsComplete) {
  const auto tokenizer = make_byte_tokenizer();
  IncrementalDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.next(0xe2), "");
  EXPECT_EQ(decoder.next(0x82), "");
  EXPECT_EQ(decoder.next(0xac), "\xe2\x82\xac");
  EXPECT_EQ(decoder.next(256), "");
}

TEST(OpenTokenizer, RefusesWhatItCannotUseByName) {
  TempDir dir;
  EXPECT_SAYS(error_of([&] { open_tokenizer("gpt2", {}, 50257); }), "\"gpt2\"");
  EXPECT_SAYS(error_of([&] { open_tokenizer("byte", {}, 256); }), "has 257 ids, the model's vocab_size is 256");
  EXPECT_SAYS(error_of([&] { open_tokenizer((dir / "none.model").string(), {}, 300); }), "none.model");
  spill(dir / "tokenizer.json", "{}");
  EXPECT_SAYS(error_of([&] { open_tokenizer("auto", dir.path(), 300); }), "tokenizer.json: no tokenizer.json");
  EXPECT_EQ(open_tokenizer("byte", dir.path(), 300)->vocab_size(), 257);
  EXPECT_SAYS(error_of([&] { open_tokenizer("byte", dir.path(), 256); }), "make it 257 or more");
  spill(dir / "model.safetensors", "");
  const std::string trained = error_of([&] { open_tokenizer("byte", dir.path(), 256); });
  EXPECT_SAYS(trained, "vocab_size is 256; its weights are of that vocabulary: give the tokenizer that it was trained");
  EXPECT_EQ(trained.find("or more"), std::string::npos) << trained;
}

// Cut everywhere, and with each byte of its beginning changed: an error that names the file or a tokenizer, no crash.
TEST(OpenTokenizer, SaysWhatAFileIsNot) {
  const testing::TempDir dir;
  const auto error = [&](std::string_view content) {
    spill(dir / "mine", content);
    return error_of([&] { read_tokenizer(dir / "mine"); });
  };
  EXPECT_SAYS(error("just words\n"),
              "mine: is neither a tokenizer.json, nor tiktoken ranks, nor a SentencePiece model (or it is cut short)");
  EXPECT_SAYS(error(""), "nor a SentencePiece model: it is empty");
  EXPECT_SAYS(error("PK\x03\x04"), "nor a SentencePiece model");
  EXPECT_SAYS(error("\n {\"model\": {\"type\": \"Frob\"}}"), "\"Frob\"");  // known by what it holds
}

TEST(SentencePiece, ABrokenModelIsRefusedOrRead) {
  WEFT_NEEDS_SHARED();
  TempDir dir;
  const auto tiny = testing::shared_dir() / "data/tokenizers/tiny";
  const std::string good = slurp(tiny / "torchtune_m.model");
  ASSERT_GT(open_sentencepiece(tiny / "torchtune_m.model")->vocab_size(), 0);
  const auto judge = [&](const std::string& bytes) {
    spill(dir / "m.model", bytes);
    const std::string e = error_of([&] { prompt_ids(*open_sentencepiece(dir / "m.model"), "Hello, \xff 12"); });
    if (!e.empty()) { EXPECT_SAYS(e, "entencePiece"); }
    return e;
  };
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 100) judge(good.substr(0, at));
  for (size_t at = 0; at < 100; ++at) judge(std::string(good).replace(at, 1, 1, char(good[at] ^ 0x81)));
  EXPECT_FALSE(judge("").empty());
  EXPECT_FALSE(judge(slurp(tiny / "torchtune_tiktoken_small.model")).empty());  // another kind of the same name
}

// Found by fuzzing: ids counted what the library does not know.
TEST(SentencePiece, AFieldOfAnotherTypeIsNoPiece) {
  TempDir dir;
  const std::string pieces = std::string("\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02", 16) + "\x0a\x03\x0a\x01" + "a";
  spill(dir / "m.model", pieces);
  spill(dir / "more.model", "\x08\x08\x08\x08" + pieces);  // field 1, which pieces are, as a number, twice
  const auto plain = open_sentencepiece(dir / "m.model"), more = open_sentencepiece(dir / "more.model");
  EXPECT_EQ(more->vocab_size(), 2);
  EXPECT_EQ(prompt_ids(*plain, "ab"), prompt_ids(*more, "ab"));
}

// Every SentencePiece model at hand, its own library, and the tokenizer.
template <class F>
void for_each_library(const F& judge) {
  const auto folder = testing::shared_dir() / "data/tokenizers";
  for (const char* file : {"llama2/tokenizer.model", "mistral/tokenizer.model.v3", "tiny/spm_test_model.model",
                           "tiny/spm_test_ja_model.model", "t5-small/spiece.model", "tiny/torchtune_m.model"}) {
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.Load((folder / file).string()).ok());
    SCOPED_TRACE(file);
    judge(library, *open_sentencepiece(folder / file));
  }
}
testing::Ids ids_by(const sentencepiece::SentencePieceProcessor& library, const std::string& text) {
  std::vector<int> ids;
  EXPECT_TRUE(library.Encode(text, &ids).ok());
  return {ids.begin(), ids.end()};
}

TEST(SentencePiece, TextsHaveTheIdsThatTheLibraryGivesThem) {
  WEFT_NEEDS_SHARED();
  const std::string parts[] = {" ",
                               "  ",
                               "a",
                               "the",
                               "Word",
                               "ing",
                               "\u2581",
                               "\n",
                               "\t",
                               "\u00e9",
                               "\U0001f600",
                               "\xff",
                               "<s>",
                               ".",
                               "\u3000",
                               "'s",
                               "42",
                               "_",
                               "x ",
                               " y ",
                               "</s> ",
                               "\x7f",
                               std::string(1, 0),
                               "\u0301",
                               "\ufb01",
                               "\u2460",
                               "\u00ad",
                               "\u200b",
                               "\xe2\x82",
                               "\u304b\u3099",
                               "\u00bd",
                               "\u2028",
                               "[INST]",
                               "\u1100",
                               "\u1161",
                               "<0x41>",
                               "\x1f",
                               "\r\n",
                               "\u4e2d",
                               "\u3042",
                               "<unk>",
                               "\u00a8"};
  std::mt19937 random(3);
  for_each_library([&](const auto& library, const Tokenizer& tokenizer) {
    for (int i = 0; i < 400; ++i) {
      std::string text;
      for (size_t n = random() % 30; n > 0; --n) text += parts[random() % std::size(parts)];
      ASSERT_EQ(testing::ids_of(tokenizer, text), ids_by(library, text)) << text;
    }
  });
}

// A part in which tokens overlap without an end, unknown characters that meet where threads part, and sums of scores
// that are rounded.
TEST(SentencePieceSlow, LongTextsHaveThemToo) {
  WEFT_NEEDS_SHARED();
  std::string words, runs, unknown, tight;
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string word(1 + random() % 7, char('a' + random() % 26));
    for (char& c : word) c = char('a' + random() % 26);
    words += word + " ";
    tight += word;
    runs += "aaaaaaa";
    unknown += "\u0f00\u0f01";
  }
  for_each_library([&](const auto& library, const Tokenizer& tokenizer) {
    for (const std::string& text : {words, runs, unknown, tight}) {
      const testing::Ids expected = ids_by(library, text);
      ASSERT_TRUE(testing::ids_of(tokenizer, text) == expected) << text.substr(0, 20);
      testing::Ids by_threads;
      tokenizer.encode(text, by_threads, SpecialText::kText, 3);
      ASSERT_TRUE(by_threads == expected) << text.substr(0, 20);
    }
  });
}

// A small model with <s>, </s>; one that has no token for the beginning of a text, as T5's.
TEST(SentencePiece, AModelThatCannotBeginATextEndsIt) {
  const TempDir dir;
  const auto seed = std::filesystem::path(testing::kSourceDir) / "fuzz/seeds/fuzz_sentencepiece/bpe";
  const std::string model = slurp(seed).substr(12);  // behind a text and its length
  spill(dir / "tokenizer.model", model);
  EXPECT_EQ(read_tokenizer(dir.path())->beginning(), (testing::Ids{1}));
  EXPECT_EQ(read_tokenizer(dir.path())->ending(), testing::Ids());
  spill(dir / "tokenizer.model", model + "\x12\x07\xf2\x02\x04none");  // trainer_spec.bos_piece = "none"
  EXPECT_EQ(read_tokenizer(dir.path())->beginning(), testing::Ids());
  EXPECT_EQ(read_tokenizer(dir.path())->ending(), (testing::Ids{2}));
}

TEST(SentencePiece, WhatStandsAroundATextIsAsTheModelOrItsConfigSays) {
  WEFT_NEEDS_SHARED();
  using testing::Ids;
  const auto folder = testing::shared_dir() / "data/tokenizers";
  const auto t5 = read_tokenizer(folder / "t5-small"), llama = read_tokenizer(folder / "llama2");
  EXPECT_EQ(t5->beginning(), Ids());
  EXPECT_EQ(t5->ending(), (Ids{1}));
  EXPECT_EQ(llama->beginning(), (Ids{1}));
  EXPECT_EQ(llama->ending(), Ids());
  const TempDir dir;
  std::filesystem::copy_file(folder / "llama2/tokenizer.model", dir / "tokenizer.model");
  EXPECT_EQ(read_tokenizer(dir.path())->fingerprint(), llama->fingerprint());
  spill(dir / "tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true, "eos_token": "</s>"})");
  EXPECT_EQ(read_tokenizer(dir.path())->beginning(), Ids());
  EXPECT_EQ(read_tokenizer(dir.path())->ending(), (Ids{2}));
  EXPECT_NE(read_tokenizer(dir.path())->fingerprint(), llama->fingerprint());
  std::filesystem::copy_file(folder / "t5-small/spiece.model", dir / "spiece.model");
  std::filesystem::remove(dir / "tokenizer.model");
  spill(dir / "tokenizer_config.json", R"({"add_eos_token": false})");
  EXPECT_EQ(read_tokenizer(dir.path())->ending(), Ids());
  spill(dir / "tokenizer_config.json", R"({"add_bos_token": true})");
  EXPECT_SAYS(error_of([&] { read_tokenizer(dir.path()); }), "add_bos_token is true, but the model spiece.model");
}

TEST(TokenizerFolder, AVocabularyOfWordsIsReadByItself) {
  testing::TempDir dir;
  testing::spill(dir / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhug\n##s\n,\nHug\n");
  const auto tokenizer = read_tokenizer(dir.path());
  EXPECT_EQ(testing::ids_of(*tokenizer, "Hugs, hug x"), (testing::Ids{4, 5, 6, 4, 1}));
  EXPECT_EQ(tokenizer->beginning(), (testing::Ids{2}));
  EXPECT_EQ(tokenizer->ending(), (testing::Ids{3}));
  EXPECT_EQ(testing::ids_of(*tokenizer, "[SEP]", SpecialText::kParsed), (testing::Ids{3}));
  testing::spill(dir / "tokenizer_config.json", R"({"do_lower_case": false, "unk_token": {"content": "[PAD]"}})");
  EXPECT_EQ(testing::ids_of(*read_tokenizer(dir.path()), "Hug hug x"), (testing::Ids{7, 4, 0}));
}

TEST(TokenizerFolder, AddedTokensAndSpecialOnesAreReadWithoutATokenizerJson) {
  testing::TempDir dir;
  testing::spill(dir / "vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  testing::spill(dir / "merges.txt", "#version: 0.2\na b\n");
  testing::spill(dir / "added_tokens.json", R"({"EOT": 3, "aba": 4})");
  testing::spill(dir / "special_tokens_map.json", R"({"eos_token": "EOT", "additional_special_tokens": []})");
  const auto tokenizer = read_tokenizer(dir.path());
  EXPECT_EQ(tokenizer->end_of_document(), 3);
  EXPECT_EQ(testing::ids_of(*tokenizer, "ababEOT", SpecialText::kParsed), (testing::Ids{4, 1, 3}));
  testing::spill(dir / "added_tokens.json", R"({"EOT": "x"})");
  EXPECT_SAYS(testing::error_of([&] { read_tokenizer(dir.path()); }), "added_tokens.json: \"EOT\"");
}

// The tokenizer of a folder that holds nothing but what tokenizer_files says.
std::unique_ptr<Tokenizer> moved(const std::filesystem::path& path) {
  const testing::TempDir dir;
  for (const TokenizerFile& file : tokenizer_files(path)) std::filesystem::copy_file(file.from, dir / file.name);
  return read_tokenizer(dir.path());
}
void expect_moved(const std::filesystem::path& path) {
  const auto here = read_tokenizer(path), there = moved(path);
  EXPECT_EQ(there->fingerprint(), here->fingerprint()) << path;
  const std::string text = "Hugs, the  42nd: caf\u00e9\n";
  EXPECT_EQ(testing::ids_of(*there, text), testing::ids_of(*here, text)) << path;
  EXPECT_EQ(there->beginning(), here->beginning()) << path;
}

TEST(TokenizerFiles, AreEnoughInAFolderOfTheirOwn) {
  const testing::TempDir dir;
  spill(dir / "words.json", R"({"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "the": 1}, "unk_token": "[UNK]"},
    "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": [{"id": 2, "content": "EOT", "special": true}]})");
  spill(dir / "tokenizer_config.json", R"({"eos_token": "EOT"})");
  spill(dir / "my-vocab.json", R"({"t": 0, "h": 1, "th": 2, "EOT": 3})");
  spill(dir / "my-merges.txt", "#version: 0.2\nt h\n");
  spill(dir / "bert-vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhug\n##s\n,\nHug\n");
  for (const char* name : {"words.json", "my-vocab.json", "bert-vocab.txt"}) expect_moved(dir / name);
  EXPECT_EQ(moved(dir / "words.json")->end_of_document(), 2);
  EXPECT_SAYS(error_of([&] { tokenizer_files(dir.path()); }), "holds no tokenizer");
  EXPECT_SAYS(error_of([&] { tokenizer_files(dir / "none.json"); }), "none.json");
  EXPECT_EQ(find_tokenizer(dir.path()), "");
  EXPECT_EQ(find_tokenizer(""), "");
}

TEST(TokenizerFiles, OfBytesAreReadAsBytesAndByOtherProgramsAsTheSameIds) {
  const testing::TempDir dir;
  spill(dir / "tokenizer.json", byte_tokenizer_json());
  EXPECT_EQ(read_tokenizer(dir.path())->fingerprint(), make_byte_tokenizer()->fingerprint());
  auto json = nlohmann::json::parse(byte_tokenizer_json());
  json["version"] = "another";
  spill(dir / "tokenizer.json", json.dump());
  const auto other = read_tokenizer(dir.path());
  EXPECT_NE(other->fingerprint(), make_byte_tokenizer()->fingerprint());
  const std::string text = " Hugs, the\t42nd: caf\u00e9\n\x7f";
  EXPECT_EQ(testing::ids_of(*other, text), testing::ids_of(*make_byte_tokenizer(), text));
  EXPECT_EQ(other->end_of_document(), 256);
  EXPECT_EQ(other->vocab_size(), 257);
}

TEST(TokenizerFiles, OfAFolderAreAllItsFormsAndTemplates) {
  const testing::TempDir dir;
  spill(dir / "tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}})");
  for (const char* name : {"tokenizer.model", "vocab.json", "merges.txt", "chat_template.jinja", "notes.txt"})
    spill(dir / name, "{}");
  std::filesystem::create_directory(dir / "additional_chat_templates");
  spill(dir / "additional_chat_templates/tool_use.jinja", "x");
  std::string names;
  for (const TokenizerFile& file : tokenizer_files(dir.path())) names += file.name + " ";
  EXPECT_EQ(names,
            "tokenizer.json additional_chat_templates/tool_use.jinja chat_template.jinja merges.txt tokenizer.model "
            "vocab.json ");
}

TEST(TokenizerFilesSlow, OfEveryKindAreEnough) {
  WEFT_NEEDS_SHARED();
  const auto folder = testing::shared_dir() / "data/tokenizers";
  for (const char* name :
       {"gpt2", "gpt2/encoder.json", "llama2", "llama3", "llama3/tokenizer.model", "mistral", "t5-small",
        "mistral/tokenizer.model.v3", "tiny/spm_test_model.model", "tiny/torchtitan_tokenizer.json"})
    expect_moved(folder / name);
  const testing::TempDir dir;  // whose pattern is known by its name alone
  std::filesystem::copy_file(folder / "tiny/torchtune_tiktoken_small.model", dir / "my_cl100k_ranks");
  expect_moved(dir / "my_cl100k_ranks");
}

}  // namespace
}  // namespace weft
