// weft verify, as a process.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "train/faults.h"
#include "weft/apps/backends.h"
#include "weft/apps/verify_report.h"

namespace weft {
namespace {

using testing::Finished;
using testing::TempDir;
using testing::weft;

// A golden model with its tokens, and a run folder within `dir`.
std::vector<std::string> arguments(const std::string& command, const TempDir& dir,
                                   const std::vector<std::string>& more) {
  const std::string folder = std::string(testing::kSourceDir) + "/tests/golden/llama-gqa";
  testing::spill(dir / "r.toml", "[model]\npath = \"" + folder + "\"\ninit = \"random\"\n[data]\ntrain = [\"" + folder +
                                     "/tokens.bin\"]\n[train]\nseq_length = 8\nglobal_batch_size = 4\n"
                                     "micro_batch_size = 1\n[run]\nthreads = 1\ndir = \"" +
                                     (dir / "run").string() + "\"\n");
  std::vector<std::string> all{command, (dir / "r.toml").string()};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(VerifyCommand, WhatDoesNotFitIsRefusedBeforeItBegins) {
  const TempDir dir;
  const Finished f = weft(arguments(
      "verify", dir,
      {"--whole", "train.seq_length=16384", "train.global_batch_size=65536", "train.micro_batch_size=65536"}));
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "no memory for the plan: its rank takes ");
}

TEST(VerifyCommand, PrintsATableAndAVerdictAndLeavesNothing) {
  const TempDir dir;
  const Finished f = weft(arguments("verify", dir, {"parallel.dp=2", "parallel.tp=2", "--steps", "1"}));
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* part : {"dp 2, tp 2 with sequence parallelism", "fp64 on ref", "f32 on cpu", "gradient norm",
                           "equal: this layout gives the run of one rank"})
    EXPECT_SAYS(f.out, part);
  EXPECT_SAYS(f.err, "fp64 on the reference backend, one rank");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);  // the recipe
}

TEST(VerifyCommand, PrintsJson) {
  const TempDir dir;
  const Finished f = weft(arguments("verify", dir, {"parallel.pp=2", "train.precision=bf16", "--json", "--steps=2"}));
  EXPECT_EQ(f.status, 0) << f.err;
  const auto json = nlohmann::json::parse(f.out);
  EXPECT_EQ(json["equal"], true);
  EXPECT_EQ(json["steps"], 2);
  ASSERT_EQ(json["passes"].size(), 2u);
  EXPECT_EQ(json["passes"][1]["precision"], "bf16");
  EXPECT_LE(json["passes"][0]["distances"]["gradients"]["layout"].get<double>(), 1e-11);
  EXPECT_GT(json["passes"][1]["distances"]["gradients"]["one_rank"].get<double>(), 1e-5);
}

// What it says at last, without its name.
std::string message_of(const Finished& f) {
  const size_t at = f.err.rfind("error: ");
  return at == std::string::npos ? f.err : f.err.substr(at);
}

TEST(VerifyCommand, RefusesWhatTrainRefusesWithTheSameMessage) {
  const TempDir dir;
  for (const auto& wrong : std::vector<std::vector<std::string>>{{"parallel.tp=16"},
                                                                 {"parallel.ep=2"},
                                                                 {"parallel.pp=9"},
                                                                 {"parallel.dp=3"},
                                                                 {"model.path=not-there"},
                                                                 {"data.train=not-there.bin"}}) {
    const Finished train = weft(arguments("train", dir, wrong)), verify = weft(arguments("verify", dir, wrong));
    EXPECT_NE(train.status, 0) << wrong[0];
    EXPECT_EQ(verify.status, train.status) << wrong[0];
    EXPECT_EQ(message_of(verify), message_of(train)) << wrong[0];
  }
}

TEST(VerifyCommand, RefusesRanksThatAreProcessesWithWhatSaysTheSame) {
  const TempDir dir;
  const Finished f = weft(arguments("verify", dir, {"parallel.dp=2", "run.ranks=mpi"}));
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "run.ranks = \"mpi\" cannot run");
  EXPECT_SAYS(f.err, "run.ranks = \"local\", which gives the same bits");
}

// A fault that is no option of the program: within this process.
TEST(VerifyCommand, HasStatusOneAndNamesTensorAxisAndOperationWhereALayoutDiffers) {
  const TempDir dir;
  const Recipe recipe = parse_recipe_file(arguments("verify", dir, {})[1], {"parallel.dp=2", "parallel.tp=2"});
  const VerifyReport report = verify({.recipe = recipe,
                                      .machine_for = [](const Recipe& r) { return machine_for(r); },
                                      .steps = 1,
                                      .run = testing::ranks_with({testing::tp_of, "gradient_sums"})});
  std::ostringstream text, json;
  EXPECT_EQ(print_report(report, false, text), 1);
  EXPECT_EQ(print_report(report, true, json), 1);
  for (const char* part : {"the gradient of final_norm.weight", "DIFFERS", "without dp", "without tp",
                           "the smallest layout that differs: tp 2 with sequence parallelism",
                           "made by the sum of this gradient over ranks"})
    EXPECT_SAYS(text.str(), part);
  const auto parsed = nlohmann::json::parse(json.str());
  EXPECT_EQ(parsed["equal"], false);
  EXPECT_EQ(parsed["first_difference"]["tensor"], "final_norm.weight");
}

}  // namespace
}  // namespace weft
