// What weft bench machine measures, by a clock that is made up.
#include <gtest/gtest.h>

#include <set>

#include "support.h"
#include "weft/apps/backends.h"
#include "weft/apps/bench_run.h"
#include "weft/apps/measure_machine.h"
#include "weft/plan/run_plan.h"
#include "weft/train/train_on_ranks.h"

namespace weft {
namespace {

constexpr double kTick = 1e-3;  // seconds, from one look at rank 0's clock to the next; at that of rank 1 twice as many

Machine cpu() {
  Recipe recipe;
  recipe.run.threads = 1;
  return machine_for(recipe);
}

// Calls body on each rank, and returns what it made on rank 0.
template <class T>
T on_ranks(const MeshSizes& sizes, const std::function<T(const MeasuringRank&)>& body) {
  const Machine machine = cpu();
  T result;
  run_on_threads(sizes, *machine.mover, [&](const ProcessMesh& mesh) {
    double now = 0;
    const int rank = mesh.world->rank();
    T mine = body({.machine = machine,
                   .mesh = mesh,
                   .now_s = [&now, rank] { return now += kTick * (rank + 1); },
                   .iters = 1,
                   .most_tokens = 16});
    if (rank == 0) result = std::move(mine);
  });
  return result;
}

TEST(TypicalTime, IsTheMedianOrWhereRanksTakeTurnsTheMean) {
  EXPECT_EQ(typical_s({1, 100, 2, 3, 4}, false), 3);
  EXPECT_EQ(typical_s({1, 100, 2, 3, 4}, true), 22);
}

TEST(MeasureRates, AreFlopsByTheMeanTimeOfTheRanksWhateverTheShape) {
  const auto grids = on_ranks<std::vector<RateGrid>>({.dp = 2}, [](auto& rank) { return measure_rates(rank, kF32); });
  ASSERT_EQ(grids.size(), 7u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(grids[i].op, "matmul");
  EXPECT_EQ(grids[0].form + grids[1].form + grids[2].form, "ntnntn");
  for (const RateGrid& g : grids) {
    ASSERT_EQ(g.flops_per_s.size(), g.m.size() * g.n.size() * g.k.size()) << g.op;
    if (g.op == "attention" || g.op == "attention_backward") continue;
    const double experts = g.op == "matmul" ? 1 : 4;
    for (const double m : g.m)
      for (const double n : g.n)
        for (const double k : g.k)
          EXPECT_NEAR(g.of(m, n, k) / (2 * m * n * k * experts / (1.5 * kTick)), 1, 1e-9) << g.op;
  }
  const RateGrid& attention = grids[5];  // one sequence of 64 tokens, 4 heads
  EXPECT_EQ(attention.op, "attention");
  EXPECT_NEAR(attention.of(1, 64, 32) / (4.0 * 32 * 4 * (64 * 65 / 2) / (1.5 * kTick)), 1, 1e-9);
  EXPECT_NEAR(grids[6].of(1, 64, 128) / attention.of(1, 64, 128), 2, 1e-9);  // backward has twice the flops
}

TEST(MeasureCollectives, AreByTheBytesThatLeaveARank) {
  const auto curves = on_ranks<std::vector<CollectiveCurve>>(
      {.dp = 2, .shards = 2}, [](auto& rank) { return measure_collectives(rank, false); });
  ASSERT_EQ(curves.size(), 4u);
  for (const CollectiveCurve& c : curves) {
    const bool send = c.kind == Traffic::Kind::send, halves = !send && c.kind != Traffic::Kind::all_reduce;
    EXPECT_EQ(c.ranks, 2);
    EXPECT_NEAR(c.curve.at.front(), halves ? 128 : 256, 1e-6);  // of a tensor of 256 bytes
    EXPECT_NEAR(c.curve.at.back(), halves ? 1 << 15 : 1 << 16, 1e-3);
    for (const double s : c.curve.seconds) EXPECT_NEAR(s, (send ? 0.75 : 1.5) * kTick, 1e-12);  // send: one way of two
  }
}

TEST(MeasureCollectives, OfMessagesAreTheMeanOfTheRanksThatSendAndByTheBytesThatTheySend) {
  const auto curves = on_ranks<std::vector<CollectiveCurve>>(
      {.dp = 3, .shards = 3}, [](auto& rank) { return measure_collectives(rank, false); });
  ASSERT_EQ(curves.size(), 4u);
  for (const CollectiveCurve& c : curves) {
    const bool send = c.kind == Traffic::Kind::send;  // the third rank has nobody to send to
    for (const double s : c.curve.seconds) EXPECT_NEAR(s, (send ? 0.75 : 2) * kTick, 1e-12) << name_of(c.kind);
    const double sent = send ? 252 : c.kind == Traffic::Kind::all_reduce ? 336 : 168;  // 63 numbers of f32: 21 a rank
    EXPECT_NEAR(c.curve.at.front(), sent, 1e-6) << name_of(c.kind);
  }
}

TEST(MeasureHosts, OfOtherNumbersOfRanksAreRefusedOnEveryRank) {
  const auto refusal = [](const std::vector<int>& here) {
    return on_ranks<std::string>({.dp = 4}, [&](auto& rank) {
      return testing::error_of<ConfigError>(
          [&] { require_hosts_alike(*rank.mesh.world, here[size_t(rank.mesh.world->rank())]); });
    });
  };
  EXPECT_EQ(refusal({3, 3, 3, 1}),
            "one host has 1 of these ranks, another 3; what works: as many on each, as in mpirun --map-by ppr:1:node");
  const Machine machine = cpu();
  run_on_threads({.dp = 4}, *machine.mover,
                 [](const ProcessMesh& mesh) { EXPECT_NO_THROW(require_hosts_alike(*mesh.world, 2)); });
  EXPECT_FALSE(goes_over_hosts(2, 4));
  EXPECT_TRUE(goes_over_hosts(2, 3));  // ranks 2 and 3 are on two hosts
  EXPECT_TRUE(goes_over_hosts(4, 2));
}

TEST(MeasureSteps, TimeEveryOpThatCostsBytes) {
  const TimedModel model = timed_models(16, 1)[0];
  Recipe recipe = recipe_of(model, PrecisionChoice::f32);
  const SyntheticTokens tokens(recipe, model.vocabulary);
  const auto times = on_ranks<StepTimes>({}, [&](auto& rank) { return measure_steps(rank, recipe, config_of(model)); });
  std::set<std::string> names;
  for (const TimedOp& op : times.ops) {
    EXPECT_NEAR(op.seconds, kTick, 1e-9) << op.op;
    EXPECT_GT(op.bytes, 0) << op.op;
    names.insert(op.op);
  }
  for (const char* op : {"norm", "norm_backward", "rope", "gated_unit_backward", "cross_entropy", "embed", "adamw"})
    EXPECT_EQ(names.count(op), 1u) << op;
  for (const char* op : {"matmul", "attention", "attention_backward"}) EXPECT_EQ(names.count(op), 0u) << op;
  EXPECT_TRUE(times.gap_s.has_value());
}

TEST(TimedModels, CanBePlannedOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    bool cut = false, shared = false, sharded = false;
    for (const int64_t tokens : {16, 2048})
      for (const TimedModel& model : timed_models(tokens, ranks)) {
        const Recipe recipe = recipe_of(model, PrecisionChoice::bf16);
        EXPECT_NO_THROW(prepare_run(recipe, config_of(model), 0)) << model.family << " " << model.width;
        EXPECT_LE(model.tokens, tokens);
        cut |= model.tp == ranks;
        shared |= model.cp == ranks;
        sharded |= model.dp == ranks;
      }
    EXPECT_EQ(cut, ranks != 3) << ranks;  // heads divide by 2 and 4
    EXPECT_EQ(shared, ranks != 3) << ranks;
    EXPECT_TRUE(sharded) << ranks;
  }
}

}  // namespace
}  // namespace weft
