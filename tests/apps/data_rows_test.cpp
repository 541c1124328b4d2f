// Files of rows that are no lines, as inputs of every command that takes texts.
#include <gtest/gtest.h>

#include "apps/program.h"
#include "places.h"
#include "support.h"

namespace weft {
namespace {

using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

// The same rows in several kinds of files: "one", a text with three scripts, "three", an empty one and twenty "one".
class DataRows : public ::testing::Test {
 protected:
  DataRows() {
    const auto samples = std::filesystem::path(testing::kSourceDir) / "tests/pipeline/parquet";
    std::filesystem::copy_file(samples / "rows.jsonl", dir_ / "t.jsonl");
    std::filesystem::copy_file(samples / "duckdb-v1-snappy.parquet", dir_ / "t.parquet");
    std::string list = slurp(dir_ / "t.jsonl");
    for (size_t at = 0; (at = list.find("}\n{", at)) != std::string::npos;) list.replace(at, 3, "},\n {");
    spill(dir_ / "t.json", "[\n " + list + "]");
    EXPECT_EQ(
        std::system(
            ("bzip2 -k '" + at("t.json") + "' && mv '" + at("t.json.bz2") + "' '" + at("z.json.bz2") + "'").c_str()),
        0);
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  TempDir dir_;
};
const char* const kKinds[] = {"t.jsonl", "t.json", "t.parquet", "z.json.bz2"};

TEST_F(DataRows, AreEncodedByTheirKey) {
  for (const char* kind : kKinds) {
    const Finished f =
        weft({"data", "encode", "--tokenizer", "byte", "--file", at(kind), "--text-key", "text", "--count"});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(f.out.substr(0, 7), "3\n17\n5\n") << kind;
    EXPECT_EQ(std::count(f.out.begin(), f.out.end(), '\n'), 23) << kind;
  }
  EXPECT_SAYS(weft({"data", "encode", "--tokenizer", "byte", "--file", at("t.parquet"), "--text-key", "txt"}).err,
              "t.parquet: row 1: ");
  EXPECT_SAYS(weft({"data", "encode", "--tokenizer", "byte", "--text-key", "txt"}).err, "has no effect without --file");
}

TEST_F(DataRows, TeachATokenizerTheSame) {
  std::string first;
  for (const char* kind : kKinds) {
    const Finished f =
        weft({"data", "train-tokenizer", at(kind), "--vocab-size", "259", "--out", at("out.json"), "--again"});
    ASSERT_EQ(f.status, 0) << f.err;
    const std::string learned = slurp(dir_ / "out.json");
    if (first.empty()) first = learned;
    EXPECT_EQ(learned, first) << kind;
  }
}

TEST_F(DataRows, DecontaminateAPipelineTheSame) {
  std::string first;
  for (const char* kind : kKinds) {
    spill(dir_ / "p.toml", "[run]\ndir = \"" + at(std::string("out.") + kind) +
                               "\"\n[[source]]\nname = \"a\"\nfiles = [\"" + at("t.jsonl") +
                               "\"]\n[decontaminate]\nngram = 1\nmin_words = 1\nfiles = [\"" + at(kind) + "\"]\n");
    const Finished f = weft({"data", "run", at("p.toml")});
    EXPECT_EQ(f.status, 1) << f.err;  // each document is one of the evaluation's
    const std::string found = "by evaluation file " + at(kind) + " ";
    const size_t where = f.out.find(found);
    ASSERT_NE(where, std::string::npos) << f.out << f.err;
    const std::string count = f.out.substr(where + found.size(), f.out.find('\n', where) - where - found.size());
    if (first.empty()) first = count;
    EXPECT_EQ(count, first) << kind;
    EXPECT_GT(std::stoi(count), 1);
  }
}

TEST_F(DataRows, AreTrainedOnAsTheyAre) {
  std::filesystem::create_directories(dir_ / "model");
  spill(dir_ / "model/config.json",
        R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "vocab_size": 257, "max_position_embeddings": 32, "rms_norm_eps": 1e-5})");
  std::string first;
  for (const char* kind : kKinds) {
    spill(dir_ / "r.toml", "[model]\npath = \"" + at("model") + "\"\ninit = \"random\"\n[data]\ntrain = [\"" +
                               at(kind) +
                               "\"]\ntokenizer = \"byte\"\n[train]\nseq_length = 8\nglobal_batch_size = 2\n"
                               "micro_batch_size = 1\ntrain_iters = 1\n[run]\nbackend = \"ref\"\ndir = \"" +
                               at(std::string("run.") + kind) + "\"\n");
    const Finished f = weft({"train", at("r.toml")});
    ASSERT_EQ(f.status, 0) << kind << ": " << f.err;
  }
  const std::string byte = std::filesystem::path(at("t.parquet")).filename().string() + ".";
  std::string ids;
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".bin") continue;
    // JSON lines keep the empty text as a document of its own.
    if (name.starts_with("t.jsonl")) continue;
    if (ids.empty()) ids = slurp(entry.path());
    EXPECT_EQ(slurp(entry.path()), ids) << name;
  }
  EXPECT_FALSE(ids.empty());
}

}  // namespace
}  // namespace weft
