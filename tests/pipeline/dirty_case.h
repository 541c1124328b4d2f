// A pipeline with all stages over dirty text.
#pragma once
#include <random>
#include <set>

#include "pipeline/pipeline_support.h"

namespace weft::testing {

// JSON lines with duplicates, short ones, personal data, repeated lines and broken rows; 1000 documents are three
// shards.
inline void write_dirty_text(const std::filesystem::path& file, int documents) {
  std::mt19937 random(11);
  std::string rows, text;
  for (int i = 0; i < documents; ++i) {
    if (i % 5 != 0 || text.empty()) {
      text = "A line that all documents have.\\n";
      for (int w = 0; w < 300; ++w) text += fmt::format("word{} ", random() % 3000);
    }
    if (i % 50 == 0) rows += "{\"text\": broken\n";
    if (i % 40 == 0) rows += "{\"text\": \"too short\"}\n";
    rows += fmt::format("{{\"text\": \"{}{}\", \"url\": \"http://x/{}\"}}\n", text,
                        i % 7 == 0 ? "mail me@example.org" : "", i % 700);
  }
  spill(file, rows);
}

inline constexpr const char* kDirtyStages = R"(
copies = 1.5
[length]
min_words = 20
[pii]
[dedup]
urls = true
lines = "keep_first"
bands = 8
rows = 4
[decontaminate]
files = ["EVAL"]
ngram = 4
[tokens]
tokenizer = "byte"
valid_fraction = 0.1
shard_mtokens = 1
)";

struct DirtyCase {
  explicit DirtyCase(int documents = 300) {
    write_dirty_text(dir / "in.jsonl", documents);
    spill(dir / "eval.jsonl", "{\"q\": \"word1 word2 word3 word4\", \"a\": [\"short\"]}\n");
  }
  std::string toml(const std::string& out) const {
    std::string stages = kDirtyStages;
    stages.replace(stages.find("EVAL"), 4, (dir / "eval.jsonl").string());
    return toml_over(dir / out, "[\"" + (dir / "in.jsonl").string() + "\"]", stages);
  }
  PipelineConfig config(const std::string& out) const { return config_of(toml(out)); }
  // All files but those that tell of the run's own folder and times.
  std::map<std::string, std::string> result(const std::string& out) const {
    auto files = bytes_of_folder(dir / out);
    files.erase("read/stage.json");
    return files;
  }
  TempDir dir;
};

// The names of the files that are not in both, or not the same.
inline std::set<std::string> differing(const std::map<std::string, std::string>& a,
                                       const std::map<std::string, std::string>& b) {
  std::set<std::string> names;
  for (const auto& [x, y] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const auto& [name, bytes] : *x)
      if (const auto other = y->find(name); other == y->end() || other->second != bytes) names.insert(name);
  return names;
}

}  // namespace weft::testing
