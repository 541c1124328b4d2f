// Devices of several kinds: the pace of the slowest, and cuts of the blocks beside all that there can be.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/layout_search.h"
#include "weft/forecast/unequal_forecast.h"

namespace weft {
namespace {

using testing::error_of;

// Wide, so that arithmetic takes the time.
HfConfig wide_model(int64_t layers) {
  HfConfig config;
  config.has_folder = false;
  config.spec = {.vocab_size = 8192,
                 .width = 4096,
                 .num_layers = layers,
                 .num_heads = 32,
                 .num_kv_heads = 32,
                 .head_dim = 128,
                 .ffn_width = 16384,
                 .max_positions = 2048};
  config.spec.rope = RopeSpec{};
  return config;
}

Recipe unequal_recipe(int64_t dp, int64_t pp) {
  Recipe r;
  r.train.seq_length = 2048;
  r.train.global_batch_size = 8 * dp;
  r.train.micro_batch_size = 1;
  r.train.precision = PrecisionChoice::bf16;
  r.parallel.dp = dp;
  r.parallel.pp = pp;
  return r;
}

ClusterSpec nodes_of(int nodes, int devices_per_node, double rate = 1) {
  ClusterSpec c = preset_of("H100-SXM");
  c.devices_per_node = c.domain = devices_per_node;
  c.num_devices = nodes * devices_per_node;
  c.device.memory_bytes = 1e12;
  if (rate == 1) return c;
  c.device.name = "another";
  for (double* d : {&c.device.products.bits16, &c.device.peak.bits16, &c.device.memory_bytes_per_s}) *d *= rate;
  return c;
}

struct Planned {
  Recipe recipe;
  HfConfig config;
  UnequalCluster cluster;
  UnequalPlanner planner{recipe, config, cluster, Profiles::built_in()};
};

bool all_have_room(const UnequalForecast& f) {
  return std::all_of(f.stages.begin(), f.stages.end(), [](const UnequalStage& s) { return s.has_room(); });
}

// The least step of all cuts over two stages that have room; 0: none has.
double best_of_two_stages(Planned& p) {
  double best = 0;
  for (int64_t first = 1; first < p.config.spec.num_layers; ++first) {
    const UnequalForecast f = p.planner.forecast({first, p.config.spec.num_layers - first});
    if (all_have_room(f) && (best == 0 || f.step.step_s < best)) best = f.step.step_s;
  }
  return best;
}

TEST(Unequal, DevicesThatAreAlikeAreForecastAsThoseOfOneKind) {
  for (const int64_t pp : {1, 2}) {
    Planned p{
        .recipe = unequal_recipe(4 / pp, pp), .config = wide_model(4), .cluster = {{nodes_of(1, 2), nodes_of(1, 2)}}};
    const UnequalForecast f = p.planner.forecast();
    const RunForecast one = forecast_run(p.recipe, p.config, nodes_of(2, 2), Profiles::built_in());
    EXPECT_NEAR(f.step.step_s, one.step.step_s, 1e-9 * one.step.step_s);
    EXPECT_NEAR(f.mfu(), one.mfu(), 1e-9);
    EXPECT_NEAR(f.tokens_per_s(), one.tokens_per_s(), 1e-6 * one.tokens_per_s());
    EXPECT_NEAR(f.price_per_step(), one.price_per_step(), 1e-9 * one.price_per_step());
    EXPECT_NEAR(f.joules_per_step(), one.joules_per_step(), 1e-6 * one.joules_per_step());
    int64_t fullest = 0, blocks = 0;
    for (const UnequalStage& s : f.stages) fullest = std::max(fullest, s.memory_bytes), blocks += s.blocks;
    EXPECT_EQ(fullest, one.memory_bytes());
    EXPECT_EQ(blocks, 4);
  }
}

TEST(Unequal, NewerDevicesReachThePartOfTheirRatesThatAProgramDoesThere) {
  const Profiles old_kernels =
      Profiles::parse("[[program]]\nname = \"old\"\nnewer = 0.7\nnewer_attention = 0.5\n", "p");
  const Recipe recipe = unequal_recipe(2, 2);
  const HfConfig config = wide_model(2);
  const UnequalCluster cluster{{nodes_of(1, 2), nodes_of(1, 2)}};  // of generation 1
  const double step_s = UnequalPlanner(recipe, config, cluster, old_kernels).forecast().step.step_s;
  EXPECT_NEAR(step_s, forecast_run(recipe, config, nodes_of(2, 2), old_kernels).step.step_s, 1e-9 * step_s);
}

TEST(Unequal, StagesThatAreAlikeAreTimedOnTheirOwnDevices) {
  Planned p{
      .recipe = unequal_recipe(1, 4), .config = wide_model(4), .cluster = {{nodes_of(2, 1), nodes_of(2, 1, 0.5)}}};
  const UnequalForecast f = p.planner.forecast();
  ASSERT_EQ(f.stages.size(), 4u);
  EXPECT_GT(f.stages[2].busy_s, 1.5 * f.stages[1].busy_s);
  EXPECT_LT(f.stages[2].memory_bytes, f.stages[1].memory_bytes);  // a micro-batch less is alive
}

TEST(Unequal, ASlowerStageGetsFewerBlocks) {
  for (const bool slow_first : {true, false}) {
    const ClusterSpec quick = nodes_of(1, 2), slow = nodes_of(1, 2, 1.0 / 3);
    Planned p{.recipe = unequal_recipe(2, 2),
              .config = wide_model(8),
              .cluster = {slow_first ? std::vector{slow, quick} : std::vector{quick, slow}}};
    const UnequalForecast now = p.planner.forecast();
    const auto better = p.planner.better_cut(now);
    ASSERT_TRUE(better);
    const size_t at = slow_first ? 0 : 1;
    EXPECT_LT(better->stages[at].blocks, now.stages[at].blocks);
    EXPECT_GT(better->stages[1 - at].blocks, better->stages[at].blocks);
    EXPECT_EQ(std::accumulate(better->blocks.begin(), better->blocks.end(), int64_t{0}), 8);
    EXPECT_LT(better->step.step_s, 0.85 * now.step.step_s);
    EXPECT_LE(better->step.step_s, 1.01 * best_of_two_stages(p));
    EXPECT_FALSE(p.planner.better_cut(*better));  // it is the best
    Recipe written = p.recipe;                    // what it says is what a recipe with it is forecast to take
    written.parallel.pipeline_layout = better->blocks;
    UnequalPlanner again(written, p.config, p.cluster, Profiles::built_in());
    EXPECT_EQ(again.forecast().step.step_s, better->step.step_s);
    EXPECT_SAYS(to_string(now, better, 0),
                "a better cut of the blocks: parallel.pipeline_layout = " + to_string(better->blocks));
    EXPECT_EQ(to_json(now, better, 0)["better_cut"]["pipeline_layout"], better->blocks);
  }
}

TEST(Unequal, AnOddNumberOfStagesIsCutAsWell) {
  Planned p{
      .recipe = unequal_recipe(1, 3), .config = wide_model(9), .cluster = {{nodes_of(2, 1), nodes_of(1, 1, 0.4)}}};
  const UnequalForecast now = p.planner.forecast();
  const auto better = p.planner.better_cut(now);
  ASSERT_TRUE(better);
  double best = now.step.step_s;
  for (int64_t a = 2; a <= 5; ++a)
    for (int64_t b = 2; b <= 5 && a + b < 9; ++b)
      best = std::min(best, p.planner.forecast({a, b, 9 - a - b}).step.step_s);
  EXPECT_LT(better->step.step_s, 0.95 * now.step.step_s);
  EXPECT_LE(better->step.step_s, 1.02 * best);
}

TEST(Unequal, ChunksOfASlowRankAreSmallerEach) {
  Planned p{
      .recipe = unequal_recipe(2, 2), .config = wide_model(12), .cluster = {{nodes_of(1, 2), nodes_of(1, 2, 0.5)}}};
  p.recipe.parallel.pipeline_schedule = ScheduleKind::interleaved_1f1b;
  p.recipe.parallel.virtual_pipeline_parallel_size = 2;
  const UnequalForecast now = p.planner.forecast();
  ASSERT_EQ(now.blocks.size(), 4u);
  const auto better = p.planner.better_cut(now);
  ASSERT_TRUE(better);
  EXPECT_EQ(std::accumulate(better->blocks.begin(), better->blocks.end(), int64_t{0}), 12);
  EXPECT_GE(*std::min_element(better->blocks.begin(), better->blocks.end()), 1);
  EXPECT_LT(better->stages[1].blocks, better->stages[0].blocks);
  EXPECT_EQ(better->stages[1].blocks, better->blocks[1] + better->blocks[3]);
  EXPECT_LT(better->step.step_s, now.step.step_s);
}

TEST(Unequal, ACutLeavesRoomOnTheSmallestDevices) {
  Planned p{
      .recipe = unequal_recipe(2, 2), .config = wide_model(8), .cluster = {{nodes_of(1, 2, 0.5), nodes_of(1, 2)}}};
  const double needed = double(p.planner.forecast().stages[1].memory_bytes);
  p.cluster.kinds[1].device.memory_bytes = 0.9 * needed;  // quick, and small
  UnequalPlanner planner(p.recipe, p.config, p.cluster, Profiles::built_in());
  const UnequalForecast now = planner.forecast();
  EXPECT_TRUE(now.stages[0].fits());
  EXPECT_FALSE(now.stages[1].fits());
  EXPECT_FALSE(now.fits());
  const auto better = planner.better_cut(now);
  ASSERT_TRUE(better);
  EXPECT_TRUE(all_have_room(*better));
  EXPECT_LE(double(better->stages[1].memory_bytes), 0.9 * needed - usual_reserve(p.cluster.kinds[1]));
  Planned same{.recipe = p.recipe, .config = p.config, .cluster = p.cluster};
  EXPECT_LE(better->step.step_s, 1.01 * best_of_two_stages(same));
  EXPECT_SAYS(to_string(now, better, 0), "and fits, which this one does not");

  p.cluster.kinds[1].device.memory_bytes = 0.01 * needed;
  UnequalPlanner none(p.recipe, p.config, p.cluster, Profiles::built_in());
  const UnequalForecast large = none.forecast();
  EXPECT_FALSE(none.better_cut(large));
  EXPECT_SAYS(to_string(large, {}, 0), "no cut of the blocks over these stages was found that does");
}

TEST(Unequal, ACutLeavesWhatLibrariesNeed) {
  Planned p{
      .recipe = unequal_recipe(2, 2), .config = wide_model(8), .cluster = {{nodes_of(1, 2, 0.5), nodes_of(1, 2)}}};
  const UnequalForecast now = p.planner.forecast({4, 4});
  ASSERT_TRUE(p.planner.better_cut(now));
  // Five blocks would fill the quick devices, but for a thousandth.
  p.cluster.kinds[1].device.memory_bytes = 1.001 * double(p.planner.forecast({3, 5}).stages[1].memory_bytes);
  UnequalPlanner full(p.recipe, p.config, p.cluster, Profiles::built_in());
  EXPECT_TRUE(full.forecast({3, 5}).fits());
  EXPECT_FALSE(full.better_cut(full.forecast({4, 4})));
}

TEST(Unequal, RanksOnQuickDevicesGetLargerShares) {
  Planned p{
      .recipe = unequal_recipe(2, 1), .config = wide_model(2), .cluster = {{nodes_of(1, 1), nodes_of(1, 1, 0.3)}}};
  const UnequalForecast now = p.planner.forecast();
  const auto better = p.planner.better_shares(now);
  ASSERT_TRUE(better);
  const std::vector<int64_t>& shares = better->forecast.shares;
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0] + shares[1], 16);
  EXPECT_GT(shares[0], 2 * shares[1]);
  EXPECT_LT(better->forecast.step.step_s, 0.8 * now.step.step_s);
  EXPECT_NEAR(better->now_s, now.step.step_s, 1e-9 * now.step.step_s);
  EXPECT_EQ(better->forecast.step.step_s,
            *std::max_element(better->forecast.rank_s.begin(), better->forecast.rank_s.end()));
  EXPECT_SAYS(better_shares_text(better),
              fmt::format("better shares of the batch: parallel.micro_batches = [{}, {}]: ", shares[0], shares[1]));
  double best = now.step.step_s;
  for (int64_t first = 9; first < 16; ++first) {  // beside all that there can be
    Recipe other = p.recipe;
    other.parallel.micro_batches = {first, 16 - first};
    UnequalPlanner with(other, p.config, p.cluster, Profiles::built_in());
    const UnequalForecast f = with.forecast();
    best = std::min(best, f.step.step_s);
    if (other.parallel.micro_batches != shares) continue;
    EXPECT_EQ(f.step.step_s, better->forecast.step.step_s);  // a recipe with them is forecast so
    EXPECT_EQ(f.shares, shares);
    EXPECT_EQ(to_json(f, {}, 0)["micro_batches"], shares);
    EXPECT_FALSE(with.better_shares(f));
  }
  EXPECT_LE(better->forecast.step.step_s, 1.0001 * best);
}

TEST(Unequal, EachRankIsForecastWithItsOwnShareOnItsOwnDevices) {
  Planned p{
      .recipe = unequal_recipe(4, 1), .config = wide_model(2), .cluster = {{nodes_of(1, 2), nodes_of(1, 2, 0.5)}}};
  const int64_t all = p.recipe.train.global_batch_size / p.recipe.train.micro_batch_size;
  p.recipe.parallel.micro_batches = {2, 2, 2, all - 6};
  const std::vector<double> s = p.planner.forecast().rank_s;
  ASSERT_EQ(s.size(), 4u);
  EXPECT_EQ(s[0], s[1]);
  EXPECT_LT(s[1], s[2]);
  EXPECT_LT(s[2], s[3]);
}

// Whichever rank has the most, the others wait for it.
TEST(Unequal, OnDevicesThatAreAlikeTheRankWithTheMostMicroBatchesIsForecast) {
  const HfConfig config = wide_model(2);
  const auto step_s = [&](const std::vector<int64_t>& shares) {
    Recipe recipe = unequal_recipe(2, 1);
    recipe.parallel.micro_batches = shares;
    return forecast_run(recipe, config, nodes_of(2, 1), Profiles::built_in()).step.step_s;
  };
  EXPECT_EQ(step_s({8, 8}), step_s({}));
  EXPECT_GT(step_s({4, 12}), 1.2 * step_s({}));
  EXPECT_EQ(step_s({4, 12}), step_s({12, 4}));
}

TEST(Unequal, SharesStayWhereTheyChangeNothingOrCannotBe) {
  Planned alike{.recipe = unequal_recipe(2, 1), .config = wide_model(2), .cluster = {{nodes_of(1, 1), nodes_of(1, 1)}}};
  EXPECT_FALSE(alike.planner.better_shares(alike.planner.forecast()));
  // Each rank of dp has a stage on either kind.
  Planned stages{
      .recipe = unequal_recipe(2, 2), .config = wide_model(2), .cluster = {{nodes_of(1, 2), nodes_of(1, 2, 0.5)}}};
  EXPECT_FALSE(stages.planner.better_shares(stages.planner.forecast()));
  Planned sharded{
      .recipe = unequal_recipe(2, 1), .config = wide_model(2), .cluster = {{nodes_of(1, 1), nodes_of(1, 1, 0.5)}}};
  sharded.recipe.parallel.zero_stage = 3;
  EXPECT_FALSE(sharded.planner.better_shares(sharded.planner.forecast()));
  EXPECT_EQ(better_shares_text({}), "");
}

TEST(Unequal, DataRanksOfBothKindsWaitForTheSlower) {
  Planned p{
      .recipe = unequal_recipe(4, 1), .config = wide_model(2), .cluster = {{nodes_of(1, 2), nodes_of(1, 2, 0.5)}}};
  const UnequalForecast f = p.planner.forecast();
  ASSERT_EQ(f.stages.size(), 1u);
  EXPECT_EQ(f.stages[0].kinds, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(f.stages[0].slowest, 1u);
  EXPECT_EQ(f.stages[0].quickest, 0u);
  const RunForecast slow = forecast_run(p.recipe, p.config, nodes_of(2, 2, 0.5), Profiles::built_in());
  EXPECT_NEAR(f.step.step_s, slow.step.step_s, 1e-9 * slow.step.step_s);
  EXPECT_LT(f.stages[0].quickest_s, 0.9 * f.stages[0].busy_s);
  EXPECT_SAYS(to_string(f, {}, 0), "they wait for another");
  EXPECT_FALSE(p.planner.better_cut(f));  // there is one stage
}

TEST(Unequal, TheOrderOfRanksSaysWhichDevicesAStageIsOn) {
  Planned p{
      .recipe = unequal_recipe(2, 2), .config = wide_model(4), .cluster = {{nodes_of(1, 2), nodes_of(1, 2, 0.5)}}};
  for (const UnequalStage& s : p.planner.forecast().stages) EXPECT_EQ(s.kinds.size(), 1u);
  p.recipe.parallel.order = "pp-tp-cp-ep-dp";
  UnequalPlanner mixed(p.recipe, p.config, p.cluster, Profiles::built_in());
  for (const UnequalStage& s : mixed.forecast().stages) EXPECT_EQ(s.kinds.size(), 2u);
}

TEST(Unequal, NodesReachEachOtherByTheSlowestLinksThatAreUsed) {
  UnequalCluster cluster{{nodes_of(2, 1), nodes_of(2, 1)}};
  const auto busy_of_first = [&](int64_t pp) {
    Planned p{.recipe = unequal_recipe(2, pp), .config = wide_model(2), .cluster = cluster};
    return p.planner.forecast().stages[0].busy_s;
  };
  const double on_both = busy_of_first(2), on_first = busy_of_first(1);
  cluster.kinds[1].scale_out.bytes_per_s /= 100;
  EXPECT_GT(busy_of_first(2), 1.1 * on_both);
  EXPECT_EQ(busy_of_first(1), on_first);  // two ranks, both on nodes of the first kind
}

TEST(Unequal, PriceAndPowerAreThoseOfTheDevicesInUse) {
  Planned p{.recipe = unequal_recipe(1, 3), .config = wide_model(3), .cluster = {{nodes_of(1, 2), nodes_of(1, 2)}}};
  p.cluster.kinds[0].price_per_device_hour = 3;
  p.cluster.kinds[1].price_per_device_hour = 1;
  p.cluster.kinds[1].device.watts = 0;
  UnequalPlanner planner(p.recipe, p.config, p.cluster, Profiles::built_in());
  const UnequalForecast f = planner.forecast();
  EXPECT_EQ(f.used, (std::vector<int64_t>{2, 1}));
  EXPECT_NEAR(f.price_per_step(), f.step.step_s / 3600 * 7, 1e-12);
  EXPECT_EQ(f.joules_per_step(), 0);  // not known of one kind
  EXPECT_DOUBLE_EQ(f.peak_flops, 3 * preset_of("H100-SXM").device.peak.bits16);
}

TEST(Unequal, WhatCannotBeForecastIsRefusedByName) {
  Planned p{.recipe = unequal_recipe(1, 1), .config = wide_model(2), .cluster = {{nodes_of(1, 2), nodes_of(1, 2)}}};
  const Recipe large = unequal_recipe(5, 1);
  EXPECT_SAYS(error_of<ConfigError>([&] { UnequalPlanner(large, p.config, p.cluster, Profiles::built_in()); }),
              "the layout has 5 ranks, the cluster 4 devices");
}

TEST(UnequalCluster, OtherNodesAreWhatTheirTableSaysElseAsTheFirst) {
  const UnequalCluster c = parse_unequal_cluster(
      "preset = \"H100-SXM\"\nnodes = 2\n[[others]]\nnodes = 1\n[others.device]\nname = \"old\"\nmemory_gb = 40\n"
      "[[others]]\npreset = \"A100-SXM-40GB\"\nnodes = 3\n[others.scale_out]\ngb_s = 12.5\n",
      "c.toml");
  ASSERT_EQ(c.kinds.size(), 3u);
  EXPECT_EQ(c.num_devices(), 48);
  EXPECT_EQ(c.kinds[1].device.name, "old");
  EXPECT_EQ(c.kinds[1].device.memory_bytes, 40e9);
  EXPECT_EQ(c.kinds[1].device.products.bits16, preset_of("H100-SXM").device.products.bits16);
  EXPECT_EQ(c.kinds[2].device.products.bits16, preset_of("A100-SXM-40GB").device.products.bits16);
  EXPECT_EQ(c.kinds[2].scale_out.bytes_per_s, 12.5e9);
  EXPECT_EQ(c.kinds[0].scale_out.bytes_per_s, preset_of("H100-SXM").scale_out.bytes_per_s);
  std::vector<size_t> kinds;
  for (const int64_t device : {0, 15, 16, 23, 24, 47}) kinds.push_back(c.kind_of(device));
  EXPECT_EQ(kinds, (std::vector<size_t>{0, 0, 1, 1, 2, 2}));
}

TEST(UnequalCluster, WhatContradictsItselfIsRefused) {
  const auto refusal_of = [](const std::string& toml) {
    return error_of<ConfigError>([&] { parse_unequal_cluster(toml, "c.toml"); });
  };
  const std::string first = "preset = \"H100-SXM\"\nnodes = 1\n", other = "[[others]]\n";
  EXPECT_SAYS(refusal_of(first + other), "nodes is missing");
  EXPECT_SAYS(refusal_of("preset = \"H100-SXM\"\n" + other + "nodes = 1\n"), "nodes is missing");
  EXPECT_SAYS(refusal_of(first + other + "nodes = 1\ndevices_per_node = 4\n"), "those of the first kind are 8 and 8");
  EXPECT_SAYS(refusal_of(first + other + "nodes = 1\nnode = 2\n"), "c.toml:5:");
  EXPECT_SAYS(refusal_of(first + other + "nodes = 1\n[others.device]\npeak_bf16_tflops = 100\n"),
              "is above device.peak");
  EXPECT_SAYS(refusal_of(first + "[failures]\nper_device_hour = 1e-4\n" + other + "nodes = 1\n"), "leave them out");
  EXPECT_SAYS(refusal_of(first + "[program]\ntp_exposed = 1.0\n" + other + "nodes = 1\n"),
              "program is of devices of one kind");
  EXPECT_SAYS(refusal_of(first), "[[others]] is missing");
  EXPECT_SAYS(error_of<ConfigError>([&] { parse_cluster(first + other + "nodes = 1\n", "c.toml"); }),
              "`weft plan RECIPE --cluster FILE` alone forecasts");
}

}  // namespace
}  // namespace weft
