// parallel.recompute = "budget": what each block computes again is the least that fits.
#include "weft/plan/recompute_budget.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "support.h"
#include "weft/base/byte_size.h"
#include "weft/data/teacher_logits.h"
#include "weft/plan/layout_plan.h"
#include "weft/plan/recompute_solve.h"

namespace weft {
namespace {

using Settings = std::vector<std::string>;

// Dense blocks, windows in every other one, experts in every other one, latents.
const char* const kDense =
    R"({"model_type": "llama", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 60, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": false})";
const char* const kWindows =
    R"({"model_type": "gemma2", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 60, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6, "sliding_window": 5})";
const char* const kExperts =
    R"({"model_type": "qwen2_moe", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 60, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "decoder_sparse_step": 2,
    "shared_expert_intermediate_size": 12})";

const char* const kLatents =
    R"({"model_type": "deepseek_v3", "vocab_size": 37, "hidden_size": 24, "intermediate_size": 30,
    "num_hidden_layers": 4, "num_attention_heads": 12, "q_lora_rank": 10, "kv_lora_rank": 8, "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 4, "v_head_dim": 5, "first_k_dense_replace": 5, "max_position_embeddings": 64,
    "num_nextn_predict_layers": 0, "tie_word_embeddings": false})";

class RecomputeBudget : public ::testing::Test {
 protected:
  Recipe recipe_of(const char* config, Settings settings) {
    testing::spill(dir_ / "config.json", config);
    const Settings first{
        "model.path=" + dir_.path().string(), "model.init=random",         "data.train=none", "train.seq_length=16",
        "train.micro_batch_size=1",           "train.global_batch_size=8", "run.backend=ref"};
    settings.insert(settings.begin(), first.begin(), first.end());
    return parse_recipe("", "budget", settings);
  }
  static Recipe with_budget(Recipe r, int64_t bytes) {
    r.parallel.recompute = RecomputeKind::budget;
    r.parallel.memory_budget = fmt::format("{}", bytes);
    return r;
  }
  static RecomputeRange range_of(const Recipe& r) { return recompute_range(r, prepare_run(r, 0), WorkspaceModel()); }
  static int64_t most_of(const LayoutPlan& plan) { return plan.classes[0].plan.total_bytes(); }
  static std::string refusal_of(const Recipe& r) {
    try {
      plan_layout(r, WorkspaceModel());
    } catch (const ConfigError& e) { return e.what(); }
    return "";
  }

  // The least arithmetic of any levels of all blocks that fit, and then the fewest blocks, by trying all.
  using Cost = std::pair<double, int64_t>;
  static std::optional<Cost> least_of_all(const Recipe& r, int64_t budget) {
    const RunPlan run = prepare_run(r, 0);
    std::optional<Cost> least;
    std::vector<BlockRecompute> levels(size_t(run.model.num_layers));
    for (unsigned choice = 0; choice < 1U << 2 * levels.size(); ++choice) {
      for (size_t l = 0; l < levels.size(); ++l) levels[l] = BlockRecompute(choice >> 2 * l & 3U);
      StepSpec step = run.step;
      step.model.recompute = levels;
      if (measure_memory(run.model, step, *run.optimizer, {}).total_bytes() > budget) continue;
      const Cost cost = cost_of(run, step);
      if (!least || cost < *least) least = cost;
    }
    return least;
  }
  static Cost cost_of(const RunPlan& run, const StepSpec& step) {
    const auto again = std::count_if(step.model.recompute.begin(), step.model.recompute.end(),
                                     [](BlockRecompute level) { return level != BlockRecompute::none; });
    return {measure_arithmetic(run.model, step, *run.optimizer, {}).hardware_flops, again};
  }

  const testing::TempDir dir_;
};

TEST_F(RecomputeBudget, TheLeastArithmeticThatFitsIsChosen) {
  using Case = std::tuple<const char*, const char*, int64_t>;
  for (const auto& [config, schedule, eighths] : {Case{kDense, "gpipe", 2}, Case{kExperts, "zb_h1", 4}}) {
    const Recipe recipe = recipe_of(config, {std::string("parallel.pipeline_schedule=") + schedule});
    const RecomputeRange range = range_of(recipe);
    const int64_t budget = range.least + (range.most - range.least) * eighths / 8;
    const RunPlan run = plan_run(with_budget(recipe, budget), WorkspaceModel());
    EXPECT_LE(run.memory.total_bytes(), budget);
    EXPECT_EQ(run.recompute.stages[0].bytes, run.memory.total_bytes());
    const auto least = least_of_all(recipe, budget);
    ASSERT_TRUE(least);
    EXPECT_EQ(cost_of(run, run.step), *least) << schedule << "\n" << to_string(run.recompute);
  }
}

// Two stages of which the first rank of dp runs alike, and the second one keeps three micro-batches and two.
TEST_F(RecomputeBudget, EachStageIsJudgedByAllItsShares) {
  const Recipe r = recipe_of(kDense, {"parallel.pp=4", "parallel.dp=2", "parallel.micro_batches=[1, 7]"});
  const RunPlan run = plan_run(with_budget(r, range_of(r).most), WorkspaceModel());
  ASSERT_EQ(run.recompute.stages.size(), 4u);
  EXPECT_GT(run.recompute.stages[1].bytes, run.recompute.stages[2].bytes);
}

// Of what blocks can do each keeps less than the one before and computes more, the first without a product.
TEST_F(RecomputeBudget, MoreComputedAgainKeepsLess) {
  for (const char* config : {kDense, kExperts, kLatents}) {
    const RunPlan run = prepare_run(recipe_of(config, {"parallel.pipeline_schedule=gpipe"}), 0);
    std::vector<double> flops;
    std::vector<int64_t> bytes;
    for (size_t again = 0; again < kBlockRecomputes; ++again) {
      StepSpec step = run.step;
      step.model.recompute.assign(4, BlockRecompute(again));
      flops.push_back(measure_arithmetic(run.model, step, *run.optimizer, {}).hardware_flops);
      bytes.push_back(measure_memory(run.model, step, *run.optimizer, {}).total_bytes());
    }
    EXPECT_EQ(flops[0], flops[1]);
    EXPECT_LT(flops[1], flops[2]);
    EXPECT_LT(flops[2], flops[3]);
    EXPECT_TRUE(std::is_sorted(bytes.rbegin(), bytes.rend()));
    EXPECT_EQ(std::unique(bytes.begin(), bytes.end()), bytes.end());
  }
}

TEST_F(RecomputeBudget, NothingIsComputedAgainWhereAllFits) {
  const Recipe recipe = recipe_of(kDense, {"parallel.pp=2"});
  const RecomputeRange range = range_of(recipe);
  const RunPlan all = plan_run(with_budget(recipe, range.most), WorkspaceModel());
  EXPECT_EQ(all.recompute.blocks, std::vector<BlockRecompute>(4, BlockRecompute::none));
  EXPECT_EQ(all.memory.arithmetic.hardware_flops, all.memory.arithmetic.model_flops);
  const RunPlan some = plan_run(with_budget(recipe, range.most - 1), WorkspaceModel());
  EXPECT_NE(some.recompute.blocks, all.recompute.blocks);
  EXPECT_EQ(most_of(plan_layout(recipe, WorkspaceModel())), range.most);
}

// The first stage of 1f1b keeps more micro-batches.
TEST_F(RecomputeBudget, EachStageChoosesForItself) {
  const Recipe recipe = recipe_of(kDense, {"parallel.pp=2", "train.global_batch_size=16"});
  const RecomputeRange range = range_of(recipe);
  const Recipe given = with_budget(recipe, (range.least + range.most) / 2);
  const RunPlan run = plan_run(given, WorkspaceModel());
  ASSERT_EQ(run.recompute.stages.size(), 2u);
  EXPECT_GT(run.recompute.stages[0].again, run.recompute.stages[1].again) << to_string(run.recompute);
  // All ranks of the run have come to the same, and the plan of the layout too.
  EXPECT_EQ(plan_run(given, WorkspaceModel(), 1).recompute, run.recompute);
  const LayoutPlan layout = plan_layout(given, WorkspaceModel());
  EXPECT_EQ(layout.run.recompute, run.recompute);
  EXPECT_EQ(most_of(layout), std::max(run.recompute.stages[0].bytes, run.recompute.stages[1].bytes));
  EXPECT_LE(most_of(layout), (range.least + range.most) / 2);
  for (const RankClass& c : layout.classes)
    EXPECT_EQ(c.plan.total_bytes(), run.recompute.stages[size_t(c.stages[0])].bytes);
}

// Inner stages that run alike choose once, for blocks of their own.
TEST_F(RecomputeBudget, StagesThatRunAlikeDoAlike) {
  std::string deep = kDense;
  deep.replace(deep.find("layers\": 4"), 10, "layers\": 8");
  const Recipe recipe = recipe_of(deep.c_str(), {"parallel.pp=4", "parallel.pipeline_schedule=gpipe"});
  const RecomputeRange range = range_of(recipe);
  const RunPlan run = plan_run(with_budget(recipe, range.least + (range.most - range.least) / 4), WorkspaceModel());
  const std::vector<BlockRecompute>& blocks = run.recompute.blocks;
  EXPECT_EQ(run.recompute.stages[1], run.recompute.stages[2]);
  EXPECT_NE(blocks[2], BlockRecompute::none);
  EXPECT_EQ(std::pair(blocks[2], blocks[3]), std::pair(blocks[4], blocks[5]));
}

// Uneven heads make one rank of tp fuller than the others; experts and whole matrices, ranks of dp.
TEST_F(RecomputeBudget, TheFullestRankOfAStageFits) {
  for (const Settings& layout :
       {Settings{"parallel.tp=2"}, Settings{"parallel.tp=2", "parallel.pp=2", "optimizer.name=muon", "parallel.dp=2"},
        Settings{"parallel.dp=4", "parallel.zero_stage=3", "optimizer.name=adamw8bit", "optimizer.min_8bit_size=200"},
        Settings{"parallel.cp=2", "parallel.dp=2", "parallel.pp=2", "parallel.pipeline_schedule=interleaved_1f1b"},
        Settings{"parallel.pp=2", "parallel.pipeline_schedule=zbv", "data.valid_fraction=0.1"}}) {
    const Recipe recipe = recipe_of(kWindows, layout);
    const RecomputeRange range = range_of(recipe);
    const int64_t budget = (range.least + range.most) / 2;
    const LayoutPlan plan = plan_layout(with_budget(recipe, budget), WorkspaceModel());
    EXPECT_LE(most_of(plan), budget) << fmt::format("{}", fmt::join(layout, " "));
    int64_t said = 0;
    for (const RecomputeChoice::Stage& s : plan.run.recompute.stages) said = std::max(said, s.bytes);
    EXPECT_EQ(said, most_of(plan)) << fmt::format("{}", fmt::join(layout, " "));
    EXPECT_GT(plan.run.memory.arithmetic.hardware_flops, 0);
  }
}

TEST_F(RecomputeBudget, WhatIsStoredOfATeacherIsWithinTheBudget) {
  const std::string file = dir_ / "top";
  TeacherLogitsWriter(file,
                      {.top = 30,
                       .seq_length = 16,
                       .num_samples = 1,
                       .vocab_size = 37,
                       .temperature = 2,
                       .teacher = "any",
                       .samples = "any"},
                      true)
      .commit();
  const Recipe recipe = recipe_of(
      kDense, {"parallel.pp=2", "train.objective=distill", "objective.teacher_logits=" + file, "parallel.tp=2"});
  const RecomputeRange range = range_of(recipe);
  EXPECT_EQ(range.most, most_of(plan_layout(recipe, WorkspaceModel())));
  const int64_t budget = (range.least + range.most) / 2;
  const LayoutPlan plan = plan_layout(with_budget(recipe, budget), WorkspaceModel());
  EXPECT_LE(most_of(plan), budget);
  ASSERT_TRUE(plan.run.step.stored);
  for (int rank = 0; rank < 4; ++rank) {  // whose own plan is the same
    const int64_t bytes = plan_run(with_budget(recipe, budget), WorkspaceModel(), rank).memory.total_bytes();
    EXPECT_EQ(bytes, plan.run.recompute.stages[size_t(rank / 2)].bytes) << rank;
  }
}

TEST_F(RecomputeBudget, WhatDoesNotFitIsRefusedWithTheLeastThereIs) {
  const Recipe recipe = recipe_of(kDense, {"parallel.dp=2", "train.micro_batch_size=4"});
  const int64_t least = range_of(recipe).least;
  const std::string said = refusal_of(with_budget(recipe, least - 1));
  EXPECT_SAYS(said, fmt::format("parallel.memory_budget = \"{}\" cannot run: a rank needs {} at least", least - 1,
                                byte_size_text(least)));
  EXPECT_SAYS(said, fmt::format("the nearest that works: parallel.memory_budget = \"{}\"", byte_size_text(least)));
  EXPECT_SAYS(said, "; train.micro_batch_size = 2 would make that ");
  EXPECT_SAYS(said, "; parallel.zero_stage = 1 would make that ");
  EXPECT_EQ(refusal_of(with_budget(recipe, byte_size_of(byte_size_text(least)).value())), "");
  EXPECT_SAYS(refusal_of(with_budget(recipe, 1000)),
              ", and neither a smaller train.micro_batch_size nor a higher parallel.zero_stage alone is enough");
}

TEST_F(RecomputeBudget, ARefusalNamesWhatWasTriedAndMayStillChange) {
  const std::string run = dir_ / "run";
  const auto said = [&](const std::string& batch, int64_t budget) {
    return refusal_of(with_budget(recipe_of(kDense, {"train.global_batch_size=9", batch, "run.dir=" + run}), budget));
  };
  const int64_t least = range_of(recipe_of(kDense, {"train.global_batch_size=9", "train.micro_batch_size=3"})).least;
  EXPECT_SAYS(said("train.micro_batch_size=9", least), "; train.micro_batch_size = 3 would make that ");
  EXPECT_SAYS(said("train.micro_batch_size=9", 1000), ", and a smaller train.micro_batch_size alone is not enough; ");
  EXPECT_SAYS(said("train.micro_batch_size=1", 1000), " at least, whatever is computed again; the nearest");
  std::filesystem::create_directory(run);
  testing::spill(run + "/recipe.toml", "");
  EXPECT_SAYS(said("train.micro_batch_size=9", least), " at least, whatever is computed again; the nearest");
}

// Its block is no block of the model's.
TEST_F(RecomputeBudget, TheBlockOfMultiTokenPredictionIsSaidToKeepAll) {
  std::string further = kLatents;
  further.replace(further.find("predict_layers\": 0"), 18, "predict_layers\": 1");
  const Settings trained{"train.mtp_loss_coef=0.1"};
  EXPECT_SAYS(refusal_of(with_budget(recipe_of(further.c_str(), trained), 1000)),
              "multi-token prediction always keeps");
  EXPECT_EQ(refusal_of(with_budget(recipe_of(further.c_str(), {}), 1000)).find("multi-token"), std::string::npos);
}

TEST_F(RecomputeBudget, KeysThatDoNotFitTogetherAreNamed) {
  const auto said = [&](const Settings& settings) {
    try {
      recipe_of(kDense, settings);
    } catch (const ConfigError& e) { return std::string(e.what()); }
    return std::string();
  };
  EXPECT_SAYS(said({"parallel.memory_budget=60GiB"}), "parallel.recompute = \"budget\"");
  EXPECT_SAYS(said({"parallel.recompute=budget"}), "parallel.memory_budget");
  EXPECT_SAYS(said({"parallel.recompute=budget", "parallel.memory_budget=sixty"}), "as \"60GiB\"");
  EXPECT_EQ(said({"parallel.recompute=budget", "parallel.memory_budget=60GiB"}), "");
}

TEST_F(RecomputeBudget, AStageIsToldInALine) {
  RecomputeChoice choice{.budget = int64_t{60} << 30, .blocks = {}, .stages = {{}, {}}};
  choice.stages[0] = {.counts = {3, 0, 5, 24}, .bytes = int64_t{59} << 30, .flops = 1000, .again = 110};
  choice.stages[1] = {.counts = {1, 0, 0, 0}, .bytes = int64_t{30} << 30, .flops = 1000, .again = 0};
  EXPECT_EQ(to_string(choice),
            "stage 0: 3 blocks keep all, 5 selective, 24 full; peak 59.00 of 60.00 GiB, +11.0 % arithmetic\n"
            "stage 1: 1 block keeps all; peak 30.00 of 60.00 GiB, +0.0 % arithmetic\n");
}

// Every way of few blocks of several kinds.
std::optional<std::pair<double, int64_t>> by_trying_all(const std::vector<RecomputeGroup>& groups,
                                                        const RecomputeLevels& allowed, int64_t room) {
  std::vector<size_t> blocks;
  for (size_t g = 0; g < groups.size(); ++g) blocks.insert(blocks.end(), size_t(groups[g].count), g);
  std::optional<std::pair<double, int64_t>> least;
  for (unsigned choice = 0; choice < 1U << 2 * blocks.size(); ++choice) {
    double flops = 0;
    int64_t bytes = 0, again = 0;
    bool may = true;
    for (size_t b = 0; b < blocks.size(); ++b) {
      const size_t level = choice >> 2 * b & 3U;
      may = may && allowed[level];
      flops += groups[blocks[b]].flops[level];
      bytes += groups[blocks[b]].bytes[level];
      again += level > 0;
    }
    if (!may || bytes > room) continue;
    if (!least || std::pair(flops, again) < *least) least = {flops, again};
  }
  return least;
}

TEST(RecomputeSolve, NoOtherWayCostsLess) {
  std::mt19937 gen(3);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<RecomputeGroup> groups(1 + gen() % 2);
    for (RecomputeGroup& g : groups) {
      g.count = 1 + gen() % 3;
      for (size_t level = 1; level < kBlockRecomputes; ++level) {
        g.bytes[level] = -int64_t(gen() % 20);
        g.flops[level] = double(gen() % 5);
      }
    }
    const RecomputeLevels allowed{gen() % 4 != 0, gen() % 2 == 0, gen() % 2 == 0, true};
    const int64_t room = -int64_t(gen() % 60);
    const auto least = by_trying_all(groups, allowed, room);
    const auto counts = least_recompute(groups, allowed, room);
    ASSERT_EQ(counts.has_value(), least.has_value()) << trial;
    if (!counts) continue;
    double flops = 0;
    int64_t bytes = 0, again = 0, blocks = 0;
    for (size_t g = 0; g < groups.size(); ++g)
      for (size_t level = 0; level < kBlockRecomputes; ++level) {
        const int64_t count = (*counts)[g][level];
        flops += double(count) * groups[g].flops[level];
        bytes += count * groups[g].bytes[level];
        again += level > 0 ? count : 0;
        blocks += count;
        EXPECT_TRUE(count == 0 || allowed[level]) << trial;
      }
    EXPECT_LE(bytes, room) << trial;
    EXPECT_EQ(blocks, groups[0].count + (groups.size() > 1 ? groups[1].count : 0)) << trial;
    EXPECT_EQ(std::pair(flops, again), *least) << trial;
  }
}

// What any counts of a group's blocks cost, by the bytes that they take: the least of those that take no more.
using Cost = std::pair<double, int64_t>;  // flops, blocks that compute anything again
std::map<int64_t, Cost> least_by_bytes(const RecomputeGroup& g) {
  std::map<int64_t, Cost> all;
  for (int64_t a = 0; a <= g.count; ++a)
    for (int64_t b = 0; a + b <= g.count; ++b)
      for (int64_t c = 0; a + b + c <= g.count; ++c) {
        const Cost cost(double(a) * g.flops[1] + double(b) * g.flops[2] + double(c) * g.flops[3], a + b + c);
        const auto [at, is_new] = all.try_emplace(a * g.bytes[1] + b * g.bytes[2] + c * g.bytes[3], cost);
        at->second = std::min(at->second, cost);
      }
  std::optional<Cost> least;
  for (auto& [bytes, cost] : all) least = cost = std::min(cost, least.value_or(cost));
  return all;
}

// Of 4^48 ways few are kept while they are built.
TEST(RecomputeSolve, ManyBlocksAreChosenForFromFewPartialChoices) {
  const RecomputeGroup dense{.count = 24, .bytes = {0, -7001, -9003, -30011}, .flops = {0, 0, 11e9, 97e9}};
  const RecomputeGroup experts{.count = 24, .bytes = {0, -5003, -8009, -50021}, .flops = {0, 0, 13e9, 71e9}};
  const int64_t room = -1000003;
  size_t kept = 0;
  const auto counts = least_recompute({dense, experts}, {true, true, true, true}, room, &kept);
  ASSERT_TRUE(counts);
  EXPECT_LT(kept, size_t{10000});
  Cost found;
  for (size_t level = 1; level < kBlockRecomputes; ++level) {
    found.first +=
        double((*counts)[0][level]) * dense.flops[level] + double((*counts)[1][level]) * experts.flops[level];
    found.second += (*counts)[0][level] + (*counts)[1][level];
  }
  std::optional<Cost> least;
  const std::map<int64_t, Cost> others = least_by_bytes(experts);
  for (const auto& [bytes, cost] : least_by_bytes(dense)) {
    const auto above = others.upper_bound(room - bytes);
    if (above == others.begin()) continue;
    const Cost& other = std::prev(above)->second;
    const Cost both(cost.first + other.first, cost.second + other.second);
    least = std::min(both, least.value_or(both));
  }
  ASSERT_TRUE(least);
  EXPECT_EQ(found, *least);
}

}  // namespace
}  // namespace weft
