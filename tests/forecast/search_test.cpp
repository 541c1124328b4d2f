// The search for layouts, beside all of them planned one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/layout_planner.h"
#include "weft/forecast/layout_search.h"

namespace weft {
namespace {

HfConfig small_config() {
  return parse_hf_config({{"architectures", {"LlamaForCausalLM"}},
                          {"model_type", "llama"},
                          {"hidden_size", 256},
                          {"intermediate_size", 704},
                          {"num_hidden_layers", 2},
                          {"num_attention_heads", 4},
                          {"num_key_value_heads", 2},
                          {"vocab_size", 1000},
                          {"max_position_embeddings", 8192},
                          {"rms_norm_eps", 1e-5},
                          {"hidden_act", "silu"},
                          {"tie_word_embeddings", false}},
                         "config");
}

Recipe small_recipe() {
  Recipe r;
  r.data.train = {"book.txt"};
  r.train.seq_length = 4096;
  r.train.global_batch_size = 4;
  r.train.precision = PrecisionChoice::bf16;
  r.train.train_iters = 100;
  return r;
}

ClusterSpec small_cluster(double memory_bytes = 1e12) {
  ClusterSpec c = preset_of("H100-SXM");
  c.devices_per_node = c.domain = 2;
  c.device.memory_bytes = memory_bytes;
  return c;
}

SearchResult search(const ClusterSpec& cluster, const SearchSpec& spec) {
  return search_layouts(small_recipe(), small_config(), cluster, Profiles::built_in(), spec);
}

void sort_by_step(std::vector<FoundLayout>& all) {
  std::stable_sort(all.begin(), all.end(), [](const FoundLayout& a, const FoundLayout& b) {
    return std::tie(a.step.step_s, a.memory_bytes) < std::tie(b.step.step_s, b.memory_bytes);
  });
}

// The figures of all layouts that run, found without any bound; the fastest first.
std::vector<FoundLayout> all_on(int64_t devices, const ClusterSpec& cluster) {
  const Recipe recipe = small_recipe();
  const HfConfig config = small_config();
  LayoutPlanner planner(recipe, config, cluster, Profiles::built_in());
  int64_t refused = 0;
  std::vector<FoundLayout> all;
  for (const LayoutChoice& c : layouts_on(devices, recipe, config.spec, cluster, refused))
    if (const auto one = planner.plan(c)) all.push_back(*one);
  sort_by_step(all);
  return all;
}

void expect_what_planning_every_layout_finds(int64_t devices, const std::vector<double>& parts) {
  const ClusterSpec roomy = small_cluster();
  const std::vector<FoundLayout> all = all_on(devices, roomy);
  ASSERT_GT(all.size(), 50u);
  std::vector<int64_t> bytes;
  for (const FoundLayout& f : all) bytes.push_back(f.memory_bytes);
  std::sort(bytes.begin(), bytes.end());
  for (const double part : parts) {
    const double room = double(bytes[size_t(part * double(bytes.size() - 1))]);
    const SearchResult found = search(small_cluster(room), {.device_counts = {devices}, .most = 3});
    std::vector<FoundLayout> fitting;
    for (const FoundLayout& f : all)
      if (double(f.memory_bytes) <= room && fitting.size() < 3) fitting.push_back(f);
    ASSERT_EQ(found.best.size(), fitting.size());
    const Recipe recipe = small_recipe();
    const HfConfig config = small_config();
    const ClusterSpec cluster = small_cluster(room);
    LayoutPlanner planner(recipe, config, cluster, Profiles::built_in());
    for (FoundLayout& f : fitting) f = best_order(f, planner, cluster, room);
    sort_by_step(fitting);
    for (size_t i = 0; i < fitting.size(); ++i) {
      EXPECT_EQ(to_string(found.best[i].layout), to_string(fitting[i].layout)) << "room of " << room;
      EXPECT_EQ(found.best[i].step.step_s, fitting[i].step.step_s);
      EXPECT_EQ(found.best[i].memory_bytes, fitting[i].memory_bytes);
    }
  }
}

// Which a recipe that is written for a layout would be refused with.
TEST(LayoutChoice, LeavesAutotuneOutWhereThereIsNothingToTry) {
  Recipe r = small_recipe();
  r.train.autotune = true;
  r.train.numerics = NumericsChoice::invariant;
  EXPECT_FALSE(with_choice(r, {.dp = 2}).train.autotune);
  EXPECT_TRUE(with_choice(r, {.pp = 2}).train.autotune);
  r.train.autotune = false;
  EXPECT_FALSE(with_choice(r, {.pp = 2}).train.autotune);
}

TEST(LayoutSearch, FindsWhatPlanningEveryLayoutFinds) { expect_what_planning_every_layout_finds(2, {1, 0.2}); }
TEST(LayoutSearchSlow, FindsWhatPlanningEveryLayoutOnFourDevicesFinds) {
  expect_what_planning_every_layout_finds(4, {1, 0.5, 0.25, 0.1, 0.03, 0});
}

TEST(LayoutSearch, SaysTheSameAgainOnAnyNumberOfThreads) {
  SearchSpec one{.device_counts = {1, 2}, .most = 3}, three = one;
  three.threads = 3;
  EXPECT_EQ(to_json(search(small_cluster(), one), one).dump(), to_json(search(small_cluster(), three), three).dump());
}

TEST(LayoutSearch, ReturnsNothingThatDoesNotFit) {
  const std::vector<FoundLayout> all = all_on(2, small_cluster());
  const auto least = std::min_element(all.begin(), all.end(),
                                      [](const auto& a, const auto& b) { return a.memory_bytes < b.memory_bytes; });
  const double bytes = double(least->memory_bytes);
  const SearchSpec spec{.device_counts = {2}, .most = 100, .reserve_bytes = 1000};
  const SearchResult tight = search(small_cluster(bytes * 1.2), spec);
  ASSERT_FALSE(tight.best.empty());
  for (const FoundLayout& f : tight.best) EXPECT_LE(double(f.memory_bytes), bytes * 1.2 - 1000);
  const SearchResult none = search(small_cluster(bytes), spec);
  EXPECT_TRUE(none.best.empty());
  EXPECT_NE(none.nearest.find("no layout fits"), std::string::npos) << none.nearest;
}

TEST(LayoutSearch, IsNeverSlowerWithMoreDevicesOrFasterLinks) {
  const auto best = [](const ClusterSpec& cluster, std::vector<int64_t> counts) {
    return search(cluster, {.device_counts = std::move(counts), .most = 1}).best.at(0).step.step_s;
  };
  const double two = best(small_cluster(), {1, 2}), four = best(small_cluster(), {1, 2, 4});
  EXPECT_LE(two, best(small_cluster(), {1}));
  EXPECT_LE(four, two);
  ClusterSpec faster = small_cluster();
  faster.scale_up.bytes_per_s *= 2;
  faster.scale_out.bytes_per_s *= 2;
  EXPECT_LE(best(faster, {1, 2, 4}), four);
}

TEST(LayoutSearch, TakesAsFewDevicesAsADeadlineLeaves) {
  ClusterSpec cluster = small_cluster();
  cluster.price_per_device_hour = 2;
  SearchSpec spec{.device_counts = {1, 2, 4}, .objective = SearchObjective::ranks, .steps = 100, .most = 1};
  const SearchResult any = search(cluster, spec);
  EXPECT_EQ(any.best.at(0).layout.num_devices(), 1);
  spec.deadline_s = any.best[0].step.step_s * 100 * 0.9;
  const SearchResult sooner = search(cluster, spec);
  ASSERT_FALSE(sooner.best.empty());
  EXPECT_EQ(sooner.best[0].layout.num_devices(), 2);
  spec.budget = 1e-12;
  EXPECT_NE(search(cluster, spec).nearest.find("no layout keeps deadline and budget"), std::string::npos);
}

TEST(LayoutSearch, ShowsNothingThatAnotherBeatsInEverything) {
  const SearchResult found = search(small_cluster(), {.device_counts = {1, 2}, .most = 8});
  ASSERT_FALSE(found.front.empty());
  for (const FoundLayout& a : found.front)
    for (const FoundLayout& b : found.front)
      EXPECT_FALSE(a.step.step_s < b.step.step_s && a.memory_bytes <= b.memory_bytes &&
                   a.layout.num_devices() <= b.layout.num_devices())
          << to_string(a.layout) << " beats " << to_string(b.layout);
}

TEST(LayoutSearch, SaysWhatNeighboursLose) {
  const SearchResult found = search(small_cluster(), {.device_counts = {4}, .most = 1});
  EXPECT_NE(found.best.at(0).neighbours.find("a step (+"), std::string::npos) << found.best[0].neighbours;
}

TEST(LayoutSearch, SaysWhichFewerDevicesDoAsWell) {
  // Links so slow that a second node takes as long as it saves.
  ClusterSpec slow = small_cluster();
  slow.scale_up.bytes_per_s = slow.scale_out.bytes_per_s = 1e8;
  const SearchSpec spec{.device_counts = {4}, .most = 1};
  const SearchResult found = search(slow, spec);
  ASSERT_TRUE(found.right.enough.has_value());
  EXPECT_LT(found.right.enough->layout.num_devices(), 4);
  EXPECT_LE(found.right.enough->step.step_s, 1.05 * found.best.at(0).step.step_s);
  EXPECT_SAYS(to_string(found, spec), " GiB of each device and most of the devices: ");
  EXPECT_EQ(to_json(found, spec)["unused"]["enough_devices"]["num_devices"], found.right.enough->layout.num_devices());
  const SearchResult needed = search(small_cluster(), {.device_counts = {2}, .most = 1});
  EXPECT_FALSE(needed.right.enough.has_value());
  ASSERT_TRUE(needed.right.half.has_value());
  EXPECT_GT(needed.right.half->step.step_s, 1.05 * needed.best.at(0).step.step_s);
  EXPECT_EQ(needed.right.unused_bytes, needed.room_bytes - double(needed.best[0].memory_bytes));
}

TEST(LayoutSearch, SaysHowManyDevicesCanBeUsed) {
  const SearchResult none = search(small_cluster(), {.device_counts = {7}});  // a batch of four, two blocks, four heads
  EXPECT_TRUE(none.best.empty());
  EXPECT_SAYS(none.nearest, "no layout is of 7 devices: ");
  EXPECT_SAYS(none.nearest, "can be used, and");
}

TEST(LayoutSearch, NumbersRanksSoThatNearOnesSendMost) {
  Recipe recipe = small_recipe();
  recipe.parallel.order = "pp-dp-ep-cp-tp";  // with tp over the slow links
  const HfConfig config = small_config();
  ClusterSpec cluster = small_cluster();
  cluster.scale_out.bytes_per_s /= 100;
  LayoutPlanner planner(recipe, config, cluster, Profiles::built_in());
  LayoutChoice c{.dp = 2, .tp = 2, .sequence_parallel = true};
  const FoundLayout far = planner.plan(c).value();
  const FoundLayout near = best_order(far, planner, cluster, 1e12);
  EXPECT_LT(near.step.step_s, far.step.step_s);
  EXPECT_LT(near.layout.order.find("tp"), near.layout.order.find("dp"));
  EXPECT_EQ(with_choice(recipe, near.layout).parallel.order, near.layout.order);
  EXPECT_EQ(forecast_run(with_choice(recipe, near.layout), config, cluster, Profiles::built_in()).step.step_s,
            near.step.step_s);
  ClusterSpec one_domain = cluster;
  one_domain.devices_per_node = one_domain.domain = 4;
  EXPECT_EQ(best_order(far, planner, one_domain, 1e12).layout.order, "");
}

TEST(LayoutSearch, LeavesBudgetsOutByName) {
  Recipe recipe = small_recipe();
  recipe.parallel.recompute = RecomputeKind::budget;
  recipe.parallel.memory_budget = "60GiB";
  EXPECT_SAYS(testing::error_of<ConfigError>([&] {
                search_layouts(recipe, small_config(), small_cluster(), Profiles::built_in(), {.device_counts = {1}});
              }),
              "the nearest that works: parallel.recompute = \"none\" and no parallel.memory_budget");
}

TEST(LayoutSearch, LeavesMeasuredClustersOutByName) {
  ClusterSpec cluster = small_cluster();
  cluster.measured.push_back({.ranks = 2});
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { search(cluster, {.device_counts = {1}}); }),
              "what works: weft plan RECIPE --cluster FILE for each layout");
}

TEST(LayoutSearch, RefusesWhatCannotBeAnswered) {
  ClusterSpec cluster = small_cluster();
  cluster.price_per_device_hour = 0;
  const auto message = [&](const SearchSpec& spec) {
    return testing::error_of<ConfigError>([&] { search(cluster, spec); });
  };
  EXPECT_EQ(message({.device_counts = {1}, .objective = SearchObjective::price}),
            "--objective price needs a price: price.per_device_hour in the cluster's file");
  EXPECT_EQ(message({.device_counts = {1}, .budget = 5, .steps = 3}),
            "--budget needs a price: price.per_device_hour in the cluster's file");
  EXPECT_EQ(message({.device_counts = {1}, .deadline_s = 5}),
            "--deadline needs the length of the run: train.train_iters in the recipe");
  for (const char* text : {"0", "8..4", "x", "8..", "1..99999999", "8.."})
    EXPECT_NE(testing::error_of<ConfigError>([&] { device_counts_of(text, cluster); }), "") << text;
  for (const char* text : {"", "12", "h", "-3h", "1e99d"})
    EXPECT_NE(testing::error_of<ConfigError>([&] { seconds_of_duration(text); }), "") << text;
  EXPECT_EQ(seconds_of_duration("1.5h"), 5400);
  EXPECT_EQ(device_counts_of("1..12", cluster), (std::vector<int64_t>{1, 2, 4, 8, 12}));
}

}  // namespace
}  // namespace weft
