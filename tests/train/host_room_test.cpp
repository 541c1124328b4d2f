// A plan that does not fit into the host's memory is refused with numbers, and with what would fit.
#include "weft/train/room.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "apps/models.h"
#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::TempDir;

constexpr int64_t kMiB = 1 << 20;

class Case {
 public:
  explicit Case(int64_t dp = 1) {
    fs::create_directories(dir_ / "model");
    testing::spill(dir_ / "model/config.json",
                   R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 8,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 1024, "max_position_embeddings": 1024,
  "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
    recipe.model = {.path = (dir_ / "model").string(), .init = InitChoice::random};
    recipe.train.seq_length = 512;
    recipe.train.global_batch_size = 16;
    recipe.train.micro_batch_size = 8;
    recipe.parallel.dp = dp;
    recipe.run.dir = (dir_ / "run").string();
  }
  LayoutPlan plan() const { return plan_layout(recipe, WorkspaceModel()); }
  HostNeed need(bool are_processes = false) const {
    const LayoutPlan p = plan();
    return need_on_host(p, all_on_this_host(p, are_processes));
  }
  // What is said where so much is left.
  std::string refusal(int64_t left, bool are_processes = false) const {
    const LayoutPlan p = plan();
    return error_of([&] {
      require_host_room(recipe, p, WorkspaceModel(), all_on_this_host(p, are_processes),
                        {.all = MemoryLimit{left, "so much is left"}, .each = {}});
    });
  }
  fs::path operator/(const std::string& name) const { return dir_ / name; }

  Recipe recipe;

 private:
  TempDir dir_;
};

TEST(HostRoom, APlanThatFitsIsAccepted) {
  const Case c;
  EXPECT_EQ(c.refusal(c.need().total()), "");
  EXPECT_NE(c.refusal(c.need().total() - 1), "");
}

TEST(HostRoom, ARefusalHasTheNumbersAndTheNearestChangeThatReallyFits) {
  Case c;
  const int64_t left = c.need().total() - 20 * kMiB;
  const std::string said = c.refusal(left);
  for (const std::string& part : {gib_text(c.need().total()), gib_text(c.need().planned),
                                  std::string("so much is left"), std::string("`weft plan`")})
    EXPECT_NE(said.find(part), std::string::npos) << part << " in: " << said;
  const std::string begin = "the nearest that fits: train.micro_batch_size=4 (";
  ASSERT_NE(said.find(begin), std::string::npos) << said;
  c.recipe.train.micro_batch_size = 4;
  EXPECT_LE(c.need().total(), left);
  EXPECT_NE(said.find(begin + gib_text(c.need().total())), std::string::npos) << said;
}

TEST(HostRoom, SeveralSettingsTogetherAreTriedAndWhereNoneFitsTheLeastIsSaid) {
  Case c(2);
  const std::string none = c.refusal(1 * kMiB, true);
  EXPECT_NE(none.find("no recomputation, micro-batch size or ZeRO stage makes it fit: the least is "),
            std::string::npos)
      << none;
  Recipe least = c.recipe;
  least.parallel.recompute = RecomputeKind::full;
  least.train.micro_batch_size = 1;
  least.parallel.zero_stage = 3;
  Case small(2);
  small.recipe = least;
  const std::string said = c.refusal(small.need(true).total(), true);
  EXPECT_NE(said.find("the nearest that fits: parallel.recompute=full train.micro_batch_size="), std::string::npos)
      << said;
}

// Of a budget that is too large here; all that blocks can compute again needs no budget.
TEST(HostRoom, ABudgetThatIsNotThereIsNamedWithWhatFits) {
  Case c;
  const int64_t all = c.need().total();
  c.recipe.parallel.recompute = RecomputeKind::full;
  const int64_t least = c.need().total();
  c.recipe.parallel.recompute = RecomputeKind::budget;
  c.recipe.parallel.memory_budget = fmt::format("{}", all);
  EXPECT_SAYS(c.refusal((least + all) / 2),
              "the nearest that fits: parallel.recompute=full parallel.memory_budget= (" + gib_text(least));
  c.recipe.data.train = {"text.txt"};
  EXPECT_NO_THROW(parse_recipe(to_toml(c.recipe), "room", {"parallel.recompute=full", "parallel.memory_budget="}));
}

TEST(HostRoom, WeightsOfAFrozenModelAreDividedWhereThatIsEnough) {
  Case c(2), divided(2);
  c.recipe.train.objective = divided.recipe.train.objective = ObjectiveKind::dpo;
  divided.recipe.parallel.frozen_shard_size = 2;
  const HostNeed need = divided.need();
  EXPECT_SAYS(c.refusal(need.total()),
              "the nearest that fits: parallel.frozen_shard_size=2 (" + gib_text(need.total()));
}

TEST(HostRoom, OnceARunHasBegunOnlyWhatMayChangeIsProposed) {
  const Case c;
  fs::create_directories(c / "run");
  testing::spill(c / "run/recipe.toml", "");
  EXPECT_EQ(c.refusal(1 * kMiB).find("micro_batch_size="), std::string::npos);
}

TEST(HostRoom, AllRanksOfTheHostCountAndProcessesTakeMoreThanThreads) {
  const Case one(1), two(2);
  EXPECT_EQ(two.need().planned, 2 * two.plan().classes[0].plan.total_bytes());
  EXPECT_GT(two.need(true).beside, 2 * one.need().beside);
  const LayoutPlan plan = two.plan();
  EXPECT_EQ(need_on_host(plan, {.ranks = {1}, .are_processes = true}).planned, two.need().planned / 2);
}

// Beside a teacher with stages of its own they are unlike, and so they are where whole matrices fall to ranks in turns.
TEST(HostRoom, EachRankCountsWithThePlanThatIsItsOwn) {
  const std::string golden = (fs::path(testing::kSourceDir) / "tests/golden").string();
  const std::vector<std::string> layouts[] = {
      {"model.path=" + golden + "/distill-forward", "objective.teacher=" + golden + "/distill-forward/teacher",
       "train.objective=distill", "objective.top_k=5", "parallel.teacher_pp=2"},
      {"model.path=" + golden + "/llama-gqa", "optimizer.name=muon"}};
  for (std::vector<std::string> settings : layouts) {
    settings.insert(settings.end(),
                    {"model.init=random", "data.train=none", "train.seq_length=8", "train.micro_batch_size=1",
                     "train.global_batch_size=6", "run.backend=ref", "parallel.dp=6", "parallel.zero_stage=1"});
    const Recipe recipe = parse_recipe("", "room", settings);
    const LayoutPlan plan = plan_layout(recipe, WorkspaceModel());
    int64_t all = 0, largest = 0, smallest = INT64_MAX;
    for (int rank = 0; rank < 6; ++rank) {
      const MemoryPlan memory = plan_run(recipe, WorkspaceModel(), rank).memory;
      const int64_t own = memory.total_bytes(), on_host = memory.persistent.records + memory.teacher_rows;
      EXPECT_EQ(planned_bytes(plan, rank), own) << settings[1] << ", rank " << rank;
      EXPECT_EQ(planned_bytes(plan, rank, false), own - on_host) << settings[1] << ", rank " << rank;
      all += own;
      largest = std::max(largest, own);
      smallest = std::min(smallest, own);
    }
    EXPECT_LT(smallest, largest) << settings[1] << ": the ranks are to be unlike";
    EXPECT_EQ(need_on_host(plan, all_on_this_host(plan, true)).planned, all);
    EXPECT_EQ(need_on_host(plan, all_on_this_host(plan, true)).largest, largest);
  }
}

TEST(HostRoom, AProcessMayNotBeLargerThanItsOwnLimit) {
  const Case c(2);
  const LayoutPlan plan = c.plan();
  const HostMemory memory{.all = {},
                          .each = MemoryLimit{c.need().planned / 2 + 300 * kMiB, "a process may map so much"}};
  const auto refusal = [&](bool are_processes) {
    return error_of(
        [&] { require_host_room(c.recipe, plan, WorkspaceModel(), all_on_this_host(plan, are_processes), memory); });
  };
  EXPECT_EQ(refusal(true), "");
  EXPECT_NE(refusal(false).find("but a process may map so much"), std::string::npos);
}

}  // namespace
}  // namespace weft
