// Real tokenizers on real text: the ids of their own programs (../shared/data/tokenizers).
#include <cstdio>

#include "tokenize/tokenize_support.h"
#include "weft/base/mapped_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Ids;
using testing::ids_of;
using testing::text_of;

fs::path vectors() { return testing::shared_dir() / "data/tokenizers/vectors"; }

std::vector<nlohmann::json> read_lines(const fs::path& file) {
  const MappedFile mapped(file);
  std::vector<nlohmann::json> lines;
  std::string_view rest = mapped.text();
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    lines.push_back(nlohmann::json::parse(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return lines;
}

// Qwen's file is there compressed.
std::unique_ptr<Tokenizer> open_golden(const std::string& file) {
  const fs::path path = testing::shared_dir() / "data" / file;
  if (path.extension() != ".gz") return read_tokenizer(path);
  testing::TempDir dir;
  const std::string to = (dir / "tokenizer.json").string();
  EXPECT_EQ(std::system(("gzip -dc '" + path.string() + "' > '" + to + "'").c_str()), 0);
  return read_tokenizer(to);
}

struct Golden {
  std::string name, file;
  SpecialText special = SpecialText::kText;
  bool gives_back = false;  // ids become the very text again
};
std::ostream& operator<<(std::ostream& out, const Golden& g) { return out << g.name; }

class TokenizerGolden : public ::testing::TestWithParam<Golden> {};

TEST_P(TokenizerGolden, GivesTheIdsOfItsOwnProgram) {
  WEFT_NEEDS_SHARED();
  const Golden& g = GetParam();
  const auto tokenizer = open_golden(g.file);
  const auto lines = read_lines(vectors() / "lines.jsonl");
  const bool parsed = g.special == SpecialText::kParsed;
  const auto expected = read_lines(vectors() / (parsed ? "ids_special" : "ids") / (g.name + ".jsonl"));
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string text = lines[i]["text"];
    const auto ids = expected[i].get<Ids>();
    ASSERT_EQ(ids_of(*tokenizer, text, g.special), ids) << "line " << i + 1 << ": " << text;
    if (g.gives_back) { ASSERT_EQ(text_of(*tokenizer, ids), text); }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Vectors, TokenizerGolden,
    ::testing::Values(Golden{"gpt2", "tokenizers/gpt2/encoder.json", SpecialText::kText, true},
                      Golden{"llama3", "tokenizers/llama3/tokenizer.model", SpecialText::kText, true},
                      Golden{"qwen2.5", "tokenizers/qwen2.5/tokenizer.json.gz"},
                      Golden{"qwen2.5", "tokenizers/qwen2.5/tokenizer.json.gz", SpecialText::kParsed},
                      Golden{"torchtitan_tiny", "tokenizers/tiny/torchtitan_tokenizer.json", SpecialText::kParsed},
                      Golden{"llama2", "tokenizers/llama2/tokenizer.model"},
                      Golden{"t5-small", "tokenizers/t5-small/spiece.model"},
                      Golden{"torchtune_m", "tokenizers/tiny/torchtune_m.model"},
                      Golden{"spm_test", "tokenizers/tiny/spm_test_model.model"},
                      Golden{"spm_test_ja", "tokenizers/tiny/spm_test_ja_model.model"},
                      Golden{"tok512", "models/stories260K/tok512.model"}),
    [](const auto& info) {
      std::string name = info.param.name + (info.param.special == SpecialText::kParsed ? "_parsed" : "");
      for (char& c : name)
        if (!isalnum(uint8_t(c))) c = '_';
      return name;
    });

// A file is one text; whatever the number of threads.
void expect_golden_files(const std::string& name, const std::string& file) {
  const auto tokenizer = open_golden(file);
  const auto all = nlohmann::json::parse(testing::slurp(vectors() / "whole_files.json"));
  for (const auto& [text, expected] : all[name].items()) {
    const fs::path path = testing::shared_dir() / "data" / text;
    if (!fs::exists(path)) continue;  // not every text is in every copy
    const MappedFile mapped(path);
    Ids ids, three;
    tokenizer->encode(mapped.text(), ids, SpecialText::kText, 1);
    EXPECT_EQ(ids.size(), expected["n"]) << name << " " << text;
    EXPECT_EQ(Ids(ids.begin(), ids.begin() + 12), expected["first"].get<Ids>());
    EXPECT_EQ(Ids(ids.end() - 12, ids.end()), expected["last"].get<Ids>());
    if (tokenizer->cut_between(mapped.text(), 0, 1 << 16) == 0) continue;
    tokenizer->encode(mapped.text(), three, SpecialText::kText, 3);
    EXPECT_EQ(ids, three);
    EXPECT_EQ(ids, ids_of(*tokenizer, mapped.text()));
  }
}

TEST(TokenizerGoldenFileSlow, HasTheIdsOfItsOwnProgram) {
  WEFT_NEEDS_SHARED();
  expect_golden_files("gpt2", "tokenizers/gpt2/encoder.json");
  expect_golden_files("llama3", "tokenizers/llama3/tokenizer.model");
  expect_golden_files("qwen2.5", "tokenizers/qwen2.5/tokenizer.json.gz");
}

TEST(TokenizerGoldenFileSlow, OfSentencePieceHasTheIdsOfItsOwnProgram) {
  WEFT_NEEDS_SHARED();
  expect_golden_files("llama2", "tokenizers/llama2/tokenizer.model");
  expect_golden_files("mistral_v3", "tokenizers/mistral/tokenizer.model.v3");
  expect_golden_files("t5-small", "tokenizers/t5-small/spiece.model");
}

}  // namespace
}  // namespace weft
