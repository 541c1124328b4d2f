// The program without any optional part (docs/gpu.md, "Without packages"): what still works, and that it refuses the
// rest by name before the work.
#include <gtest/gtest.h>

#include <cstring>

#include "apps/models.h"
#include "apps/program.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::run;
using testing::slurp;
using testing::spill;
using testing::TempDir;

Finished bare(std::vector<std::string> args) {
  return run({.args = std::move(args), .program = testing::kBareProgram});
}

// Expects a refusal that names the missing library.
void expect_refused(const Finished& f, const std::string& what, const std::string& library) {
  EXPECT_EQ(f.status, 2) << what << ": " << f.err;
  EXPECT_SAYS(f.err, what);
  EXPECT_SAYS(f.err, "is not in this build of weft: it was built without " + library + "; ");
  EXPECT_SAYS(f.err, "install it (scripts/install) and build anew");
}

class Bare : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  // A pipeline that reads `file`.
  Finished pipeline(const std::string& file, const std::string& sections = "",
                    const std::string& compression = "none") {
    spill(at("p.toml"), "[run]\ndir = \"" + at("out") + "\"\ncompression = \"" + compression +
                            "\"\n[[source]]\nname = \"a\"\nfiles = [\"" + at(file) + "\"]\n" + sections +
                            "[tokens]\ntokenizer = \"byte\"\n");
    return bare({"data", "run", at("p.toml")});
  }
  Finished encode(const std::string& tokenizer_json) {
    spill(at("tokenizer.json"), tokenizer_json);
    spill(at("text"), "a b");
    return bare({"data", "encode", "--tokenizer", at("tokenizer.json"), "--file", at("text")});
  }
  TempDir dir_;
};

// BPE over characters; `steps` are more members of its JSON.
std::string tokenizer_json(const std::string& steps) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "▁": 2, "▁a": 3, "▁b": 4},
    "merges": ["▁ a", "▁ b"]})" +
         (steps.empty() ? "" : ", " + steps) + "}";
}

TEST_F(Bare, HasNoLivePage) {
  fs::create_directory(dir_ / "r");
  spill(at("r/metrics.jsonl"), "");
  spill(at("r/run.lock"), "");
  expect_refused(bare({"watch", at("r")}), "the live page", "cpp-httplib");
}

TEST_F(Bare, TrainsBytesOnTheReference) {
  fs::create_directories(dir_ / "model");
  spill(at("model/config.json"), testing::kOneLayer);
  spill(at("t.txt"), std::string(500, 'a'));
  spill(at("r.toml"),
        "[model]\npath = \"" + at("model") + "\"\ninit = \"random\"\n[data]\ntrain = [\"" + at("t.txt") +
            "\"]\n[train]\nseq_length = 8\nglobal_batch_size = 2\nmicro_batch_size = 1\ntrain_iters = 2\n" +
            "[run]\ndir = \"" + at("run") + "\"\n");
  const Finished f = bare({"train", at("r.toml"), "run.backend=ref"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(slurp(dir_ / "run/metrics.jsonl"), "\"step\":2");

  expect_refused(bare({"train", at("r.toml"), "run.dir=" + at("other")}), "run.backend = \"cpu\"",
                 "oneDNN and Highway");
  EXPECT_FALSE(fs::exists(dir_ / "other")) << "refused before the work";
}

TEST_F(Bare, TellsWhatIsInIt) { EXPECT_SAYS(bare({"--version"}).out, "ref\nnot in this build: "); }

TEST_F(Bare, TheIndexOfRunsIsNamed) {
  expect_refused(bare({"runs", "list", at("."), "--index", at("runs.db")}), "the index of runs", "SQLite");
}

TEST_F(Bare, PipelinesReadPlainFilesAndNameTheRest) {
  spill(at("t.txt"), "One text.");
  const Finished f = pipeline("t.txt", "[length]\nmin_words = 1\n[dedup]\nnear = false\n");
  EXPECT_EQ(f.status, 0) << f.err;

  const std::pair<const char*, const char*> files[] = {{"t.jsonl.gz", "zlib"},  {"t.jsonl.xz", "liblzma"},
                                                       {"t.jsonl.zst", "zstd"}, {"t.jsonl.bz2", "bzip2"},
                                                       {"t.jsonl.lz4", "lz4"},  {"t.html", "libxml2"}};
  for (const auto& [file, library] : files) {
    spill(at(file), "<html>");
    expect_refused(pipeline(file), file, library);
  }
  const std::pair<const char*, const char*> columns[] = {{"duckdb-v1-snappy.parquet", "snappy"},
                                                         {"arrow-v1-gzip.parquet", "zlib"},
                                                         {"duckdb-v2-zstd.parquet", "zstd"},
                                                         {"arrow-v2-lz4-groups.parquet", "lz4"}};
  for (const auto& [file, library] : columns) {
    fs::copy_file(fs::path(testing::kSourceDir) / "tests/pipeline/parquet" / file, dir_ / file);
    expect_refused(pipeline(file), file, library);
  }
  const std::pair<const char*, const char*> sections[] = {{"[language]\n", "CLD2"},
                                                          {"[symbols]\n", "utf8proc"},
                                                          {"[gopher_quality]\n", "utf8proc"},
                                                          {"[dedup]\n", "utf8proc"}};
  for (const auto& [section, library] : sections) {
    const std::string name(section, std::strchr(section, ']'));
    expect_refused(pipeline("t.txt", section), name.substr(1), library);
  }
  expect_refused(pipeline("t.txt", "", "zst"), "run.compression", "zstd");
}

// By the first bytes, where the name does not tell.
TEST_F(Bare, CompressedFilesOfAnyNameAreNamed) {
  spill(at("t.txt"), "\x1f\x8b, which gzip begins with");
  expect_refused(pipeline("t.txt"), "t.txt", "zlib");
}

TEST_F(Bare, TokenizersThatNeedNothingWork) {
  const Finished f = encode(tokenizer_json(
      R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})"));
  EXPECT_EQ(f.out, "2\n[3,4]\n") << f.err;
  EXPECT_EQ(encode(tokenizer_json(R"("pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": " "})")).out,
            "2\n[0,1]\n");
}

TEST_F(Bare, TokenizersThatNeedSomethingAreNamed) {
  expect_refused(encode(tokenizer_json(R"("normalizer": {"type": "NFC"})")), "normalizer: NFC", "utf8proc");
  expect_refused(encode(tokenizer_json(R"("pre_tokenizer": {"type": "ByteLevel"})")), "splits text", "utf8proc");
  expect_refused(encode(tokenizer_json(R"("pre_tokenizer": {"type": "Whitespace"})")), "pre_tokenizer", "PCRE2");
  spill(at("x.model"), "\n\x05model");
  expect_refused(bare({"data", "encode", "--tokenizer", at("x.model"), "--file", at("text")}), "x.model",
                 "SentencePiece");
}

}  // namespace
}  // namespace weft
