// The search on devices of several kinds, beside all layouts forecast one by one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/layout_bounds.h"
#include "weft/forecast/search_parts.h"
#include "weft/forecast/unequal_search.h"

namespace weft {
namespace {

using testing::error_of;

// Wide enough that arithmetic takes the time.
HfConfig wide_blocks(int64_t layers) {
  HfConfig config;
  config.has_folder = false;
  config.spec = {.vocab_size = 4096,
                 .width = 2048,
                 .num_layers = layers,
                 .num_heads = 16,
                 .num_kv_heads = 16,
                 .head_dim = 128,
                 .ffn_width = 8192,
                 .max_positions = 1024};
  config.spec.rope = RopeSpec{};
  return config;
}

HfConfig four_blocks() { return wide_blocks(4); }

Recipe recipe_to_search() {
  Recipe r;
  r.data.train = {"book.txt"};
  r.train.seq_length = 1024;
  r.train.global_batch_size = 8;
  r.train.precision = PrecisionChoice::bf16;
  r.train.train_iters = 100;
  return r;
}

// One device a node, so that whatever ranks send between kinds goes over slow links.
ClusterSpec node_with(double rate, double memory_bytes = 1e12) {
  ClusterSpec c = preset_of("H100-SXM");
  c.devices_per_node = c.domain = c.num_devices = 1;
  c.device.memory_bytes = memory_bytes;
  c.device.name = rate == 1 ? "quick" : "slow";
  for (double* d : {&c.device.products.bits16, &c.device.peak.bits16, &c.device.memory_bytes_per_s}) *d *= rate;
  return c;
}

UnequalSearchResult search_on_both(const UnequalCluster& cluster, SearchSpec spec) {
  return search_unequal(recipe_to_search(), four_blocks(), cluster, Profiles::built_in(), spec);
}

// The least step of all layouts that leave room, each with a better cut and better shares where there are any; 0: none
// does.
double least_step_on(const UnequalCluster& cluster, int64_t devices, const Recipe& recipe, const HfConfig& config) {
  int64_t refused = 0;
  double least = 0;
  for (const LayoutChoice& c : layouts_on(devices, recipe, config.spec, cluster.kinds[0], refused)) try {
      const Recipe one = checked_recipe(recipe, c);
      UnequalPlanner planner(one, config, cluster, Profiles::built_in());
      UnequalForecast f = planner.forecast();
      if (auto better = planner.better_cut(f)) f = std::move(*better);
      if (auto better = planner.better_shares(f)) f = std::move(better->forecast);
      const bool fits = std::all_of(f.stages.begin(), f.stages.end(), [](const auto& s) { return s.has_room(); });
      if (fits && (least == 0 || f.step.step_s < least)) least = f.step.step_s;
    } catch (const ConfigError&) {}
  return least;
}

TEST(UnequalSearch, FindsWhatForecastingEveryLayoutFinds) {
  const UnequalCluster cluster{{node_with(1), node_with(0.3)}};
  const UnequalSearchResult found = search_on_both(cluster, {.device_counts = {2}, .most = 1});
  ASSERT_EQ(found.best.size(), 1u);
  const UnequalLayout& best = found.best[0];
  EXPECT_LE(best.forecast.step.step_s, 1.001 * least_step_on(cluster, 2, recipe_to_search(), four_blocks()));
  EXPECT_EQ(best.layout.pp, 2);  // gradients of data ranks would go over slow links
  EXPECT_EQ(best.forecast.blocks.size() % 2, 0u);
  EXPECT_GT(best.forecast.stages[0].blocks, best.forecast.stages[1].blocks);
  // What it says is what a recipe with it is forecast to take.
  const Recipe written = best.applied_to(recipe_to_search());
  EXPECT_EQ(written.parallel.pipeline_layout, best.forecast.blocks);
  const HfConfig config = four_blocks();
  EXPECT_EQ(UnequalPlanner(written, config, cluster, Profiles::built_in()).forecast().step.step_s,
            best.forecast.step.step_s);
  const SearchSpec spec{.device_counts = {2}, .most = 1};
  EXPECT_SAYS(to_string(found, cluster, spec), "parallel.pipeline_layout = " + to_string(best.forecast.blocks));
  EXPECT_EQ(to_json(found, spec)["best"][0]["layout"]["parallel.pp"], 2);
}

// Bounds of memory hide no layout that fits.
TEST(UnequalSearch, FindsWhatFitsBestWhereMemoryIsShort) {
  Recipe recipe = recipe_to_search();
  recipe.train.global_batch_size = 16;
  const HfConfig config = wide_blocks(6);
  for (const double gigabytes : {3.5, 4.5, 6.0}) {
    const UnequalCluster cluster{{node_with(1, gigabytes * 1e9), node_with(0.4, gigabytes * 1e9)}};
    const UnequalSearchResult found =
        search_unequal(recipe, config, cluster, Profiles::built_in(), {.device_counts = {2}, .most = 1});
    const double least = least_step_on(cluster, 2, recipe, config);
    ASSERT_EQ(found.best.size(), least > 0 ? 1u : 0u) << gigabytes;
    const SearchCounts& n = found.counts;  // so few layouts are all looked at, or cannot be better
    EXPECT_EQ(n.planned + n.too_large + n.measured_large + n.cannot_run + n.beaten, n.layouts) << gigabytes;
    if (least > 0) { EXPECT_LE(found.best[0].forecast.step.step_s, 1.001 * least) << gigabytes; }
  }
}

// What a stage has of blocks, its memory is enough for by the bound too, whatever the cut.
TEST(UnequalSearch, StagesHaveNoMoreBlocksThanTheBoundSays) {
  Recipe recipe = recipe_to_search();
  recipe.train.global_batch_size = 16;
  const HfConfig config = wide_blocks(6);
  const UnequalCluster cluster{{node_with(1), node_with(1)}};
  const ProgramProfile profile = Profiles::built_in().of("weft", false);
  SmallRuns runs;
  LayoutBounds bounds(recipe, config, cluster.kinds[0], profile, runs);
  struct Case {
    ScheduleKind schedule;
    int64_t chunks;
    BlockLayout cut;  // by virtual stage
  };
  for (const RecomputeKind recompute : {RecomputeKind::none, RecomputeKind::full})
    for (const Case& one : {Case{ScheduleKind::gpipe, 0, {3, 3}}, Case{ScheduleKind::one_f_one_b, 0, {4, 2}},
                            Case{ScheduleKind::one_f_one_b, 0, {1, 5}}, Case{ScheduleKind::zb_h1, 0, {2, 4}},
                            Case{ScheduleKind::interleaved_1f1b, 2, {1, 2, 2, 1}},
                            Case{ScheduleKind::zbv, 0, {1, 1, 2, 2}}, Case{ScheduleKind::zbv, 0, {2, 2, 1, 1}}}) {
      const LayoutChoice choice{.pp = 2, .recompute = recompute, .schedule = one.schedule, .chunks = one.chunks};
      const Recipe checked = checked_recipe(recipe, choice);
      UnequalPlanner planner(checked, config, cluster, Profiles::built_in());
      const UnequalForecast f = planner.forecast(one.cut);
      for (size_t s = 0; s < f.stages.size(); ++s) {
        const auto bytes = double(f.stages[s].memory_bytes);
        const std::string what = fmt::format("{} {} stage {}", to_string(choice), to_string(one.cut), s);
        EXPECT_GE(bounds.most_blocks(choice, int(s), bytes), f.stages[s].blocks) << what;
        EXPECT_LT(bounds.most_blocks(choice, int(s), bytes / 4), f.stages[s].blocks) << what;
      }
    }
}

// Three blocks cannot be cut over two stages so that one is busy as long as the other at a third of its pace, a batch
// of many micro-batches can.
TEST(UnequalSearch, RanksOnQuickDevicesGetLargerShares) {
  const UnequalCluster cluster{{node_with(1), node_with(0.3)}};
  const SearchSpec spec{.device_counts = {2}, .most = 1};
  Recipe recipe = recipe_to_search();
  recipe.train.global_batch_size = 64;
  const HfConfig config = wide_blocks(3);
  const UnequalSearchResult found = search_unequal(recipe, config, cluster, Profiles::built_in(), spec);
  ASSERT_EQ(found.best.size(), 1u);
  const UnequalLayout& best = found.best[0];
  EXPECT_LE(best.forecast.step.step_s, 1.001 * least_step_on(cluster, 2, recipe, config));
  EXPECT_EQ(best.layout.dp, 2);
  const std::vector<int64_t>& shares = best.forecast.shares;
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_GT(shares[0], 2 * shares[1]);
  // What it says is what a recipe with it is forecast to take.
  const Recipe written = best.applied_to(recipe);
  EXPECT_EQ(written.parallel.micro_batches, shares);
  EXPECT_EQ(UnequalPlanner(written, config, cluster, Profiles::built_in()).forecast().step.step_s,
            best.forecast.step.step_s);
  EXPECT_SAYS(
      to_string(found, cluster, spec),
      fmt::format("the best one's shares of the batch: parallel.micro_batches = [{}, {}]\n", shares[0], shares[1]));
  EXPECT_EQ(to_json(found, spec)["best"][0]["layout"]["parallel.micro_batches"], shares);
}

TEST(UnequalSearch, SaysTheSameAgainOnAnyNumberOfThreads) {
  const UnequalCluster cluster{{node_with(0.4), node_with(1)}};
  SearchSpec one{.device_counts = {1, 2}, .most = 3}, three = one;
  three.threads = 3;
  EXPECT_EQ(to_json(search_on_both(cluster, one), one).dump(), to_json(search_on_both(cluster, three), three).dump());
}

TEST(UnequalSearch, EachStageFitsItsOwnDevice) {
  const UnequalCluster roomy{{node_with(1), node_with(0.3)}};
  const SearchSpec spec{.device_counts = {2}, .most = 3};
  const UnequalSearchResult any = search_on_both(roomy, spec);
  ASSERT_FALSE(any.best.empty());
  UnequalCluster tight = roomy;  // the quick device has no room any more for what it would have
  tight.kinds[0].device.memory_bytes = 0.8 * double(any.best[0].forecast.stages[0].memory_bytes);
  const UnequalSearchResult found = search_on_both(tight, spec);
  ASSERT_FALSE(found.best.empty());
  for (const UnequalLayout& l : found.best)
    for (const UnequalStage& s : l.forecast.stages) EXPECT_LE(double(s.memory_bytes), s.room_bytes);
  EXPECT_GE(found.best[0].forecast.step.step_s, any.best[0].forecast.step.step_s);
  for (ClusterSpec& kind : tight.kinds) kind.device.memory_bytes = 1e7;
  const UnequalSearchResult none = search_on_both(tight, spec);
  EXPECT_TRUE(none.best.empty());
  EXPECT_SAYS(none.nearest, "comes nearest: a stage lacks ");
  EXPECT_SAYS(to_string(none, tight, spec), none.nearest);
}

TEST(UnequalSearch, TakesAsFewDevicesAsADeadlineLeaves) {
  UnequalCluster cluster{{node_with(1), node_with(0.5)}};
  cluster.kinds[0].price_per_device_hour = 4;
  cluster.kinds[1].price_per_device_hour = 1;
  SearchSpec spec{.device_counts = {1, 2}, .objective = SearchObjective::ranks, .steps = 100, .most = 1};
  const UnequalSearchResult any = search_on_both(cluster, spec);
  ASSERT_FALSE(any.best.empty());
  EXPECT_EQ(any.best[0].layout.num_devices(), 1);
  spec.deadline_s = any.best[0].forecast.step.step_s * 100 * 0.97;
  const UnequalSearchResult sooner = search_on_both(cluster, spec);
  ASSERT_FALSE(sooner.best.empty());
  EXPECT_EQ(sooner.best[0].layout.num_devices(), 2);
  spec.budget = 1e-12;
  EXPECT_SAYS(search_on_both(cluster, spec).nearest, "no layout keeps deadline and budget; the fastest, ");
}

TEST(UnequalSearch, WhatItCannotSearchIsRefusedByName) {
  const UnequalCluster cluster{{node_with(1), node_with(0.5)}};
  const auto refusal_of = [&](const SearchSpec& spec, auto change) {
    Recipe recipe = recipe_to_search();
    UnequalCluster changed = cluster;
    change(recipe, changed);
    return error_of<ConfigError>([&] { search_unequal(recipe, four_blocks(), changed, Profiles::built_in(), spec); });
  };
  const SearchSpec two{.device_counts = {2}};
  const auto as_it_is = [](Recipe&, UnequalCluster&) {};
  EXPECT_SAYS(refusal_of({.device_counts = {3}}, as_it_is), "a search over 3 devices: the cluster has 2");
  EXPECT_SAYS(refusal_of({.device_counts = {2}, .objective = SearchObjective::price},
                         [](Recipe&, UnequalCluster& c) { c.kinds[1].price_per_device_hour = 0; }),
              "a price of every kind of node");
  EXPECT_SAYS(refusal_of({.device_counts = {2}, .deadline_s = 60}, as_it_is), "--deadline needs the length of the run");
  EXPECT_SAYS(refusal_of(two, [](Recipe& r, UnequalCluster&) { r.parallel.recompute = RecomputeKind::budget; }),
              "parallel.recompute = \"budget\"");
  EXPECT_SAYS(refusal_of(two, [](Recipe& r, UnequalCluster&) { r.train.objective = ObjectiveKind::dpo; }),
              "train.objective = \"dpo\"");
}

}  // namespace
}  // namespace weft
