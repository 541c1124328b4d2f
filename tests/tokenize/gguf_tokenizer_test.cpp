// Tokenizers in GGUF files.
#include <cstdlib>

#include "tokenize/tokenize_support.h"
#include "weft/base/error.h"
#include "weft/tokenize/gguf_vocabulary.h"
#include "weft/tokenize/tokenizer_source.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::Ids;
using testing::ids_of;
using testing::TempDir;
using testing::text_of;

// The tokenizer at `path`, by way of a file with its vocabulary alone.
std::unique_ptr<Tokenizer> through_gguf(const fs::path& path, int64_t vocab_size, const TempDir& dir) {
  GgufHead head;
  write_gguf_vocabulary(gguf_vocabulary_of(path, vocab_size), head);
  testing::spill(dir / "t.gguf", head.bytes());
  return read_tokenizer(dir / "t.gguf");
}

void expect_same(const Tokenizer& a, const Tokenizer& b, std::string_view text) {
  for (const auto special : {SpecialText::kText, SpecialText::kParsed})
    EXPECT_EQ(ids_of(a, text, special), ids_of(b, text, special)) << text;
  EXPECT_EQ(text_of(b, ids_of(b, text)), text_of(a, ids_of(a, text)));
}

// Byte pairs over a few letters, split as GPT-2's.
nlohmann::json byte_pairs() {
  nlohmann::json json = nlohmann::json::parse(byte_tokenizer_json());
  json["model"]["vocab"]["ab"] = 257;
  json["model"]["vocab"]
      ["\xc4\xa0"
       "ab"] = 258;
  json["model"]["merges"] = {"a b", "\xc4\xa0 ab"};
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  json["added_tokens"].push_back({{"id", 259}, {"content", "word"}, {"special", false}});
  return json;
}
fs::path spilled(const nlohmann::json& json, const TempDir& dir) {
  testing::spill(dir / "tokenizer.json", json.dump());
  return dir / "tokenizer.json";
}

TEST(GgufTokenizer, GivesTheSameIdsOfBytePairs) {
  TempDir dir;
  const fs::path path = spilled(byte_pairs(), dir);
  testing::spill(dir / "tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  const auto before = read_tokenizer(path), after = through_gguf(path, 264, dir);
  for (const char* text : {"ab ab  cab", "a word<|endoftext|>\n", "\xe6\x97\xa5 \xff", "it's 42!"})
    expect_same(*before, *after, text);
  EXPECT_EQ(before->end_of_document(), 256);
  EXPECT_EQ(after->end_of_document(), 256);
  EXPECT_EQ(after->vocab_size(), before->vocab_size()) << "unused tokens are no tokens";
  EXPECT_EQ(find_tokenizer(dir / "t.gguf"), dir / "t.gguf");
}

TEST(GgufTokenizer, WritesWhatLlamaCppLooksFor) {
  TempDir dir;
  const GgufVocabulary v = gguf_vocabulary_of(spilled(byte_pairs(), dir), 261);
  EXPECT_EQ(v.model, "gpt2");
  EXPECT_EQ(v.pre, "gpt-2");
  EXPECT_EQ(v.tokens.size(), 261u);
  EXPECT_EQ(v.tokens[260], "[PAD260]");
  EXPECT_EQ(v.kinds[260], GgufVocabulary::kUnused);
  EXPECT_EQ(v.kinds[256], GgufVocabulary::kControl);
  EXPECT_EQ(v.kinds[259], GgufVocabulary::kUserDefined);
  EXPECT_EQ(v.kinds[258], GgufVocabulary::kNormal);
  EXPECT_EQ(v.merges, (std::vector<std::string>{"a b", "\xc4\xa0 ab"}));
  EXPECT_EQ(v.end, 256);
  EXPECT_EQ(gguf_pre_of(*gguf_split("qwen2")), "qwen2");
  EXPECT_EQ(gguf_pre_of(*gguf_split("llama-bpe")), "llama-bpe");
  EXPECT_EQ(gguf_pre_of(*gguf_split("dbrx")), "dbrx");
  EXPECT_EQ(gguf_pre_of(*gguf_split("deepseek-coder")), "deepseek-coder");
}

// Its files have the ends of lines themselves in their expressions, others escapes.
TEST(GgufTokenizer, KnowsTheSplitOfDeepSeekV3) {
  nlohmann::json json = byte_pairs(), parts = nlohmann::json::array();
  const GgufSplit split = *gguf_split("deepseek-v3");
  for (std::string e : split.expressions) {
    for (size_t at; (at = e.find("\\r\\n")) != e.npos;) e.replace(at, 4, "\r\n");
    parts.push_back({{"type", "Split"}, {"pattern", {{"Regex", e}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  parts.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", parts}};
  TempDir dir;
  const fs::path path = spilled(json, dir);
  EXPECT_EQ(gguf_vocabulary_of(path, 260).pre, "deepseek-v3");
  const auto before = read_tokenizer(path), after = through_gguf(path, 260, dir);
  expect_same(*before, *after, "ab,ab (ab) 1234\r\n\n ab[]^`{|}~");
}

// Byte pairs that are split by an expression, their text composed before or not.
nlohmann::json split_by(const std::string& expression, bool composes) {
  nlohmann::json json = byte_pairs();
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  if (composes) json["normalizer"] = {{"type", "NFC"}};
  return json;
}

TEST(GgufTokenizer, ComposesCharactersWhereTheTokenizerDoes) {
  for (const bool composes : {false, true}) {
    TempDir dir;
    const fs::path path = spilled(split_by(gguf_split("qwen2")->expressions[0], composes), dir);
    EXPECT_EQ(gguf_vocabulary_of(path, 260).pre, composes ? "qwen2" : "stablelm2");
    const auto before = read_tokenizer(path), after = through_gguf(path, 260, dir);
    expect_same(*before, *after, "ab e\xcc\x81");
    EXPECT_EQ(ids_of(*after, "e\xcc\x81").size(), composes ? 2u : 3u);
  }
}

TEST(GgufTokenizer, RefusesToComposeWhatIsSplitOtherwise) {
  TempDir dir;
  const auto refusal = [&](const nlohmann::json& json) {
    return error_of<ConfigError>([&] { gguf_vocabulary_of(spilled(json, dir), 300); });
  };
  EXPECT_SAYS(refusal(split_by(gguf_split("dbrx")->expressions[0], true)), "NFC) and splits text as dbrx");
  nlohmann::json json = byte_pairs();
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_SAYS(refusal(json), "only qwen2's split goes with NFC");
  json["model"]["merges"] = nlohmann::json::array();
  EXPECT_SAYS(refusal(json), "NFC) and splits text as gpt-2");
}

TEST(GgufTokenizer, TellsWhichAddedTokensLookAtTheirNeighbours) {
  TempDir dir;
  nlohmann::json json = byte_pairs();
  EXPECT_EQ(gguf_vocabulary_of(spilled(json, dir), 260).notes, std::vector<std::string>());
  json["added_tokens"].push_back({{"id", 260}, {"content", "<mask>"}, {"special", true}, {"lstrip", true}});
  json["added_tokens"].push_back({{"id", 261}, {"content", "whole"}, {"special", false}, {"single_word", true}});
  const auto notes = gguf_vocabulary_of(spilled(json, dir), 270).notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_SAYS(notes[0], "the added tokens \"<mask>\", \"whole\" are left out");
  for (int id = 262; id < 267; ++id)
    json["added_tokens"].push_back({{"id", id}, {"content", fmt::format("<{}>", id)}, {"rstrip", true}});
  EXPECT_SAYS(gguf_vocabulary_of(spilled(json, dir), 270).notes.at(0), "\"<264>\" and 2 others");
}

TEST(GgufTokenizer, OfBytesAlone) {
  TempDir dir;
  const auto after = through_gguf("byte", 257, dir);
  expect_same(*make_byte_tokenizer(), *after, "Any text, \xe6\x97\xa5\xe6\x9c\xac.");
  EXPECT_EQ(after->end_of_document(), 256);
}

TEST(GgufTokenizer, SaysOfWhichTokenizerItWasMade) {
  TempDir dir;
  const fs::path path = spilled(byte_pairs(), dir);
  const std::string original = read_tokenizer(path)->fingerprint(), own = through_gguf(path, 264, dir)->fingerprint();
  EXPECT_NE(own, original);
  EXPECT_EQ(tokenizer_fingerprints(path), std::vector<std::string>{original});
  EXPECT_EQ(tokenizer_fingerprints(dir / "t.gguf"), (std::vector<std::string>{own, original}));
  EXPECT_EQ(gguf_vocabulary_of(dir / "t.gguf", 264).fingerprint, original) << "also when it is exported again";
}

TEST(GgufTokenizer, RefusesWhatHasNoNameThere) {
  TempDir dir;
  nlohmann::json json = byte_pairs();
  const auto refusal = [&] { return error_of<ConfigError>([&] { gguf_vocabulary_of(spilled(json, dir), 300); }); };
  json["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_SAYS(refusal(), "changes text");
  EXPECT_SAYS(refusal(), "--tokenizer none");
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"}, {"pattern", {{"Regex", "x+"}}}, {"behavior", "Isolated"}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  EXPECT_SAYS(refusal(), "no name that weft knows");
  json["pre_tokenizer"] = {{"type", "Whitespace"}};
  EXPECT_SAYS(refusal(), "byte pairs");
  EXPECT_SAYS(error_of<ConfigError>([&] { gguf_vocabulary_of(spilled(byte_pairs(), dir), 100); }),
              "260 tokens, the model 100");
}

TEST(GgufTokenizer, NamesWhatIsBroken) {
  const auto refusal = [](const auto& change) {
    GgufHead head;
    change(head);
    TempDir dir;
    testing::spill(dir / "t.gguf", head.bytes());
    return error_of<FileError>([&] { read_tokenizer(dir / "t.gguf"); });
  };
  const std::vector<int32_t> two{1, 1};
  const auto begin = [](GgufHead& head, const char* model) {
    head.text("tokenizer.ggml.model", model);
    head.texts("tokenizer.ggml.tokens", {"a", "b", "ab"});
  };
  EXPECT_SAYS(refusal([](GgufHead& h) { h.u32("k", 1); }), "holds no tokenizer");
  EXPECT_SAYS(refusal([&](GgufHead& h) { begin(h, "bert"); }), "not \"bert\"");
  EXPECT_SAYS(refusal([&](GgufHead& h) { begin(h, "llama"); }), "\"tokenizer.ggml.scores\": is missing");
  EXPECT_SAYS(refusal([&](GgufHead& h) {
                begin(h, "gpt2");
                h.i32s("tokenizer.ggml.token_type", two);
              }),
              "one value for each of the 3 tokens");
  EXPECT_SAYS(refusal([&](GgufHead& h) {
                begin(h, "gpt2");
                h.text("tokenizer.ggml.pre", "strange");
                h.texts("tokenizer.ggml.merges", {"a b"});
              }),
              "weft does not know how \"strange\" splits text");
  EXPECT_SAYS(refusal([&](GgufHead& h) {
                begin(h, "gpt2");
                h.text("tokenizer.ggml.pre", "gpt-2");
                h.texts("tokenizer.ggml.merges", {"a c"});
              }),
              "\"c\" is not in the vocabulary");
  EXPECT_SAYS(refusal([&](GgufHead& h) {
                begin(h, "gpt2");
                h.texts("tokenizer.ggml.merges", {});
                h.u32("tokenizer.ggml.bos_token_id", 3);
              }),
              "an id below 3");
}

// A model with a tokenizer that weft cannot read is no model without one: its text would be read as bytes.
TEST(GgufTokenizer, OneThatCannotBeReadIsThereAllTheSame) {
  TempDir dir;
  const fs::path file = dir / "t.gguf";
  const auto write = [&](const char* model, const char* pre) {
    GgufHead head;
    if (*model != 0) head.text("tokenizer.ggml.model", model);
    if (*pre != 0) head.text("tokenizer.ggml.pre", pre);
    head.texts("tokenizer.ggml.tokens", {"a", "b", "ab"});
    head.texts("tokenizer.ggml.merges", {"a b"});
    testing::spill(file, head.bytes());
  };
  const auto refusal = [&] { return error_of<FileError>([&] { open_tokenizer("auto", file, 300); }); };
  write("gpt2", "default");
  EXPECT_EQ(find_tokenizer(file), file);
  EXPECT_SAYS(refusal(), "does not know how \"default\" splits text");
  write("gpt2", "");
  EXPECT_SAYS(refusal(), "does not know how \"default\" splits text");
  write("bert", "");
  EXPECT_EQ(find_tokenizer(file), file);
  EXPECT_SAYS(refusal(), "not \"bert\"");
  for (const char* none : {"none", "no_vocab", ""}) {
    write(none, "");
    EXPECT_EQ(find_tokenizer(file), fs::path()) << none;
    EXPECT_EQ(open_tokenizer("auto", file, 300)->vocab_size(), 257) << none;
  }
}

TEST(GgufTokenizer, ATemplateAndMarksAreInTheFilesOfACheckpoint) {
  TempDir dir;
  GgufVocabulary v = gguf_vocabulary_of(spilled(byte_pairs(), dir), 260);
  v.chat_template = "{{ messages }}";
  v.beginning = 256, v.add_beginning = true;
  GgufHead head;
  write_gguf_vocabulary(v, head);
  testing::spill(dir / "t.gguf", head.bytes());
  fs::create_directory(dir / "copy");
  for (const TokenizerFile& file : tokenizer_files(dir / "t.gguf")) file.copy_to(dir / "copy");
  const auto config = nlohmann::json::parse(testing::slurp(dir / "copy/tokenizer_config.json"));
  EXPECT_EQ(config["chat_template"], "{{ messages }}");
  EXPECT_EQ(config["bos_token"], "<|endoftext|>");
  const auto copy = read_tokenizer(dir / "copy"), own = read_tokenizer(dir / "t.gguf");
  EXPECT_EQ(copy->fingerprint(), own->fingerprint());
  EXPECT_EQ(copy->beginning(), Ids{256});
  expect_same(*own, *copy, "ab word");
}

// --- real ones ---

std::vector<std::string> lines_of_vectors() {
  std::vector<std::string> lines;
  std::istringstream in(testing::slurp(testing::shared_dir() / "data/tokenizers/vectors/lines.jsonl"));
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line)["text"]);
  return lines;
}

void expect_same_of_lines(const fs::path& path, int64_t vocab_size) {
  TempDir dir;
  const auto before = read_tokenizer(path), after = through_gguf(path, vocab_size, dir);
  for (const std::string& line : lines_of_vectors()) {
    ASSERT_EQ(ids_of(*before, line), ids_of(*after, line)) << line;
    ASSERT_EQ(ids_of(*before, line, SpecialText::kParsed), ids_of(*after, line, SpecialText::kParsed)) << line;
  }
  EXPECT_EQ(before->beginning(), after->beginning());
  EXPECT_EQ(before->end_of_document(), after->end_of_document());
}

TEST(GgufTokenizer, SentencePieceModelsStayTheSame) {
  WEFT_NEEDS_SHARED();
  TempDir dir;
  const fs::path path = testing::shared_dir() / "data/models/stories260K/tok512.model";
  const auto before = read_tokenizer(path), after = through_gguf(path, 520, dir);
  for (const char* text :
       {"Once upon a time, there was a little girl.", "  two  spaces ", "\xe6\x97\xa5 x\n", "<s>a</s>"})
    expect_same(*before, *after, text);
  EXPECT_EQ(before->beginning(), after->beginning());
}

TEST(GgufTokenizerSlow, RealTokenizersGiveTheSameIds) {
  WEFT_NEEDS_SHARED();
  const fs::path folder = testing::shared_dir() / "data/tokenizers";
  expect_same_of_lines(folder / "gpt2/encoder.json", 50257);
  expect_same_of_lines(folder / "llama2/tokenizer.model", 32000);
  TempDir dir;
  fs::create_directory(dir / "qwen");
  const std::string to = (dir / "qwen/tokenizer.json").string();
  ASSERT_EQ(std::system(("gzip -dc '" + (folder / "qwen2.5/tokenizer.json.gz").string() + "' > '" + to + "'").c_str()),
            0);
  fs::copy(folder / "qwen2.5/tokenizer_config.json", dir / "qwen");
  expect_same_of_lines(dir / "qwen", 151936);
}

// The texts and ids that llama.cpp's own test of this vocabulary has.
TEST(GgufTokenizerSlow, DeepSeekCoderGivesTheIdsOfLlamaCpp) {
  WEFT_NEEDS_SHARED();
  const fs::path folder = testing::shared_dir() / "data/tokenizers";
  const auto tokenizer = read_tokenizer(folder / "gguf/ggml-vocab-deepseek-coder.gguf");
  const std::string stem = "ggml-vocab-deepseek-coder.gguf", mark = "\n__ggml_vocab_test__\n";
  const std::string texts = testing::slurp(folder / "vectors/ggml" / (stem + ".inp"));
  std::istringstream expected(testing::slurp(folder / "vectors/ggml" / (stem + ".out")));
  int compared = 0;
  std::string line;
  for (size_t at = 0; at < texts.size() && std::getline(expected, line); ++compared) {
    const size_t end = std::min(texts.find(mark, at), texts.size());
    std::istringstream numbers(line);
    Ids ids;
    for (int32_t id; numbers >> id;) ids.push_back(id);
    EXPECT_EQ(ids_of(*tokenizer, texts.substr(at, end - at)), ids) << texts.substr(at, end - at);
    at = end + mark.size();
  }
  EXPECT_GT(compared, 40);
  EXPECT_EQ(tokenizer->beginning(), Ids{32013});
}

}  // namespace
}  // namespace weft
