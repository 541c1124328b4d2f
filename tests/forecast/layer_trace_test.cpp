// Cuts of a model's blocks by the times of a trace, beside all cuts that there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/layer_trace.h"
#include "weft/schedule/step_time.h"

namespace weft {
namespace {

using testing::error_of;

struct TracedRun {
  ModelSpec model;
  Pipeline pipeline;
  LayerTrace trace;
  int64_t num_micro_batches = 6;
  TracedCut at(const BlockLayout& blocks) const {
    return cut_as_traced(trace, model, pipeline, num_micro_batches, blocks);
  }
  std::optional<TracedCut> better(const BlockLayout& now) const {
    return better_cut_as_traced(trace, model, pipeline, num_micro_batches, now);
  }
};

// Blocks that took 1, 2, 1 seconds each on ranks of a pace of 1.
TracedRun traced_run(const Pipeline& pipeline, const BlockLayout& cut, const std::vector<double>& paces = {}) {
  TracedRun run{.model = {}, .pipeline = pipeline, .trace = {.machine = "two stoves", .cut = cut}};
  run.model.num_layers = std::accumulate(cut.begin(), cut.end(), int64_t{0});
  for (size_t v = 0; v < cut.size(); ++v)
    for (int64_t b = 0; b < cut[v]; ++b) {
      const double pace = paces.empty() ? 1 : paces[size_t(place_of(pipeline, int(v)).stage)];
      run.trace.blocks.push_back({pace, 2 * pace, pace});
    }
  return run;
}

double least_step_of_all(const TracedRun& run, BlockLayout blocks, size_t at, int64_t left) {
  if (at + 1 == blocks.size()) {
    blocks[at] = left;
    return run.at(blocks).step_s;
  }
  double least = 1e30;
  for (int64_t n = 1; n <= left - int64_t(blocks.size() - at - 1); ++n) {
    blocks[at] = n;
    least = std::min(least, least_step_of_all(run, blocks, at + 1, left - n));
  }
  return least;
}
double least_step_of_all(const TracedRun& run) {
  return least_step_of_all(run, BlockLayout(run.trace.cut.size()), 0, run.model.num_layers);
}

TEST(LayerTrace, TheCutThatWasTracedTakesWhatItTook) {
  TracedRun run = traced_run(pipeline_named("1f1b", 2), {3, 2}, {1, 2});
  run.trace.embedding = {0.5, 0, 0.25};
  run.trace.head = {0, 3, 0};
  const TracedCut cut = run.at({3, 2});
  ASSERT_EQ(cut.busy_s.size(), 2u);
  EXPECT_NEAR(cut.busy_s[0], 6 * (3 * 4 + 0.75), 1e-9);
  EXPECT_NEAR(cut.busy_s[1], 6 * (2 * 8 + 3), 1e-9);
  EXPECT_EQ(cut.counts, (std::vector<int64_t>{3, 2}));
  EXPECT_GT(cut.step_s, cut.busy_s[1]);
}

TEST(LayerTrace, ABlockTakesThePaceOfTheStageThatItGoesTo) {
  const TracedRun run = traced_run(pipeline_named("1f1b", 2), {3, 3}, {1, 3});
  EXPECT_NEAR(run.at({4, 2}).busy_s[0], 6 * 16, 1e-9);
  EXPECT_NEAR(run.at({2, 4}).busy_s[1], 6 * 48, 1e-9);
}

// What differs between blocks of two kinds is not the pace of their ranks.
TEST(LayerTrace, BlocksOfAnotherKindStayAsDearAnywhere) {
  TracedRun run = traced_run(pipeline_named("1f1b", 2), {2, 2});
  run.model.layers = {{.experts = false}, {.experts = false}, {.experts = true}, {.experts = true}};
  for (const size_t b : {2, 3}) run.trace.blocks[b] = {5, 10, 5};
  EXPECT_NEAR(run.at({3, 1}).busy_s[0], 6 * (4 + 4 + 20), 1e-9);
}

TEST(LayerTrace, FindsTheBestOfAllCuts) {
  TracedRun heavy_head = traced_run(pipeline_named("1f1b", 3), {4, 4, 4});
  heavy_head.trace.head = {0, 9, 0};
  TracedRun slow_stage = traced_run(pipeline_named("zb_h1", 3), {3, 3, 3}, {1, 2.5, 1});
  TracedRun uneven = traced_run(pipeline_named("gpipe", 3), {3, 3, 3});
  for (size_t b = 0; b < uneven.trace.blocks.size(); ++b) uneven.trace.blocks[b].forward += double(b * b) / 8;
  TracedRun chunks = traced_run(pipeline_named("interleaved_1f1b", 2, 2), {3, 3, 3, 3}, {1, 2});
  chunks.trace.embedding = {2, 0, 2};
  for (const TracedRun& run : {heavy_head, slow_stage, uneven, chunks}) {
    const auto better = run.better(run.trace.cut);
    ASSERT_TRUE(better) << name_of(run.pipeline.kind);
    EXPECT_EQ(std::accumulate(better->blocks.begin(), better->blocks.end(), int64_t{0}), run.model.num_layers);
    EXPECT_GE(*std::min_element(better->blocks.begin(), better->blocks.end()), 1);
    EXPECT_LE(better->step_s, 1.05 * least_step_of_all(run)) << name_of(run.pipeline.kind);
    EXPECT_EQ(better->step_s, run.at(better->blocks).step_s);
    EXPECT_FALSE(run.better(better->blocks));
    EXPECT_EQ(run.better(run.trace.cut)->blocks, better->blocks);
    EXPECT_SAYS(to_string(run.trace, run.at(run.trace.cut), better),
                "with parallel.pipeline_layout = " + to_string(better->blocks));
    EXPECT_EQ(to_json(run.trace, run.at(run.trace.cut), better)["better"]["pipeline_layout"], better->blocks);
  }
}

TEST(LayerTrace, EvenStagesStayAsTheyAre) {
  const TracedRun run = traced_run(pipeline_named("1f1b", 2), {3, 3});
  EXPECT_FALSE(run.better({3, 3}));
  EXPECT_SAYS(to_string(run.trace, run.at({3, 3}), {}), "no better cut was found");
  EXPECT_FALSE(traced_run(pipeline_named("1f1b", 2), {1, 1}, {1, 4}).better({1, 1}));  // there is no other
}

TEST(LayerTrace, IsReadAsItWasWritten) {
  TracedRun run = traced_run(pipeline_named("1f1b", 2), {3, 2}, {1, 2});
  run.trace.settings = {{"model", "small"}, {"parallel.pp", "2"}};
  run.trace.head = {0, 3, 0.125};
  const nlohmann::json trace{{"traceEvents", nlohmann::json::array()}, {"otherData", to_json(run.trace)}};
  EXPECT_EQ(layer_trace_of(trace, "step.json"), run.trace);

  const auto refusal_of = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json other = trace;
    other[nlohmann::json::json_pointer(pointer)] = value;
    return error_of<FileError>([&] { layer_trace_of(other, "step.json"); });
  };
  EXPECT_SAYS(refusal_of("/otherData", nullptr), "step.json: is no trace with the times of layers");
  EXPECT_SAYS(refusal_of("/otherData/weft_layers/blocks/1", {1, 2}), "expected three times in seconds, got [1,2]");
  EXPECT_SAYS(refusal_of("/otherData/weft_layers/head/0", -1), "expected three times in seconds");
  EXPECT_SAYS(refusal_of("/otherData/weft_layers/cut", {3, 3}), "add up to the 5 blocks");
  EXPECT_SAYS(refusal_of("/otherData/weft_layers/settings/model", 7), "model");
}

Recipe recipe_of_two_stages() {
  Recipe r;
  r.train.seq_length = 64;
  r.train.precision = PrecisionChoice::bf16;
  r.parallel.pp = 2;
  return r;
}

ModelSpec model_of_five_blocks() {
  ModelSpec model;
  model.width = 64;
  model.num_layers = 5;
  model.vocab_size = 100;
  return model;
}

TEST(LayerTrace, OfAnotherRunIsRefusedByWhatDiffers) {
  const Recipe recipe = recipe_of_two_stages();
  const ModelSpec model = model_of_five_blocks();
  LayerTrace trace = traced_run(pipeline_named("1f1b", 2), {3, 2}).trace;
  trace.settings = settings_of_trace(recipe, model);
  require_trace_of(trace, recipe, model);
  const auto refusal_of = [&](auto change) {
    Recipe other = recipe;
    change(other);
    return error_of<ConfigError>([&] { require_trace_of(trace, other, model); });
  };
  EXPECT_SAYS(refusal_of([](Recipe& r) { r.train.precision = PrecisionChoice::f32; }),
              "train.precision is \"bf16\" there, and \"f32\" here");
  EXPECT_SAYS(refusal_of([](Recipe& r) { r.parallel.tp = 2; }), "parallel.tp is 1 there, and 2 here");
  EXPECT_SAYS(refusal_of([](Recipe& r) { r.parallel.pp = 4; }), "parallel.pp is 2 there, and 4 here");
  EXPECT_SAYS(refusal_of([](Recipe& r) { r.train.micro_batch_size = 1; }), "train.micro_batch_size is 4 there");
  EXPECT_SAYS(refusal_of([](Recipe& r) { r.parallel.pp = 1; }), "there is nothing to balance");
  EXPECT_SAYS(refusal_of([](Recipe& r) { r.parallel.recompute = RecomputeKind::budget; }), "chooses anew in each cut");
  EXPECT_SAYS(refusal_of([](Recipe& r) { r.train.rampup_batch_size = {8, 8, 64}; }), "steps differ");
  // Neither the cut nor the batch of a step decides over what a block takes.
  EXPECT_EQ(refusal_of([](Recipe& r) {
              r.parallel.pipeline_layout = {4, 1};
              r.train.global_batch_size = 8;
            }),
            "");
  ModelSpec wider = model;
  wider.width = 128;
  EXPECT_SAYS(error_of<ConfigError>([&] { require_trace_of(trace, recipe, wider); }), "model is 5 blocks of width 64");
}

TEST(StepTime, OfALongStepIsThatOfItsSimulation) {
  for (const Pipeline& p : {pipeline_named("1f1b", 3), pipeline_named("interleaved_1f1b", 3, 2),
                            pipeline_named("zb_h1", 3), pipeline_named("gpipe", 1)})
    for (const int64_t m : {1, 5, 16, 40, 41}) {
      const ActionTimes times = uniform_times(p, 1, 1.5, 0.5);
      const double whole = simulate(p, schedules_of(p, m), times).makespan;
      EXPECT_NEAR(seconds_of_step(p, times, m), whole, 1e-9 * whole) << name_of(p.kind) << " " << m;
    }
}

}  // namespace
}  // namespace weft
