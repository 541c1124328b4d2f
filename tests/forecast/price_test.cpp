// The time of a step: its parts, its pipeline, and what may never make it slower.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/forecast.h"
#include "weft/plan/recompute_budget.h"

namespace weft {
namespace {

using testing::error_of;

HfConfig small_model(int layers) {
  HfConfig config;
  config.has_folder = false;
  config.spec = {.vocab_size = 512,
                 .width = 256,
                 .num_layers = layers,
                 .num_heads = 8,
                 .num_kv_heads = 8,
                 .head_dim = 32,
                 .ffn_width = 512,
                 .max_positions = 128};
  config.spec.rope = RopeSpec{};
  return config;
}

Recipe recipe_with(int64_t dp, int64_t tp, int64_t pp) {
  Recipe r;
  r.model.path = "small";
  r.train.seq_length = 128;
  r.train.global_batch_size = 64;
  r.train.micro_batch_size = 1;
  r.train.precision = PrecisionChoice::bf16;
  r.parallel.dp = dp;
  r.parallel.tp = tp;
  r.parallel.pp = pp;
  return r;
}

RunForecast forecast(const Recipe& r, const ClusterSpec& cluster, int layers = 8) {
  return forecast_run(r, small_model(layers), cluster, Profiles({ProgramProfile()}));
}

// By neutral numbers: those of a program whose kernels wait for each other hide what faster products gain.
RunForecast neutral(const Recipe& r, const ClusterSpec& cluster) {
  ProgramProfile profile;
  profile.launch_us = 0;
  return forecast_run(r, small_model(8), cluster, Profiles({profile}));
}

double parts_of(const StepForecast& f) { return f.compute() + f.launch_s + f.exposed() + f.bubble_s + f.slowdown_s; }

// What a program waits between kernels grows with their number, not with the work of a micro-batch.
TEST(Price, GapsBetweenKernelsAreForgottenWithLargerMicroBatches) {
  ProgramProfile waits;
  waits.launch_us = 0;
  waits.gap_us = 100;
  const auto added_by = [&](int64_t micro_batch) {
    Recipe r = recipe_with(1, 1, 1);
    r.train.micro_batch_size = micro_batch;
    const ClusterSpec cluster = preset_of("H100-SXM");
    const StepForecast with = forecast_run(r, small_model(8), cluster, Profiles({waits})).step;
    EXPECT_NEAR(parts_of(with) / with.step_s, 1, 1e-9);
    return with.step_s - neutral(r, cluster).step.step_s;
  };
  EXPECT_GT(added_by(1), 0);
  EXPECT_NEAR(added_by(4), added_by(1) / 4, 0.01 * added_by(1));
}

// Ranks of tp wait for late ones at each of their collectives, whatever its bytes; nothing hides that.
TEST(Price, WaitsAtEachCollectiveOfTp) {
  ProgramProfile waits;
  waits.tp_wait_us = 1000;
  for (const int64_t micro_batch : {1, 4}) {
    Recipe r = recipe_with(1, 2, 1);
    r.train.micro_batch_size = micro_batch;
    const RunForecast without = forecast(r, preset_of("H100-SXM"));
    double calls = 0;
    for (const ActionWork& action : without.work.kinds[0].actions)
      for (const TransferWork& t : action.transfers)
        if (t.axis == "tp") calls += double(t.calls * action.times);
    const StepForecast with = price_step(without.work, waits);
    EXPECT_GE(calls * double(micro_batch), 4 * 8);  // two a layer, forward and backward
    EXPECT_NEAR(with.step_s - without.step.step_s, calls * 1e-3, 1e-9);
    EXPECT_NEAR(with.exposed_s.at("tp") - without.step.exposed_s.at("tp"), calls * 1e-3, 1e-9);
  }
  const RunForecast alone = forecast(recipe_with(1, 1, 1), preset_of("H100-SXM"));
  EXPECT_EQ(price_step(alone.work, waits).step_s, alone.step.step_s);
}

// Without sequence parallelism all ranks of tp have what a stage sends on: a program may send a slice from each of them
// over the network, to be gathered within the node.
TEST(Price, StagesSendSlicesWhereAProgramDoes) {
  ProgramProfile slices;
  slices.slices = 1;
  slices.pp_exposed = 1;
  ProgramProfile whole = slices;
  whole.slices = 0;
  ClusterSpec cluster = preset_of("H100-SXM");
  cluster.devices_per_node = cluster.domain = 4;
  const auto exposed = [&](const Recipe& r, const ProgramProfile& profile) {
    return price_step(forecast(r, cluster).work, profile).exposed_s.at("pp");
  };
  Recipe r = recipe_with(1, 4, 2);
  r.parallel.sequence_parallel = false;
  const double bytes = 128 * 256 * 2;  // of a micro-batch, in 16 bits
  const auto seconds = [&](Exchange what, double part, const AxisSpread& spread) {
    return seconds_of(link_time(what, part * bytes, spread, cluster), slices.network, slices.hop_us * 1e-6);
  };
  const AxisSpread two_nodes{.ranks = 2, .in_domain = 1}, node{.ranks = 4, .in_domain = 4};
  EXPECT_NEAR(exposed(r, slices) - exposed(r, whole),
              64 * (seconds(Exchange::message, 1.0 / 4, two_nodes) + seconds(Exchange::gather, 3.0 / 4, node) -
                    seconds(Exchange::message, 1, two_nodes)),
              1e-9);
  for (const bool alone : {true, false}) {  // each rank has its own part, or all
    Recipe other = recipe_with(1, alone ? 1 : 4, 2);
    EXPECT_EQ(exposed(other, slices), exposed(other, whole)) << alone;
  }
}

// InternEvo broadcasts each rank's new weights by themselves, so that what it waits grows with ranks, not with nodes.
TEST(Price, PartsThatGoRankByRankPayForEachRank) {
  ProgramProfile by_rank;
  by_rank.by_rank = 1;
  by_rank.reduce_hidden = 0;
  ProgramProfile ring = by_rank;
  ring.by_rank = 0;
  Recipe r = recipe_with(64, 1, 1);
  r.parallel.zero_stage = 1;
  const RunWork work = forecast(r, preset_of("H100-SXM")).work;  // eight nodes
  double calls = 0;
  const auto count = [&](const std::vector<TransferWork>& transfers, double times) {
    for (const TransferWork& t : transfers)
      if (t.kind != Traffic::Kind::all_reduce) calls += double(t.calls) * times;
  };
  count(work.kinds[0].end_transfers, 1);
  for (const ActionWork& a : work.kinds[0].actions) count(a.transfers, double(a.times));
  EXPECT_GE(calls, 2);  // gradients and weights
  const double more = price_step(work, by_rank).step_s - price_step(work, ring).step_s;
  EXPECT_NEAR(more / (calls * (63 - 7) * ring.hop_us * 1e-6), 1, 0.1);  // messages of middling size lose a little more
}

TEST(Price, ThePartsAddUpToTheStep) {
  for (const Recipe& r : {recipe_with(1, 1, 1), recipe_with(2, 2, 1), recipe_with(2, 2, 4), recipe_with(4, 1, 2)}) {
    const StepForecast step = forecast(r, preset_of("H100-SXM")).step;
    EXPECT_GT(step.step_s, 0);
    EXPECT_NEAR(parts_of(step) / step.step_s, 1, 1e-9);
  }
}

// Inner stages of 1f1b have blocks alike, and compute other ones of them again.
TEST(Price, AMemoryBudgetCostsWhatEachStageComputesAgain) {
  const ClusterSpec cluster = preset_of("H100-SXM");
  Recipe none = recipe_with(1, 1, 4), full = none, budget = none;
  full.parallel.recompute = RecomputeKind::full;
  budget.parallel.recompute = RecomputeKind::budget;
  const RunPlan plan = prepare_run(none, small_model(16), 0);
  const RecomputeRange range = recompute_range(none, plan, WorkspaceModel());
  const int64_t bytes = (range.least + range.most) / 2;
  budget.parallel.memory_budget = fmt::format("{}", bytes);
  const RunForecast chosen = forecast(budget, cluster, 16);
  EXPECT_LT(forecast(none, cluster, 16).step.step_s, chosen.step.step_s);
  EXPECT_LT(chosen.step.step_s, forecast(full, cluster, 16).step.step_s);
  EXPECT_NE(chosen.work.kind_of[1], chosen.work.kind_of[2]);
  for (const StageWork& stage : chosen.work.kinds) EXPECT_LE(stage.memory_bytes, bytes);
}

// A step by hand: stages that compute a second forward and two backward, and send nothing.
RunWork plain_pipeline(int stages, int64_t num_micro_batches) {
  RunWork run{.mesh = {.pp = stages},
              .pipeline = make_pipeline(ScheduleKind::one_f_one_b, stages),
              .num_micro_batches = num_micro_batches,
              .tokens = 1};
  ComputeWork forward, backward;
  forward[WorkClass::memory] = 1;
  backward[WorkClass::memory] = 2;
  run.kinds.push_back({.actions = {{Do::forward, 0, num_micro_batches, forward, {}},
                                   {Do::backward, 0, num_micro_batches, backward, {}}}});
  run.kind_of.assign(size_t(stages), 0);
  return run;
}

TEST(Price, TheBubbleOfEqualStagesIsThatOf1F1B) {
  ProgramProfile plain;
  plain.memory = 1;
  for (const int64_t m : {4, 9, 64, 1001}) {  // the long ones are run at two short lengths
    const StepForecast step = price_step(plain_pipeline(4, m), plain);
    EXPECT_NEAR(step.bubble_s, 3 * 3, 1e-9) << m;
    EXPECT_NEAR(step.step_s, 3.0 * double(m) + 9, 1e-6) << m;
    EXPECT_NEAR(bubble_factor(plain_pipeline(4, m), plain), 1, 1e-9) << m;
  }
}

TEST(Price, MicroBatchesThatDoNotFillTheLastRoundAreCounted) {
  Recipe r = recipe_with(1, 1, 4);
  r.parallel.pipeline_schedule = ScheduleKind::interleaved_1f1b;
  r.parallel.virtual_pipeline_parallel_size = 2;
  r.train.global_batch_size = 4 * 7 + 3;
  RunForecast f = forecast(r, preset_of("H100-SXM"));
  const Timeline whole = timeline_of(f.work, f.profile, 1000);
  const double end = f.step.step_s - f.step.bubble_s -
                     std::accumulate(whole.ranks[3].begin(), whole.ranks[3].end(), 0.0,
                                     [](double sum, const TimedAction& a) { return sum + a.end - a.start; });
  EXPECT_NEAR(f.step.step_s, whole.makespan + end, 0.01 * f.step.step_s);
}

TEST(Price, MoreBandwidthIsNeverSlower) {
  for (const Recipe& r : {recipe_with(4, 2, 1), recipe_with(16, 1, 1), recipe_with(2, 2, 4)})
    for (const double factor : {1.5, 4.0}) {
      const ClusterSpec base = preset_of("H100-SXM");
      const double before = neutral(r, base).step.step_s;
      ClusterSpec faster = base;
      faster.scale_up.bytes_per_s *= factor;
      EXPECT_LE(neutral(r, faster).step.step_s, before * (1 + 1e-12));
      faster = base;
      faster.scale_out.bytes_per_s *= factor;
      EXPECT_LE(neutral(r, faster).step.step_s, before * (1 + 1e-12));
      faster = base;
      faster.device.products.bits16 *= factor;
      EXPECT_LT(neutral(r, faster).step.step_s, before);
      faster = base;
      faster.device.memory_bytes_per_s *= factor;
      EXPECT_LE(neutral(r, faster).step.step_s, before * (1 + 1e-12));
    }
}

TEST(Price, AnAxisThatLeavesTheNodeCostsMore) {
  Recipe r = recipe_with(1, 8, 1);
  ClusterSpec one = preset_of("H100-SXM"), split = one;
  split.devices_per_node = split.domain = 4;
  EXPECT_GT(forecast(r, split).step.exposed_s.at("tp"), 2 * forecast(r, one).step.exposed_s.at("tp"));
}

TEST(Spread, SaysHowManyRanksOfAnAxisAreInANode) {
  const MeshSizes mesh{.dp = 4, .pp = 2, .cp = 2, .tp = 4, .ep = 2};
  EXPECT_EQ(spread_of(mesh, "tp", 8).in_domain, 4);
  EXPECT_TRUE(spread_of(mesh, "tp", 8).is_inside());
  EXPECT_EQ(spread_of(mesh, "cp", 8).in_domain, 2);
  EXPECT_EQ(spread_of(mesh, "dp", 8).ranks, 4);
  EXPECT_EQ(spread_of(mesh, "dp", 8).in_domain, 1);
  EXPECT_EQ(spread_of(mesh, "dp_cp", 8).in_domain, 2);
  EXPECT_FALSE(spread_of(mesh, "pp", 8).is_inside());
  EXPECT_TRUE(spread_of(mesh, "ep", 8).is_inside());
  MeshSizes beside = mesh;
  beside.frozen_ep = beside.frozen_shards = 8;
  EXPECT_EQ(spread_of(beside, "frozen_ep", 8).ranks, 8);
  EXPECT_EQ(spread_of(beside, "frozen_shards", 8).ranks, 8);
  EXPECT_EQ(spread_of(beside, "frozen_shards", 8).in_domain, 2);
  EXPECT_EQ(spread_of(beside, "ep", 8).ranks, 2);
  const MeshSizes apart{.dp = 8, .teacher = TeacherAxes{.pp = 2, .tp = 4}};
  EXPECT_EQ(spread_of(apart, "teacher_tp", 2).ranks, 4);
  EXPECT_EQ(spread_of(apart, "teacher_tp", 2).in_domain, 2);
  EXPECT_EQ(spread_of(apart, "teacher_pp", 8).ranks, 2);
}

// The teacher's or reference's weights come together as often as they are read.
TEST(Forecast, ShardsOfAFrozenModelTakeItsMemoryAndAddItsTraffic) {
  const auto with = [](int64_t shards) {
    Recipe r = recipe_with(8, 1, 1);
    r.train.objective = ObjectiveKind::dpo;
    r.parallel.frozen_shard_size = shards;
    return forecast(r, preset_of("H100-SXM"));
  };
  const RunForecast whole = with(0), cut = with(8);
  EXPECT_LT(cut.memory_bytes(), whole.memory_bytes());
  EXPECT_GT(cut.work.kinds[0].before.transfers.size(), whole.work.kinds[0].before.transfers.size());
}

TEST(Forecast, ExpertsTakeTheTimeOfTheRowsThatComeAndTheMemoryOfThoseThatMay) {
  HfConfig config = small_model(2);
  config.spec.experts = {.count = 8, .chosen = 2, .width = 512};
  LayerSpec block = config.spec.layer(0);
  block.experts = true;
  config.spec.layers.assign(2, block);
  const auto with = [&](std::optional<double> capacity) {
    Recipe r = recipe_with(8, 1, 1);
    r.parallel.ep = 4;
    r.moe.capacity_factor = capacity;
    return forecast_run(r, config, preset_of("H100-SXM"), Profiles({ProgramProfile()}));
  };
  const RunForecast room_for_all = with({}), balanced = with(1);
  EXPECT_GT(balanced.step.compute_s[size_t(WorkClass::grouped)], 0);
  EXPECT_EQ(room_for_all.step.step_s, balanced.step.step_s);
  const auto grouped = size_t(WorkClass::grouped);  // of which launches hide much in so small a step
  EXPECT_EQ(room_for_all.step.compute_s[grouped], balanced.step.compute_s[grouped]);
  EXPECT_GT(room_for_all.memory_bytes(), balanced.memory_bytes());
}

TEST(Forecast, MoreRanksThanDevicesAreRefusedWithWhatFits) {
  ClusterSpec cluster = preset_of("H100-SXM");
  cluster.num_devices = 8;
  EXPECT_NE(error_of<ConfigError>([&] {
              forecast(recipe_with(16, 1, 1), cluster);
            }).find("the layout has 16 ranks, the cluster 8 devices; what fits: parallel.dp = "),
            std::string::npos);
}

TEST(Forecast, WhatIsNotPricedIsRefused) {
  Recipe r = recipe_with(1, 1, 1);
  r.phases.push_back({.from_step = 5, .settings = {{"train.seq_length", "64"}}, .require = {}});
  EXPECT_NE(error_of<ConfigError>([&] { forecast(r, preset_of("H100-SXM")); }).find("steps that are alike"),
            std::string::npos);
  ClusterSpec alone = preset_of("H100-SXM");
  alone.scale_out = {};
  EXPECT_NE(error_of<ConfigError>([&] { forecast(recipe_with(16, 1, 1), alone); }).find("does not say scale_out.gb_s"),
            std::string::npos);
}

// The model itself and its reference, forward: as often as a step's own forward, two times. On stages, the passes
// follow each other as micro-batches do.
TEST(Forecast, PassesOfFrozenModelsTakeTheirTime) {
  for (const int64_t pp : {1, 2}) {
    Recipe r = recipe_with(1, 1, pp);
    r.train.objective = ObjectiveKind::dpo;
    const RunForecast f = forecast(r, preset_of("H100-SXM"));
    const StageWork& stage = f.work.kinds.back();  // with the head
    double forward = 0;
    for (const ActionWork& a : stage.actions)
      if (a.what == Do::forward) forward += double(a.times) * a.compute[WorkClass::attention];
    EXPECT_GT(forward, 0);
    EXPECT_NEAR(stage.before.compute[WorkClass::attention], 2 * forward, 1e-9 * forward) << pp;
    EXPECT_NEAR(parts_of(f.step), f.step.step_s, 1e-9 * f.step.step_s) << pp;
    RunWork without = f.work;
    for (StageWork& kind : without.kinds) kind.before = {};
    const double passes = f.step.step_s - price_step(without, f.profile).step_s;
    EXPECT_GT(passes, 0.5 * price_step(without, f.profile).step_s * 2 / 3) << "two forward of a step of three";
  }
}

// Its embedding on some data ranks of the student, and its head with what it finds on others.
struct BesideTeacher {
  explicit BesideTeacher(int64_t teacher_pp, int64_t dp = 4, int64_t pp = 1) : recipe(recipe_with(dp, 1, pp)) {
    config.teacher = std::make_shared<const HfConfig>(small_model(8));
    recipe.train.objective = ObjectiveKind::distill;
    recipe.objective.teacher = "large";
    recipe.objective.top_k = 16;
    recipe.parallel.teacher_pp = teacher_pp;
  }
  RunForecast forecast() const {
    return forecast_run(recipe, config, preset_of("H100-SXM"), Profiles({ProgramProfile()}));
  }
  HfConfig config = small_model(2);
  Recipe recipe;
};

TEST(Forecast, TheFullestRankBesideATeacherWithStagesOfItsOwnCounts) {
  for (const int64_t pp : {1, 2}) {
    const BesideTeacher c(4, 4, pp);
    int64_t most = 0, least = INT64_MAX;
    for (int rank = 0; rank < 4 * int(pp); ++rank) {
      const int64_t bytes = plan_run(c.recipe, c.config, WorkspaceModel(), rank).memory.total_bytes();
      most = std::max(most, bytes);
      least = std::min(least, bytes);
    }
    EXPECT_LT(least, most);
    EXPECT_EQ(c.forecast().memory_bytes(), most) << pp;
  }
}

// A round of micro-batches is exchanged before the next one begins: its stages wait for each other.
TEST(Forecast, ATeachersOwnStagesHaveOneMicroBatchAtATime) {
  const RunForecast f = BesideTeacher(4).forecast();
  RunWork without = f.work;
  without.kinds[0].before = {};
  const double passes = f.step.step_s - price_step(without, f.profile).step_s;
  RunWork one_stage = f.work;
  one_stage.mesh.teacher->pp = 1;
  const double of_a_stage = price_step(one_stage, f.profile).step_s - price_step(without, f.profile).step_s;
  EXPECT_NEAR(passes, 4 * of_a_stage, 1e-9 * f.step.step_s);
  EXPECT_NEAR(parts_of(f.step), f.step.step_s, 1e-9 * f.step.step_s);
}

// It is waited for, and not hidden behind what is computed meanwhile.
TEST(Price, WhatATeacherSendsOnItsOwnAxesIsExposedAsTheStudentsIs) {
  ProgramProfile plain;
  plain.tp_exposed = 0.5;
  plain.pp_exposed = 0.25;
  const auto exposed = [&](const std::string& axis) {
    RunWork run = plain_pipeline(1, 4);
    run.kinds[0].before = {
        .what = Do::forward,
        .times = 1,
        .compute = run.kinds[0].actions[0].compute,
        .transfers = {
            {.axis = axis, .kind = Traffic::Kind::all_reduce, .calls = 1, .each = {.inside_s = 1e-3}, .inside = true}}};
    return price_step(run, plain).exposed_s.at(axis);
  };
  EXPECT_GT(exposed("teacher_tp"), 0);
  EXPECT_EQ(exposed("teacher_tp"), exposed("tp"));
  EXPECT_EQ(exposed("teacher_pp"), exposed("pp"));
  EXPECT_EQ(exposed("world"), exposed("pp"));
}

TEST(Forecast, FiguresFollowFromTheStep) {
  const RunForecast f = forecast(recipe_with(2, 1, 1), preset_of("H100-SXM"));
  EXPECT_NEAR(f.tokens_per_s(), 64 * 128 / f.step.step_s, 1e-6);
  EXPECT_NEAR(f.tokens_per_s_per_device() * 2, f.tokens_per_s(), 1e-6);
  EXPECT_NEAR(f.price_per_step(), 2.95 / 3600 * 2 * f.step.step_s, 1e-12);
  EXPECT_NEAR(f.mfu(), f.work.arithmetic.model_flops / 989.4e12 / f.step.step_s, 1e-9);
  EXPECT_GT(f.memory_bytes(), 0);
  EXPECT_TRUE(f.fits());
}

TEST(Price, OnSpotDevicesPreemptionsCountBesideFailures) {
  ClusterSpec cluster = parse_cluster(
      "preset = \"H100-SXM\"\n[price]\nper_device_hour = 3.0\nspot_per_device_hour = 1.0\n"
      "preemptions_per_device_hour = 0.3\n[failures]\nper_device_hour = 0.2\n",
      "c.toml");
  const RunForecast f = forecast(recipe_with(2, 1, 1), cluster);
  EXPECT_NEAR(f.spot_failures().mean_s_between, 3600, 1e-6);  // two devices, each lost every two hours
  const int64_t steps = int64_t(36000 / f.step.step_s);
  const nlohmann::json json = to_json(f, steps);
  const FailureSpec lost = f.spot_failures();
  const double run_s = expected_run_s(f.step.step_s * double(steps), best_save_interval(lost), lost);
  EXPECT_NEAR(json["on_spot"]["run_s"].get<double>(), run_s, 1e-6 * run_s);
  EXPECT_NEAR(json["on_spot"]["price"].get<double>(), run_s / 3600 * 2, 1e-6 * run_s);
  EXPECT_SAYS(to_string(f, steps), "on spot devices");
  EXPECT_EQ(to_toml(parse_cluster(to_toml(cluster), "again")), to_toml(cluster));
  cluster.preemptions_per_device_hour = 0;
  EXPECT_FALSE(to_json(forecast(recipe_with(2, 1, 1), cluster), steps).contains("on_spot"));
}

}  // namespace
}  // namespace weft
