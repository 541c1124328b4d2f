// Sources with weights: token files of their own, and what a recipe makes of them.
#include "pipeline/pipeline_support.h"
#include "weft/base/json.h"
#include "weft/data/token_source.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::bytes_of_folder;
using testing::config_of;
using testing::error_of;
using testing::Harness;
using testing::spill;
using testing::TempDir;

struct Source {
  std::string name, more;  // keys
  int documents = 0;
};

// A document is the name of its source and its number.
PipelineConfig config_of_sources(const TempDir& dir, const std::string& out, const std::vector<Source>& sources,
                                 const std::string& tokens = "") {
  std::string toml = "[run]\ndir = \"" + (dir / out).string() + "\"\nshard_mb = 1\ncompression = \"none\"\n";
  for (const Source& s : sources) {
    std::string rows;
    for (int i = 0; i < s.documents; ++i) rows += fmt::format("{{\"text\": \"{} {}\"}}\n", s.name, i);
    if (!fs::exists(dir / (s.name + ".jsonl"))) spill(dir / (s.name + ".jsonl"), rows);  // else its time would change
    toml += fmt::format("[[source]]\nname = \"{}\"\nfiles = [\"{}\"]\n{}", s.name, (dir / (s.name + ".jsonl")).string(),
                        s.more);
  }
  return config_of(toml + "[tokens]\n" + tokens);
}

// What a token file of the byte tokenizer says; its documents end with a new line.
std::string text_of(const fs::path& prefix) {
  const auto source = open_megatron_tokens(prefix, 0);
  std::vector<int32_t> ids(size_t(source->size()));
  source->read(0, ids);
  std::string text;
  for (const int32_t id : ids) text += id == 256 ? '\n' : char(id);
  return text;
}

TEST(Weights, GiveEachSourceTokenFilesOfItsOwn) {
  const TempDir dir;
  Harness harness;
  const std::vector<Source> sources = {
      {"books", "weight = 0.25\n", 50}, {"a_b-c", "weight = 3\ncopies = 2\n", 20}, {"zero", "weight = 0\n", 1}};
  harness.run(config_of_sources(dir, "out", sources, "valid_fraction = 0.2\n"));
  const Dataset dataset = open_dataset(dir / "out");
  const auto& tokens = dataset.manifest.at("stages").back();
  EXPECT_EQ(tokens.at("parameters").at("weights"), (nlohmann::json{{"books", 0.25}, {"a_b-c", 3.0}, {"zero", 0.0}}));
  std::vector<std::string> prefixes;
  std::map<std::string, int64_t> documents;
  for (const auto& file : tokens.at("files")) {
    const std::string source = file.at("source"), prefix = file.at("prefix");
    prefixes.push_back(prefix);
    EXPECT_EQ(file.at("weight"), tokens.at("parameters").at("weights").at(source));
    documents[source] += file.at("documents").get<int64_t>() * (prefix.starts_with("valid") ? 2 : 1);
    std::istringstream lines(text_of(dir / "out/tokens" / prefix));
    for (std::string line; std::getline(lines, line);) EXPECT_TRUE(line.starts_with(source + " ")) << line;
  }
  EXPECT_EQ(prefixes, (std::vector<std::string>{"train-books-00000", "train-a_b-c-00000", "train-zero-00000",
                                                "valid-books-00000", "valid-a_b-c-00000"}));
  EXPECT_EQ(documents["a_b-c"], 40);  // two copies, but one of what is held out
  EXPECT_GT(documents["books"], 50);
  EXPECT_TRUE(audit_dataset(dir / "out").problems.empty());
}

TEST(Weights, GiveTheSameBytesForAnyNumberOfThreads) {
  const TempDir dir;
  for (const int threads : {1, 3}) {
    Harness harness;
    harness.threads = threads;
    harness.run(config_of_sources(dir, std::to_string(threads),
                                  {{"a", "weight = 1\n", 500}, {"b", "weight = 2\n", 700}, {"c", "weight = 2\n", 100}},
                                  "valid_fraction = 0.1\n"));
  }
  EXPECT_TRUE(bytes_of_folder(dir / "1") == bytes_of_folder(dir / "3"));
}

TEST(Weights, AreNotInADatasetWithoutThem) {
  const TempDir dir;
  Harness harness;
  harness.run(config_of_sources(dir, "out", {{"a", "", 5}, {"b", "", 5}}));
  const auto tokens = open_dataset(dir / "out").manifest.at("stages").back();
  EXPECT_FALSE(tokens.at("parameters").contains("weights"));
  EXPECT_EQ(tokens.at("files").size(), 1u);
  EXPECT_EQ(tokens.at("files")[0].at("prefix"), "train-00000");
  EXPECT_FALSE(tokens.at("files")[0].contains("weight"));
  EXPECT_FALSE(tokens.at("files")[0].contains("source"));
}

TEST(Weights, ThatCannotBeMeantAreRefusedByName) {
  const TempDir dir;
  const auto said = [&](const std::vector<Source>& sources) {
    return error_of([&] { config_of_sources(dir, "out", sources); });
  };
  EXPECT_EQ(said({{"a", "weight = 1\n", 1}, {"b", "", 1}}),
            "test.toml: source \"b\": has no source.weight, but another source has one: give one to each, or to none");
  EXPECT_EQ(said({{"a", "weight = 0\n", 1}, {"b", "weight = 0.0\n", 1}}),
            "test.toml: source.weight is 0 for all sources: nothing would be trained on");
  EXPECT_EQ(said({{"a", "weight = 1\n", 1}, {"b", "weight = \"x\"\n", 1}}).find("source \"b\""), std::string::npos);
  EXPECT_NE(said({{"a", "weight = 1\n", 1}, {"b", "weight = \"x\"\n", 1}}).find("source.weight = \"x\": expected"),
            std::string::npos);
  EXPECT_NE(said({{"a", "weight = -1\n", 1}}).find("source.weight = -1: expected a number from 0"), std::string::npos);
  EXPECT_NE(said({{"a", "weight = 1\ncopies = 0\n", 1}}).find("source.weight = 1 with source.copies = 0"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              config_of("[run]\ndir = \"d\"\n[[source]]\nname = \"a\"\nfiles = [\"f\"]\nweight = 1\n");
            }).find("source.weight has no effect without [tokens]"),
            std::string::npos);
}

TEST(Weights, OfASourceOfWhichNothingIsLeftAreRefusedByName) {
  const TempDir dir;
  const PipelineConfig config = config_of_sources(dir, "out", {{"a", "weight = 1\n", 9}, {"b", "weight = 2\n", 0}});
  spill(dir / "b.jsonl", "{\"text\": 3}\n");
  Harness harness;
  EXPECT_NE(error_of([&] {
              harness.run(config);
            }).find("source \"b\": has source.weight = 2, but no document of it is left for training"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(dir / "out/manifest.json"));
}

}  // namespace
}  // namespace weft
