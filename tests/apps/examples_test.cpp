// The recipes of examples/, as somebody runs them from the project's folder.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "weft/pipeline/stage.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Those that need nothing but what is in the project's folder. (tests/pipeline tries sft.toml with its dataset.)
constexpr const char* kRecipes[] = {"adamw8bit", "distill", "dora", "dpo",   "dpo-texts", "grpo",
                                    "kto",       "lora",    "ppo",  "qlora", "reward"};

// Data of examples/sft.toml.
constexpr const char* kConversations[] = {"conversations", "instructions", "turns", "tools"};

class RecipesOfExamples : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"examples", "tests"})
      fs::create_directory_symlink(fs::path(testing::kSourceDir) / folder, dir_ / folder);
    fs::current_path(dir_.path());
  }
  void TearDown() override { fs::current_path(before_); }
  static void run(const std::string& command, const std::string& example, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{command, "examples/" + example + ".toml", "run.threads=1"};
    all.insert(all.end(), more.begin(), more.end());
    const testing::Finished f = testing::weft(all);
    EXPECT_EQ(f.status, 0) << example << ": " << f.err;
  }
  testing::TempDir dir_;
  const fs::path before_ = fs::current_path();
};
using RecipesOfExamplesSlow = RecipesOfExamples;

TEST_F(RecipesOfExamples, OfConversationsMakeDatasetsOfAllRows) {
  for (const char* data : kConversations) {
    const testing::Finished made = testing::weft({"data", "run", fmt::format("examples/data/{}.toml", data)});
    ASSERT_EQ(made.status, 0) << data << ": " << made.err;
    const auto counts = open_stage(fs::path("runs") / data / "tokens").manifest["counts"];
    EXPECT_TRUE(counts["dropped"].empty()) << data << ": " << counts;
    EXPECT_GE(counts["documents_out"], 4) << data;
    run("plan", "sft", {fmt::format("data.train=runs/{}", data)});
  }
}

TEST_F(RecipesOfExamples, ArePlanned) {
  for (const char* example : kRecipes) run("plan", example);
}

TEST_F(RecipesOfExamplesSlow, Train) {
  for (const char* example : kRecipes) {
    run("train", example, {"train.train_iters=4"});
    EXPECT_TRUE(fs::exists(fs::path("runs") / example / "metrics.jsonl")) << example;
  }
}

TEST_F(RecipesOfExamplesSlow, OfConversationsTrain) {
  for (const char* data : kConversations) {
    ASSERT_EQ(testing::weft({"data", "run", fmt::format("examples/data/{}.toml", data)}).status, 0) << data;
    run("train", "sft",
        {fmt::format("data.train=runs/{}", data), fmt::format("run.dir=runs/sft-{}", data), "train.train_iters=5",
         "train.seq_length=128"});
  }
}

TEST_F(RecipesOfExamplesSlow, OfATeacherThatWasAskedOnceTrains) {
  fs::create_directory("runs");
  run("teacher-logits", "distill", {"--top-k", "64", "--out", "runs/teacher.logits"});
  run("train", "distill-stored");
}

TEST_F(RecipesOfExamplesSlow, OfAnAdapterIsMerged) {
  run("train", "lora");
  const auto merged = testing::weft({"merge", "runs/lora", "--out", "merged"});
  EXPECT_EQ(merged.status, 0) << merged.err;
}

}  // namespace
}  // namespace weft
