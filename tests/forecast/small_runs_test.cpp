// What searches share of one model: the same answers, sooner.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "support.h"
#include "weft/forecast/best_layouts.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/layout_bounds.h"
#include "weft/forecast/loss_plan.h"

namespace weft {
namespace {

HfConfig model_of_searches() {
  HfConfig config;
  config.has_folder = false;
  config.spec = {.vocab_size = 1024,
                 .width = 1024,
                 .num_layers = 2,
                 .num_heads = 4,
                 .num_kv_heads = 4,
                 .head_dim = 256,
                 .ffn_width = 4096,
                 .max_positions = 4096};
  config.spec.rope = RopeSpec{};
  return config;
}

Recipe recipe_of_batch(int64_t batch) {
  Recipe r;
  r.model.init = InitChoice::random;
  r.data.train = {"book.txt"};
  r.train.seq_length = 2048;
  r.train.global_batch_size = batch;
  r.train.micro_batch_size = 1;
  r.train.precision = PrecisionChoice::bf16;
  return r;
}

ClusterSpec cluster_of_searches() {
  ClusterSpec c = preset_of("H100-SXM");
  c.devices_per_node = c.domain = 2;
  return c;
}

TEST(SmallRuns, BoundsAreThoseThatAreFoundAlone) {
  const HfConfig config = model_of_searches();
  const ClusterSpec cluster = cluster_of_searches();
  const ProgramProfile profile = Profiles::built_in().of("weft", false);
  SmallRuns shared;
  std::array<double, 4> of_first = {};  // by ZeRO stage: a sequence, in the smallest batch
  bool differs = false;
  for (const int64_t batch : {2, 4, 64}) {  // one micro-batch a rank, two, and many
    const Recipe recipe = recipe_of_batch(batch);
    SmallRuns alone;
    LayoutBounds beside(recipe, config, cluster, profile, shared), own(recipe, config, cluster, profile, alone);
    for (const int64_t zero : {0, 1, 2, 3}) {
      const LayoutChoice c{.dp = 2, .zero_stage = zero, .sequence_parallel = true};
      EXPECT_EQ(beside.by_stage(c), own.by_stage(c)) << batch << " " << zero;
      EXPECT_EQ(beside.by_schedule(c), own.by_schedule(c)) << batch << " " << zero;
      EXPECT_EQ(beside.memory(c), own.memory(c)) << batch << " " << zero;
      const double each = own.by_schedule(c) / double(batch);
      double& first = of_first[size_t(zero)];
      if (first == 0) first = each;
      differs = differs || std::abs(each / first - 1) > 1e-6;
    }
  }
  EXPECT_TRUE(differs);  // so that runs with other numbers of micro-batches must be kept apart
}

TEST(SmallRuns, ALargerBatchOfTheSameDevicesAsksForFewMore) {
  const HfConfig config = model_of_searches();
  const ClusterSpec cluster = cluster_of_searches();
  const SearchSpec spec{.device_counts = {2}, .most = 1};
  SmallRuns shared;
  const auto search = [&](int64_t batch) {
    return best_layouts(recipe_of_batch(batch), config, cluster, Profiles::built_in(), spec, shared);
  };
  ASSERT_FALSE(search(128).best.empty());
  const size_t first = shared.size();
  EXPECT_GT(first, 0u);
  const SearchResult second = search(512);
  EXPECT_LT(double(shared.size()), 1.25 * double(first));
  const SearchResult alone = best_layouts(recipe_of_batch(512), config, cluster, Profiles::built_in(), spec);
  ASSERT_FALSE(second.best.empty());
  EXPECT_EQ(second.best[0].layout, alone.best[0].layout);
  EXPECT_EQ(second.best[0].step.step_s, alone.best[0].step.step_s);
  EXPECT_EQ(second.counts.planned, alone.counts.planned);
  EXPECT_EQ(second.counts.beaten, alone.counts.beaten);
}

// Each batch searched by itself, as long as larger ones get there sooner.
TEST(SmallRuns, APlanOfLossesFindsTheBatchThatSearchesOfEachDo) {
  const HfConfig config = model_of_searches();
  const ClusterSpec cluster = cluster_of_searches();
  LossLaw law = published_law();
  law.best.e = 0.5;  // that small models can follow
  for (const double target : {2.5, 6.0}) {
    const LossPlan plan = plan_losses(recipe_of_batch(1), {{"small", config}}, cluster, Profiles::built_in(), law,
                                      {.target = target, .device_counts = {1, 2}});
    ASSERT_EQ(plan.rows.size(), 2u);
    for (const LossRow& row : plan.rows) {
      double best_s = 0;
      int64_t best_batch = 0;
      for (const int64_t batch : {1, 4, 16, 64}) {
        const SearchResult found = best_layouts(recipe_of_batch(batch), config, cluster, Profiles::built_in(),
                                                {.device_counts = {row.devices}, .most = 1});
        if (found.best.empty()) continue;
        const double tokens = 2048.0 * double(batch);
        const double run_s = tokens_in_batches(law.best.tokens_to(target, row.parameters), tokens, target) / tokens *
                             found.best[0].step.step_s;
        if (best_batch > 0 && run_s >= best_s) break;
        best_s = run_s;
        best_batch = batch;
      }
      EXPECT_EQ(row.batch, best_batch) << target;
      EXPECT_NEAR(row.run_s, best_s, 1e-9 * best_s);
    }
  }
}

}  // namespace
}  // namespace weft
