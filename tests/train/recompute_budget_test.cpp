// What blocks compute again for a memory budget changes no bit of a run.
#include <gtest/gtest.h>

#include <array>

#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/comm/local_group.h"
#include "weft/plan/recompute_budget.h"
#include "weft/train/rank_plan.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::string>;

class BudgetedRun : public ::testing::Test {
 protected:
  Recipe recipe_of(const char* model, const fs::path& run, Settings settings) const {
    const Settings first{"train.train_iters=2",      "optimizer.lr_warmup_iters=1", "run.threads=1",
                         "train.micro_batch_size=1", "model.hidden_dropout=0.1",    "model.attention_dropout=0.1"};
    settings.insert(settings.begin(), first.begin(), first.end());
    return testing::golden_recipe(fs::path(testing::kSourceDir) / "tests/golden" / model, run, settings);
  }
  // The recipe with a budget: so many eighths of the way from the least that it can need to all.
  static Recipe with_budget(Recipe r, int64_t eighths) {
    const RecomputeRange range = recompute_range(r, prepare_run(r, 0), *machine_for(r).workspace_model);
    r.parallel.recompute = RecomputeKind::budget;
    r.parallel.memory_budget = fmt::format("{}", range.least + (range.most - range.least) * eighths / 8);
    return r;
  }
  static std::string bits_of(const fs::path& run, int step = 2) {
    std::string bits;
    const fs::path folder = run / fmt::format("checkpoints/step-{}", step);
    for (const char* file : {"model.safetensors", "adapter_model.safetensors", "weft/optimizer.safetensors"})
      if (fs::exists(folder / file)) bits += testing::slurp(folder / file);
    return bits;
  }
  void expect_same_bits(const char* model, const Settings& layout) {
    const fs::path plain = dir_ / fmt::format("run{}", runs_++), budgeted = dir_ / fmt::format("run{}", runs_++);
    const Recipe keeps = recipe_of(model, plain, layout);
    const Recipe chosen = with_budget(recipe_of(model, budgeted, layout), 3);
    const std::vector<BlockRecompute> again = plan_run(chosen, *machine_for(chosen).workspace_model).recompute.blocks;
    EXPECT_NE(again, std::vector<BlockRecompute>(again.size(), BlockRecompute::none));
    testing::train(keeps, machine_for(keeps));
    testing::train(chosen, machine_for(chosen));
    ASSERT_FALSE(bits_of(plain).empty());
    EXPECT_TRUE(bits_of(plain) == bits_of(budgeted)) << model << " " << fmt::format("{}", fmt::join(layout, " "));
    const auto a = read_metrics(plain / "metrics.jsonl").steps, b = read_metrics(budgeted / "metrics.jsonl").steps;
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].loss, b[i].loss);
      EXPECT_EQ(a[i].grad_norm, b[i].grad_norm);
    }
  }
  testing::TempDir dir_;
  int runs_ = 0;
};

TEST_F(BudgetedRun, HasTheBitsOfARunThatKeepsAll) {
  expect_same_bits("llama-gqa", {"parallel.pp=2", "parallel.tp=2", "train.precision=bf16"});
  expect_same_bits("mistral-window", {"parallel.dp=2", "parallel.zero_stage=3"});
}

using BudgetedRunSlow = BudgetedRun;

TEST_F(BudgetedRunSlow, HasTheBitsOfARunThatKeepsAllOnMoreLayouts) {
  for (const char* model : {"llama-gqa", "gpt2", "qwen3-qknorm"})
    for (const char* precision : {"train.precision=f32", "train.precision=bf16"})
      for (const Settings& layout :
           std::vector<Settings>{{"parallel.tp=2", "parallel.sequence_parallel=false"},
                                 {"parallel.pp=2", "parallel.pipeline_schedule=zb_h1"},
                                 {"parallel.pp=1", "parallel.pipeline_schedule=interleaved_1f1b",
                                  "parallel.virtual_pipeline_parallel_size=2"},
                                 {"parallel.cp=2", "parallel.dp=2"},
                                 {"parallel.pp=2", "parallel.dp=2", "parallel.zero_stage=3"},
                                 {"adapter.kind=lora", "parallel.pp=2"}}) {
        Settings all = layout;
        all.push_back(precision);
        if (layout[0] == "adapter.kind=lora") all.push_back("model.init=pretrained");
        expect_same_bits(model, all);
      }
  expect_same_bits("mixtral", {"parallel.dp=2", "parallel.ep=2"});
  expect_same_bits("deepseek-v3-bias", {"parallel.dp=2", "parallel.ep=2", "parallel.tp=2", "train.precision=bf16"});
}

// The budget of a run may change; nothing that is trained depends on it.
TEST_F(BudgetedRun, GoesOnWithAnotherBudgetToTheSameBits) {
  const fs::path whole = dir_ / "whole", parts = dir_ / "parts";
  const Settings layout{"parallel.pp=2", "checkpoint.save_interval=1"};
  const Recipe keeps = recipe_of("llama-gqa", whole, layout);
  testing::train(keeps, machine_for(keeps));
  Recipe first = with_budget(recipe_of("llama-gqa", parts, layout), 2);
  testing::train(first, machine_for(first));
  fs::remove_all(parts / "checkpoints/step-2");
  const Recipe then = with_budget(recipe_of("llama-gqa", parts, layout), 6);
  ASSERT_NE(then.parallel.memory_budget, first.parallel.memory_budget);
  testing::train(then, machine_for(then));
  ASSERT_FALSE(bits_of(whole).empty());
  EXPECT_TRUE(bits_of(parts) == bits_of(whole));
}

// As on a host whose kernels need more.
struct LargeTemporaries : WorkspaceModel {
  int64_t bytes(const Matmul&) const override { return int64_t{1} << 30; }
};

TEST_F(BudgetedRun, WhatDoesNotFitOnOneRankIsSaidByAll) {
  const Recipe recipe = with_budget(recipe_of("llama-gqa", dir_ / "run", {"parallel.dp=2"}), 8);
  std::array<std::string, 2> said;
  run_local(2, [&](Communicator& world) {
    const std::unique_ptr<WorkspaceModel> here =
        world.rank() == 1 ? std::make_unique<LargeTemporaries>() : std::make_unique<WorkspaceModel>();
    try {
      plan_of_rank(recipe, *here, world);
    } catch (const ConfigError& e) { said[size_t(world.rank())] = e.what(); }
  });
  EXPECT_SAYS(said[0], "cannot run: a rank needs 1.0");
  EXPECT_EQ(said[0], said[1]);
}

}  // namespace
}  // namespace weft
