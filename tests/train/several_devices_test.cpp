// Ranks that are threads with a device each: the bits of ranks on cores, whatever the devices reach of each other.
#include "train/machine_of_several.h"

#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/comm/local_group.h"
#include "weft/train/room.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class SeveralDevices : public ::testing::Test {
 protected:
  Recipe recipe_of(const fs::path& run, const std::vector<std::string>& settings) const {
    const fs::path golden = fs::path(testing::kSourceDir) / "tests/golden/llama-gqa";
    std::vector<std::string> all{fmt::format("train.train_iters={}", steps_),
                                 fmt::format("train.eval_interval={}", steps_),
                                 "optimizer.lr_warmup_iters=1",
                                 "run.threads=1",
                                 "train.eval_iters=1",
                                 "train.micro_batch_size=2",
                                 "data.valid=" + (golden / "tokens.bin").string()};
    all.insert(all.end(), settings.begin(), settings.end());
    return testing::golden_recipe(golden, run, all);
  }
  void expect_same(const std::vector<std::string>& layout, int devices, testing::Reach reach) {
    const std::string what = fmt::format("{} on {} devices", fmt::join(layout, " "), devices);
    const fs::path here = dir_ / fmt::format("run{}", runs_++), there = dir_ / fmt::format("run{}", runs_++);
    testing::train(recipe_of(here, layout), machine_for(recipe_of(here, layout)));
    const auto several = std::make_shared<testing::SeveralDevices>(devices, reach);
    testing::train(recipe_of(there, layout), testing::on_several(machine_for(recipe_of(there, layout)), several));
    const std::string last = fmt::format("checkpoints/step-{}", steps_);
    for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"}) {
      const std::string bytes = testing::slurp(here / last / file);
      ASSERT_FALSE(bytes.empty()) << what;
      EXPECT_TRUE(testing::slurp(there / last / file) == bytes) << what << ": " << file;
    }
    const Metrics a = read_metrics(here / "metrics.jsonl"), b = read_metrics(there / "metrics.jsonl");
    ASSERT_EQ(b.evals.size(), 1u) << what;
    EXPECT_EQ(a.evals.at(0).loss, b.evals.at(0).loss) << what;
  }
  testing::TempDir dir_;
  int64_t steps_ = 1;
  int runs_ = 0;
};

TEST_F(SeveralDevices, LayoutsHaveTheBitsOfThoseOnCores) {
  expect_same({"parallel.dp=2", "parallel.zero_stage=3"}, 2, testing::all_others);
  expect_same({"parallel.tp=2"}, 2, testing::none);
}

using SeveralDevicesSlow = SeveralDevices;

TEST_F(SeveralDevicesSlow, MoreRanksThanDevicesShareThem) {
  expect_same({"parallel.dp=4", "parallel.zero_stage=1"}, 3, testing::the_next);
  expect_same({"parallel.pp=2", "parallel.pipeline_schedule=zb_h1"}, 2, testing::the_next);
}

TEST_F(SeveralDevicesSlow, LayoutsHaveTheBitsOfThoseOnCores) {
  steps_ = 3;
  for (const testing::Reach reach : {testing::all_others, testing::none, testing::the_next}) {
    expect_same({"parallel.dp=4", "parallel.zero_stage=3", "parallel.zero_shard_size=2"}, 4, reach);
    expect_same({"parallel.tp=2", "parallel.pp=2", "train.precision=bf16"}, 4, reach);
    expect_same({"parallel.dp=2", "parallel.pp=2", "parallel.pipeline_schedule=zbv", "parallel.zero_stage=2"}, 3,
                reach);
    expect_same({"parallel.dp=2", "parallel.tp=2", "train.micro_batch_size=1", "optimizer.name=muon"}, 2, reach);
    expect_same({"parallel.dp=2", "parallel.tp=2", "train.micro_batch_size=1", "optimizer.name=adamw8bit",
                 "optimizer.min_8bit_size=600", "parallel.zero_stage=1"},
                2, reach);
    expect_same({"parallel.dp=4", "train.numerics=invariant"}, 2, reach);
  }
}

// What the tests above stand on.
TEST_F(SeveralDevices, AnOpOnAnothersMemoryEndsTheTest) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto several = std::make_shared<testing::SeveralDevices>(2, testing::all_others);
  const Machine machine = testing::on_several(machine_for(Recipe()), several);
  const auto zero = [&](int rank, int whose) {
    Arena arena("x", 4096, machine.of_rank(whose).memory), workspace("workspace", 64, machine.of_rank(rank).memory);
    const auto backend = machine.of_rank(rank).make_backend(workspace);
    backend->run(Zero{arena.alloc(DType::f32, {16})});
    backend->wait_all();
  };
  zero(1, 1);
  EXPECT_DEATH(zero(0, 1), "");
}

TEST_F(SeveralDevices, EveryRankHasItsOwn) {
  const auto several = std::make_shared<testing::SeveralDevices>(2, testing::all_others);
  const Machine machine = testing::on_several(machine_for(Recipe()), several);
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(machine.of_rank(rank).memory, several->memory(rank % 2));
  const Machine one = machine_for(Recipe());
  EXPECT_EQ(&one.of_rank(3), &one);
}

// The message about room, empty where there is enough: two devices, of which the second has so many bytes free.
std::string refusal_of(const Recipe& recipe, int64_t free_on_second) {
  const auto several = std::make_shared<testing::SeveralDevices>(2, testing::all_others);
  Machine machine = testing::on_several(machine_for(recipe), several);
  for (size_t d = 0; d < 2; ++d) {
    machine.devices[d].device = fmt::format("GPU {}", d);
    machine.devices[d].free_bytes = [d, free_on_second] { return d == 0 ? int64_t{1} << 40 : free_on_second; };
  }
  return testing::error_of<ConfigError>([&] { require_room(machine, plan_layout(recipe, *machine.workspace_model)); });
}

TEST_F(SeveralDevices, WhatTheRanksOfADeviceTakeTogetherMustFit) {
  const Recipe two = recipe_of(dir_ / "two", {"parallel.dp=2"}), four = recipe_of(dir_ / "four", {"parallel.dp=4"});
  const auto bytes_of = [](const Recipe& recipe) {
    const RunPlan plan = plan_run(recipe, *machine_for(recipe).workspace_model);
    return plan.memory.total_bytes() - plan.memory.persistent.records;
  };
  EXPECT_EQ(refusal_of(two, bytes_of(two)), "");
  EXPECT_EQ(refusal_of(two, bytes_of(two) - 1).substr(0, 32), "no memory for the plan of rank 1");
  EXPECT_EQ(refusal_of(four, 2 * bytes_of(four)), "");
  const std::string refusal = refusal_of(four, 2 * bytes_of(four) - 1);
  for (const char* part : {"no memory for the plans of ranks 1, 3: ", ", GPU 1 has ", "these ranks share it"})
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
  require_room(machine_for(four), plan_layout(four, *machine_for(four).workspace_model));  // of the host: no bound
}

TEST_F(SeveralDevices, MoreGpusThanRanksNeedNoRoomOnTheRest) {
  EXPECT_EQ(refusal_of(recipe_of(dir_ / "one", {}), 0), "");
}

}  // namespace
}  // namespace weft
