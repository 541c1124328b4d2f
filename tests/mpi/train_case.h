// A small run on two ranks, and what it must come to.
#pragma once
#include <gtest/gtest.h>

#include "mpi/mpi_job.h"

namespace weft::testing {

inline const std::filesystem::path kCase = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";

// A recipe of six steps on two data-parallel ranks.
inline std::vector<std::string> train_words(const TempDir& dir, const std::string& run, const std::string& ranks) {
  spill(dir / "r.toml",
        "[model]\npath = \"" + kCase.string() + "\"\n[data]\ntrain = [\"" + (kCase / "tokens.bin").string() + "\"]\n");
  return {"train",
          (dir / "r.toml").string(),
          "run.dir=" + (dir / run).string(),
          "run.ranks=" + ranks,
          "run.threads=1",
          "parallel.dp=2",
          "train.seq_length=16",
          "train.global_batch_size=8",
          "train.micro_batch_size=1",
          "train.train_iters=6",
          "optimizer.lr_warmup_iters=1"};
}
inline std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
inline std::vector<std::string> program(const std::vector<std::string>& words) {
  return with({testing::kProgram}, words);
}

inline void expect_same_run(const std::filesystem::path& a, const std::filesystem::path& b, int step = 6) {
  const std::string checkpoint = fmt::format("checkpoints/step-{}", step);
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"}) {
    const std::string one = slurp(a / checkpoint / file);
    EXPECT_FALSE(one.empty()) << a << file;
    EXPECT_TRUE(one == slurp(b / checkpoint / file)) << file;
  }
}

}  // namespace weft::testing
