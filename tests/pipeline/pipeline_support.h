// What the tests of the pipeline share.
#pragma once
#include <gtest/gtest.h>

#include <map>

#include "support.h"
#include "weft/base/json.h"
#include "weft/pipeline/dataset.h"
#include "weft/pipeline/document.h"

namespace weft::testing {

// A run of stages with nobody watching.
struct Harness {
  std::atomic<bool> stop{false};
  StageProgress progress;
  int threads = 2;
  bool again = false, helps = false;
  double leader_wait_s = 0;

  StageContext context() {
    return {.threads = threads,
            .samples = 5,
            .shard_suffix = ".jsonl",
            .again = again,
            .helps = helps,
            .leader_wait_s = leader_wait_s,
            .stop = stop,
            .progress = progress};
  }
  void run(const PipelineConfig& config, const std::string& stage = "") {
    run_pipeline(config, stage, context(), [](const StageResult&) {});
  }
};

inline PipelineConfig config_of(const std::string& toml) { return parse_pipeline(toml, "test.toml"); }

// A pipeline over `files` (TOML's list) into `dir`, with more sections.
inline std::string toml_over(const std::filesystem::path& dir, const std::string& files, const std::string& more) {
  return "[run]\ndir = \"" + dir.string() +
         "\"\nshard_mb = 1\ncompression = \"none\"\n[[source]]\nname = \"s\"\nfiles = " + files + "\n" + more;
}
inline PipelineConfig config_over(const std::filesystem::path& dir, const std::string& files, const std::string& more) {
  return config_of(toml_over(dir, files, more));
}

// A pipeline over three small rows, two of them equal, into `dir`/out.
inline std::string small_toml(const TempDir& dir, const std::string& stages) {
  spill(dir / "in.jsonl", "{\"text\": \"one two three\"}\n{\"text\": \"one\"}\n{\"text\": \"one two three\"}\n");
  return toml_over(dir / "out", "[\"" + (dir / "in.jsonl").string() + "\"]", stages);
}

// The documents of a stage, in order.
inline std::vector<Document> documents_of(const std::filesystem::path& stage) {
  std::vector<Document> all;
  const StageResult result = open_stage(stage);
  for (const std::string& shard : result.shards)
    for_each_in_shard(stage / shard, [&](Document&& d) { all.push_back(std::move(d)); });
  return all;
}

inline std::vector<std::string> texts_of(const std::filesystem::path& stage) {
  std::vector<std::string> texts;
  for (const Document& d : documents_of(stage)) texts.push_back(d.text);
  return texts;
}

// The read stage over one file of this name and content.
struct ReadFile {
  ReadFile(const std::string& name, const std::string& content, const std::string& more = "") {
    spill(dir / name, content);
    harness.run(config_over(dir / "out", "[\"" + (dir / name).string() + "\"]", more));
    result = open_stage(dir / "out" / "read");
  }
  std::vector<std::string> texts() const { return texts_of(dir / "out" / "read"); }
  int64_t broken() const { return result.manifest.at("broken"); }
  nlohmann::json first_broken() const {
    const std::string line = slurp(dir / "out" / "read" / "broken-00000.jsonl");
    return parse_json(line.substr(0, line.find('\n')), "broken");
  }
  std::string why() const { return first_broken().at("why"); }
  // Why the file could not be read to its end; empty: it could.
  std::string failure() const { return result.manifest.at("inputs").at(0).value("failure", ""); }

  TempDir dir;
  Harness harness;
  StageResult result;
};

// The fixtures of CS336's data assignment, unpacked.
inline void unpack_cs336(const TempDir& dir) {
  const std::string archive = (shared_dir() / "data/conformance/cs336_a4_fixtures.tar.gz").string();
  ASSERT_EQ(std::system(("tar -xzf '" + archive + "' -C '" + dir.path().string() + "'").c_str()), 0);
}

}  // namespace weft::testing
