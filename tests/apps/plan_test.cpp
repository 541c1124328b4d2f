// `weft plan` from the outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/models.h"
#include "apps/program.h"

namespace weft {
namespace {

using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

class Plan : public ::testing::Test {
 protected:
  Plan() {
    std::filesystem::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kTwoLayers);
    spill(dir_ / "r.toml", "[model]\npath = \"" + (dir_ / "model").string() +
                               "\"\ninit = \"random\"\n[data]\ntrain = [\"none.txt\"]\n[train]\nseq_length = 16\n"
                               "global_batch_size = 8\nmicro_batch_size = 2\n[run]\nbackend = \"ref\"\n");
  }
  Finished plan(std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", (dir_ / "r.toml").string()});
    return weft(more);
  }
  TempDir dir_;
};

TEST_F(Plan, TheScheduleOfOneStageStandsBesideTheMemory) {
  const Finished f = plan({"--schedule"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("parameters; "), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("schedule of stage 0: F0 B0 F1 B1 F2 B2 F3 B3\n"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("rank 0  F0B0--F1B1--F2B2--F3B3--\n"), std::string::npos) << f.out;
}

TEST_F(Plan, SaysWhatBlocksComputeAgainForABudget) {
  const auto with = [&](const std::string& recompute, const std::string& more) {
    const Finished f = plan({"parallel.pp=2", "parallel.recompute=" + recompute, "--json", more});
    EXPECT_EQ(f.status, 0) << f.err;
    return nlohmann::json::parse(f.out);
  };
  const auto bytes = [](const nlohmann::json& j) { return j["total_bytes"].get<int64_t>(); };
  const int64_t most = bytes(with("none", "parallel.memory_budget="));
  const std::string budget = "parallel.memory_budget=" + std::to_string(most - 1);
  const nlohmann::json chosen = with("budget", budget);
  EXPECT_LT(bytes(chosen), most);
  EXPECT_EQ(chosen["recompute"]["budget_bytes"], most - 1);
  EXPECT_EQ(chosen["recompute"]["blocks"].size(), 2u);
  ASSERT_EQ(chosen["recompute"]["stages"].size(), 2u);
  int64_t fullest = 0;
  for (const nlohmann::json& stage : chosen["recompute"]["stages"]) fullest = std::max(fullest, bytes(stage));
  EXPECT_EQ(fullest, bytes(chosen));
  EXPECT_SAYS(plan({"parallel.pp=2", "parallel.recompute=budget", budget}).out, " % arithmetic\nstage 1: ");
}

TEST_F(Plan, TheSchedulesOfStagesAreDrawn) {
  const std::string svg = (dir_ / "schedule.svg").string();
  const Finished f = plan({"parallel.pp=2", "parallel.pipeline_schedule=zb_h1", "--schedule", "--schedule-svg", svg});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.out.find("schedule of stage 0: F0 F1 D0 W0 F2 D1 W1 F3 D2 W2 D3 W3\nschedule of stage 1: F0 D0"), 0u)
      << f.out;
  EXPECT_NE(f.out.find("zb_h1, 2 stages, 4 micro-batches: 13 long, bubble 7.7 %"), std::string::npos) << f.out;
  EXPECT_EQ(slurp(svg).find("<svg "), 0u);
}

TEST_F(Plan, AScheduleSaysWhatItsActionsMove) {
  const std::vector<std::string> layout{"parallel.pp=2", "parallel.dp=2", "parallel.zero_stage=3", "--schedule"};
  const Finished f = plan(layout);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out,  // the largest rank, of the last stage
              "what the actions of rank 2 move:\n"
              "F of chunk 0, 2 times: receive, fetch blocks.1, prefetch head, release blocks.1\n"
              "B of chunk 0, 2 times: fetch head, prefetch blocks.1, reduce_gradients head, release head, ");
  EXPECT_SAYS(f.out, "fetch blocks.1, release blocks.1, send, reduce_gradients blocks.1\n");
  EXPECT_SAYS(plan({"--schedule"}).out, "the end, sums and update: nothing\n");
  EXPECT_SAYS(plan({"parallel.dp=2", "--schedule"}).out, "the end, sums and update: dp ");
  const Finished none = plan({"parallel.pp=3", "--schedule"});  // of two blocks
  EXPECT_EQ(none.status, 0) << none.err;
  EXPECT_SAYS(none.out, "schedule of stage 2: F0 B0");
  EXPECT_SAYS(none.out, "what the actions move is not known: ");
}

TEST_F(Plan, InJsonAScheduleIsATextForEachStage) {
  const auto json = nlohmann::json::parse(plan({"parallel.pp=2", "--schedule", "--json"}).out);
  EXPECT_EQ(json["schedule"][0], "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(json["schedule"].size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(plan({"--schedule", "--json"}).out)["schedule"].size(), 1u);
}

TEST_F(Plan, EveryKindOfRankOfALayoutIsShownTheLargestInFull) {
  const std::vector<std::string> layout{"parallel.pp=2", "parallel.dp=512", "train.global_batch_size=2048"};
  const Finished f = plan(layout);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "stage 0 (512 ranks, as rank 0)");
  EXPECT_SAYS(f.out, "stage 1 (512 ranks, as rank 512)");
  EXPECT_SAYS(f.out, "the largest: stage ");
  EXPECT_SAYS(f.out, "communication of a step");
  std::vector<std::string> in_json = layout;
  in_json.push_back("--json");
  const auto json = nlohmann::json::parse(plan(in_json).out);
  EXPECT_EQ(json["world"], 1024);
  ASSERT_EQ(json["classes"].size(), 2u);
  EXPECT_EQ(json["classes"][0]["total_bytes"], json["total_bytes"]);
  EXPECT_EQ(json["classes"][1]["num_ranks"], 512);
  EXPECT_GT(json["communication"].size(), 0u);
}

TEST_F(Plan, APictureThatWouldBeTooLargeIsRefused) {
  const Finished f = plan({"parallel.pp=1000000", "--schedule"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("too many to show"), std::string::npos) << f.err;
}

TEST_F(Plan, ALayoutHasAsManyBlocksAsTheModel) {
  EXPECT_EQ(plan({"parallel.pipeline_layout=[2]"}).status, 0);
  const Finished f = plan({"parallel.pipeline_layout=[3]"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("the counts add up to 3, and the model has 2 blocks"), std::string::npos) << f.err;
}

}  // namespace
}  // namespace weft
