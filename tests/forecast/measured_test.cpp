// A machine that was measured: its curves, their file, and what is forecast of them.
#include <gtest/gtest.h>

#include <cmath>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/forecast.h"
#include "weft/plan/recompute_budget.h"

namespace weft {
namespace {

using testing::error_of;

TEST(Curve, PassesItsPointsAndNeverFallsBetweenThem) {
  const Curve curve{.at = {1e3, 1e5, 1e6}, .seconds = {1e-6, 2e-6, 4e-5}};
  for (size_t i = 0; i < curve.at.size(); ++i) EXPECT_NEAR(curve.of(curve.at[i]) / curve.seconds[i], 1, 1e-12);
  double before = 0;
  for (double size = 10; size < 1e8; size *= 1.1) {
    EXPECT_GE(curve.of(size), before) << size;
    before = curve.of(size);
  }
  EXPECT_DOUBLE_EQ(curve.of(1), 1e-6);                       // no op is quicker than its smallest
  EXPECT_NEAR(curve.of(1e9), 4e-2, 1e-9);                    // the last one's rate goes on
  EXPECT_NEAR(curve.of(1e4), std::sqrt(2.0) * 1e-6, 1e-12);  // halfway by powers
}

TEST(Curve, OfEqualTimesNeverFallsByWhatIsRounded) {
  for (const double s : {5e-6, 3e-7, 1.1e-5, 7.3e-4}) {
    const Curve curve{.at = {1e4, 1e10}, .seconds = {s, s}};
    for (double size = 1e4; size < 1e10; size *= 1.7) EXPECT_EQ(curve.of(size), s) << size;
  }
  for (const double last : {3.0, 49.0, 1e7 / 3}) {
    const Curve curve{.at = {1, last}, .seconds = {1e-6, 1.1e-6}};
    EXPECT_EQ(curve.of(last), 1.1e-6);
    EXPECT_GE(curve.of(std::nextafter(last, 1e9)), 1.1e-6);
  }
}

TEST(RateGrid, LiesBetweenThePointsAroundAndStaysBeyondTheOutermost) {
  const RateGrid grid{.op = "matmul",
                      .dtype = "f32",
                      .form = "nt",
                      .m = {16, 64},
                      .n = {16, 64, 256},
                      .k = {32},
                      .flops_per_s = {1e9, 2e9, 3e9, 4e9, 5e9, 6e9}};
  EXPECT_NEAR(grid.of(16, 64, 32), 2e9, 1);
  EXPECT_NEAR(grid.of(64, 256, 32), 6e9, 1);
  EXPECT_NEAR(grid.of(32, 16, 32), 2e9, 1);  // between 1 and 4, by powers
  EXPECT_NEAR(grid.of(1, 1, 1), 1e9, 1);
  EXPECT_NEAR(grid.of(1e6, 1e6, 1e6), 6e9, 1);
  double before = 0;
  for (double n = 8; n < 1000; n *= 1.2) {
    EXPECT_GE(grid.of(64, n, 32), before);
    before = grid.of(64, n, 32);
  }
}

TEST(MeasuredCurves, AreTheMeansOfOpsAlikeAndNeverQuickerForMore) {
  const auto curves = curves_of({{"norm", "f32", 1000, 2e-6},
                                 {"norm", "f32", 1010, 4e-6},
                                 {"norm", "f32", 8000, 9e-6},
                                 {"norm", "f32", 4000, 11e-6},
                                 {"norm", "bf16,f32", 500, 1e-6},
                                 {"add", "f32", 100, 1e-6}});
  ASSERT_EQ(curves.size(), 3u);
  EXPECT_EQ(curves[0].op, "add");
  const OpCurve& norm = curves[2];
  EXPECT_EQ(norm.dtypes, "f32");
  ASSERT_EQ(norm.curve.at.size(), 3u);
  EXPECT_NEAR(norm.curve.at[0], 1005, 1);
  EXPECT_NEAR(norm.curve.seconds[0], 3e-6, 1e-15);
  EXPECT_NEAR(norm.curve.seconds[1], 1e-5, 1e-15);  // 11 and 9, in the wrong order
  EXPECT_NEAR(norm.curve.seconds[2], 1e-5, 1e-15);
}

HfConfig four_layers() {
  HfConfig config;
  config.has_folder = false;
  config.spec = {.vocab_size = 512,
                 .width = 256,
                 .num_layers = 4,
                 .num_heads = 8,
                 .num_kv_heads = 8,
                 .head_dim = 32,
                 .ffn_width = 512,
                 .max_positions = 128};
  config.spec.rope = RopeSpec{};
  return config;
}

Recipe local_recipe(int64_t dp, int64_t tp, int64_t pp) {
  Recipe r;
  r.model.path = "small";
  r.train.seq_length = 128;
  r.train.global_batch_size = 8;
  r.train.micro_batch_size = 1;
  r.train.precision = PrecisionChoice::f32;
  r.parallel.dp = dp;
  r.parallel.tp = tp;
  r.parallel.pp = pp;
  return r;
}

constexpr Traffic::Kind kTrafficKinds[] = {Traffic::Kind::all_reduce, Traffic::Kind::all_gather,
                                           Traffic::Kind::reduce_scatter, Traffic::Kind::send};

// Each rank of 2 has half of what one has: products of 1e11 flop/s alone, any op 10 ps a byte, any collective 100 ps.
ClusterSpec synthetic_machine() {
  ClusterSpec c;
  c.device.name = "made up";
  c.device.peak = c.device.products = {.bits16 = 1e11, .f32 = 1e11};
  c.device.memory_bytes = 1e9;
  c.device.memory_bytes_per_s = 1e10;
  c.devices_per_node = c.domain = c.num_devices = 2;
  c.scale_up.bytes_per_s = 1e10;
  for (const int ranks : {1, 2}) {
    MeasuredRanks m{.ranks = ranks, .threads = 2 / ranks};
    for (const char* op : {"matmul", "attention", "attention_backward"})
      m.rates.push_back(
          {.op = op, .dtype = "f32", .form = "", .m = {1}, .n = {1}, .k = {1}, .flops_per_s = {1e11 / ranks}});
    for (const char* op : {"norm", "norm_backward", "add", "rope", "gated_unit", "gated_unit_backward", "gelu",
                           "gelu_backward", "adamw", "cross_entropy", "embed", "embed_backward", "zero", "sum_squares"})
      m.ops.push_back({.op = op, .dtypes = "f32", .curve = {{1e3, 1e6}, {1e-8 * ranks, 1e-5 * ranks}}});
    for (const Traffic::Kind kind : kTrafficKinds)
      if (ranks > 1) m.collectives.push_back({.kind = kind, .ranks = 2, .curve = {{1e3, 1e6}, {1e-7, 1e-4}}});
    c.measured.push_back(m);
  }
  return c;
}

RunForecast forecast_here(const Recipe& r, const ClusterSpec& cluster) {
  return forecast_run(r, four_layers(), cluster, Profiles::built_in());
}

TEST(MeasuredMachine, AStepIsTheSumOfItsOpsAndGaps) {
  ClusterSpec c = synthetic_machine();
  const Recipe r = local_recipe(1, 1, 1);
  const RunForecast plain = forecast_here(r, c);
  double seconds = 0;
  int64_t ops = 0;
  for (const auto& [name, op] : work_by_op(prepare_run(r, four_layers(), 0), c)) seconds += op.seconds, ops += op.count;
  EXPECT_NEAR(plain.step.step_s / seconds, 1, 1e-9);
  EXPECT_NEAR(plain.step.step_s, plain.step.compute(), 1e-12);
  c.measured[0].gap_s = 1e-6;
  EXPECT_NEAR(forecast_here(r, c).step.step_s - seconds, double(ops) * 1e-6, 1e-9);
}

// The table of bench forecast and its first line: of one step, with the rows of experts that come, and with what a
// budget computes again.
TEST(MeasuredMachine, TheOpsOfAForecastAreThoseOfItsStep) {
  HfConfig experts = four_layers();
  experts.spec.experts = {.count = 4, .chosen = 2, .width = 256};
  LayerSpec block = experts.spec.layer(0);
  block.experts = true;
  experts.spec.layers.assign(4, block);
  Recipe spread = local_recipe(2, 1, 1), budget = local_recipe(1, 1, 1);
  spread.parallel.ep = 2;
  const RecomputeRange range = recompute_range(budget, prepare_run(budget, four_layers(), 0), WorkspaceModel());
  budget.parallel.recompute = RecomputeKind::budget;
  budget.parallel.memory_budget = fmt::format("{}", (range.least + range.most) / 2);
  const ClusterSpec c = synthetic_machine();
  for (const auto& [recipe, config] : {std::pair(spread, experts), std::pair(budget, four_layers())}) {
    double seconds = 0;
    for (const auto& [name, op] : work_by_op(forecast_plan(recipe, config), c)) seconds += op.seconds;
    EXPECT_NEAR(forecast_run(recipe, config, c, Profiles::built_in()).step.compute() / seconds, 1, 1e-9);
  }
}

TEST(MeasuredMachine, ProductsTakeTheRateOfTheirShapeTypeAndForm) {
  StepOp op{.region = "", .name = "matmul", .operands = {}, .flops = 2e9, .bytes = 1};
  op.product = {.m = 100, .n = 100, .k = 100000, .trans_a = false, .trans_b = true};
  op.operands = {{"a", Role::in, DType::bf16, {100, 100000}}, {"out", Role::out, DType::f32, {100, 100}}};
  const auto grid = [](const char* dtype, const char* form, double rate) {
    return RateGrid{.op = "matmul", .dtype = dtype, .form = form, .m = {1}, .n = {1}, .k = {1}, .flops_per_s = {rate}};
  };
  const MeasuredRanks m{.rates = {grid("bf16", "nn", 1e9), grid("bf16", "nt", 2e9), grid("f32", "nt", 4e9)}};
  EXPECT_NEAR(m.seconds_of(op).value(), 1, 1e-12);
  op.product.trans_b = false;
  EXPECT_NEAR(m.seconds_of(op).value(), 2, 1e-12);
  op.operands[0].dtype = DType::f32;  // never measured in this form: as in another
  EXPECT_NEAR(m.seconds_of(op).value(), 0.5, 1e-12);
  op.operands[0].dtype = DType::f16;
  EXPECT_FALSE(m.seconds_of(op).has_value());
}

// The grids are measured on ops; that forecasts find them again is a matter of both saying the same.
TEST(MeasuredMachine, AttentionIsRatedByTheLengthOfItsSequences) {
  Arena counted("operands");
  const auto rows = [&] { return counted.alloc(DType::f32, {1024, 8 * 64}); };
  std::vector<AttentionSpan> spans;
  for (int64_t at = 0; at < 1024; at += 256)
    spans.push_back({.q_row = at, .q_count = 256, .k_row = at, .k_count = 256});
  const Attention op{.q = rows(),
                     .k = rows(),
                     .v = rows(),
                     .o = rows(),
                     .lse = counted.alloc(DType::f32, {1024, 8}),
                     .spans = spans,
                     .heads = {.q = 8, .kv = 8, .dim = 64, .total = 8}};
  const RatedOp rated = rated_op(step_op_of(op, "")).value();
  EXPECT_EQ(rated.m, 1);
  EXPECT_NEAR(rated.n, 257, 1e-9);  // the mean of 1 .. 256 keys, twice
  EXPECT_EQ(rated.k, 64);
}

TEST(MeasuredMachine, RanksAreForecastAsSoManyWereMeasured) {
  const ClusterSpec c = synthetic_machine();
  const RunForecast one = forecast_here(local_recipe(1, 1, 1), c), two = forecast_here(local_recipe(2, 1, 1), c);
  // Half of the work at half of the rate, an update that is not shared, and what was sent.
  EXPECT_GT(two.step.step_s, one.step.step_s);
  EXPECT_NEAR(two.step.compute() - two.step.compute_s[size_t(WorkClass::update)],
              one.step.compute() - one.step.compute_s[size_t(WorkClass::update)], 0.03 * one.step.step_s);
  EXPECT_GT(two.step.exposed(), 0);
  EXPECT_EQ(one.cluster.device.memory_bytes, 2e9);  // of the whole node
  EXPECT_EQ(two.cluster.device.memory_bytes, 1e9);
  EXPECT_EQ(two.peak_flops, 5e10);
}

TEST(MeasuredMachine, CollectivesTakeWhatWasMeasuredAndNothingHidesThem) {
  ClusterSpec c = synthetic_machine();
  for (const Recipe& r : {local_recipe(2, 1, 1), local_recipe(1, 2, 1), local_recipe(1, 1, 2)}) {
    const StepForecast before = forecast_here(r, c).step;
    ClusterSpec slower = c;
    for (CollectiveCurve& curve : slower.measured[1].collectives)
      for (double& s : curve.curve.seconds) s *= 2;
    const StepForecast after = forecast_here(r, slower).step;
    EXPECT_NEAR(after.exposed() / before.exposed(), 2, 1e-9);
    EXPECT_GT(after.step_s, before.step_s);
  }
  const StepForecast data = forecast_here(local_recipe(2, 1, 1), c).step;
  EXPECT_GT(data.exposed_s.at("dp"), 1e-3);  // gradients of 2.6 million weights
  c.program = {{"tp_exposed", 0.5}};         // but what the file says of the program holds
  EXPECT_NEAR(forecast_here(local_recipe(1, 2, 1), c).step.exposed_s.at("tp") /
                  forecast_here(local_recipe(1, 2, 1), synthetic_machine()).step.exposed_s.at("tp"),
              0.5, 1e-3);  // all but what the end of a step sends
}

TEST(MeasuredMachine, FasterOpsNeverMakeAStepSlower) {
  for (const Recipe& r : {local_recipe(1, 1, 1), local_recipe(2, 1, 1), local_recipe(1, 2, 1), local_recipe(1, 1, 2)}) {
    const ClusterSpec c = synthetic_machine();
    const double before = forecast_here(r, c).step.step_s;
    ClusterSpec faster = c;
    for (MeasuredRanks& m : faster.measured)
      for (RateGrid& g : m.rates) g.flops_per_s[0] *= 1.5;
    EXPECT_LT(forecast_here(r, faster).step.step_s, before);
    faster = c;
    for (MeasuredRanks& m : faster.measured)
      for (OpCurve& o : m.ops) o.curve.seconds[0] /= 2, o.curve.seconds[1] /= 2;
    EXPECT_LT(forecast_here(r, faster).step.step_s, before);
  }
}

TEST(MeasuredMachine, AFileThatWasPrintedIsTheSame) {
  ClusterSpec c = synthetic_machine();
  c.program = {{"reduce_hidden", 0.5}};
  c.measured[1].collectives[0].far = true;
  c.measured[1].processes = true;
  c.device.source = "a \"quoted\" \\ name,\nin two lines";
  c.measured[0].ops[0].op = "a\"b";
  c.measured[0].ops[0].curve.at = {1000000, 1000000.25};  // that differ in the last digit
  const std::string text = to_toml(c);
  const ClusterSpec again = parse_cluster(text, "c.toml");
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.device.source, c.device.source);
  EXPECT_EQ(again.measured[0].ops[0].op, "a\"b");
  EXPECT_EQ(again.measured[0].ops[0].curve.at, c.measured[0].ops[0].curve.at);
  EXPECT_NEAR(
      forecast_here(local_recipe(1, 1, 1), again).step.step_s / forecast_here(local_recipe(1, 1, 1), c).step.step_s, 1,
      1e-5);
}

TEST(MeasuredMachine, WhatWasNotMeasuredIsRefused) {
  ClusterSpec c = synthetic_machine();
  c.num_devices = 0;
  c.devices_per_node = c.domain = 8;
  const auto refused = [&](const Recipe& r) { return error_of<ConfigError>([&] { forecast_here(r, c); }); };
  EXPECT_NE(refused(local_recipe(4, 1, 1)).find("4 ranks on a node, and the cluster was measured with 2 at most"),
            std::string::npos);
  Recipe r = local_recipe(2, 1, 1);
  r.run.ranks = RanksKind::mpi;
  EXPECT_NE(refused(r).find("what works: run.ranks=\"local\""), std::string::npos);
  r = local_recipe(2, 1, 1);
  r.run.threads = 2;
  EXPECT_NE(refused(r).find("measured with 2 ranks of 1 on a node; what works: run.threads=0"), std::string::npos);
}

TEST(MeasuredMachine, AnotherPrecisionThanWasMeasuredIsRefused) {
  Recipe r = local_recipe(1, 1, 1);
  r.train.precision = PrecisionChoice::bf16;
  const std::string why = error_of<ConfigError>([&] { forecast_here(r, synthetic_machine()); });
  EXPECT_NE(why.find("train.precision = \"bf16\", but the cluster was measured in others alone"), std::string::npos);
}

// A file's text, with one piece replaced.
std::string refusal_with(const std::string& from, const std::string& to) {
  std::string text = to_toml(synthetic_machine());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return error_of<ConfigError>([&] { parse_cluster(text, "c.toml"); });
}

TEST(MeasuredFile, WhatContradictsItselfIsRefusedWithItsPlace) {
  EXPECT_NE(refusal_with("bytes = [1000, 1000000]", "bytes = [1000, 900]").find("must ascend"), std::string::npos);
  EXPECT_NE(refusal_with("us = [0.01, 10]", "us = [0.01, 0.001]").find("more bytes never take less"),
            std::string::npos);
  EXPECT_NE(refusal_with("us = [0.01, 10]", "us = [0.01]").find("us has 1 numbers; as many as its sizes are 2"),
            std::string::npos);
  EXPECT_NE(refusal_with("gflops = [100]", "gflops = [100, 200]").find("gflops has 2 numbers"), std::string::npos);
  EXPECT_NE(refusal_with("gflops = [100]", "gflops = [0]").find("a list of numbers from"), std::string::npos);
  EXPECT_NE(refusal_with("gflops = [100]", "gflops = []").find("a list of numbers from"), std::string::npos);
  EXPECT_NE(refusal_with("kind = \"send\"", "kind = \"broadcast\"").find("must be all-reduce, all-gather"),
            std::string::npos);
  EXPECT_NE(refusal_with("ranks = 2\nthreads", "ranks = 1\nthreads").find("two tables [[measured]] of 1 ranks"),
            std::string::npos);
  EXPECT_NE(
      refusal_with("devices_per_node = 2\ndomain = 2", "devices_per_node = 4\ndomain = 4").find("they must be equal"),
      std::string::npos);
  EXPECT_NE(refusal_with("[[measured]]", "[program]\ntp_exposd = 1\n[[measured]]").find("the nearest is tp_exposed"),
            std::string::npos);
  EXPECT_NE(refusal_with("dtypes = \"f32\"", "dtype = \"f32\"").find("the nearest is dtypes"), std::string::npos);
}

}  // namespace
}  // namespace weft
