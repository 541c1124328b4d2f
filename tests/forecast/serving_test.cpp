// What serving is priced by: passes of generation, dry.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/serving.h"
#include "weft/train/text_generator.h"

namespace weft {
namespace {

ModelSpec served_model() {
  ModelSpec m{.vocab_size = 4096,
              .width = 4096,
              .num_layers = 4,
              .num_heads = 32,
              .num_kv_heads = 8,
              .head_dim = 128,
              .ffn_width = 16384,
              .max_positions = 8192};
  m.rope = RopeSpec{};
  return m;
}

struct Serve {
  ServingLayout layout = {};
  ServingLoad load = {.prompt = 1024, .tokens = 64};
  ClusterSpec cluster = preset_of("H100-SXM");
  ModelSpec model = served_model();

  TextGenerator::Spec spec(const Machine& machine, int stage) const {
    const MeshSizes mesh{.pp = int(layout.pp), .tp = int(layout.tp)};
    Recipe::Parallel parallel;
    parallel.tp = layout.tp;
    parallel.pp = layout.pp;
    parallel.sequence_parallel = false;
    TextGenerator::Spec spec{.machine = machine,
                             .precision = kBf16,
                             .texts = {{.prompt = load.prompt, .all = load.prompt + load.tokens}},
                             .layout = parallel,
                             .mesh = dry_mesh(mesh, rank_at(mesh, {.dp = 0, .pp = stage, .cp = 0, .tp = 0}))};
    spec.texts.resize(size_t(layout.texts), {.prompt = 1, .all = load.prompt + load.tokens});
    return spec;
  }
  std::vector<ServedStage> stages() const {
    Machine machine;
    machine.workspace_model = std::make_shared<const WorkspaceModel>();
    std::vector<ServedStage> all;
    for (int stage = 0; stage < layout.pp; ++stage) {
      TextGenerator::Passes passes = TextGenerator::passes(model, spec(machine, stage));
      all.push_back({std::move(passes.begin), std::move(passes.token)});
    }
    return all;
  }
  ServingForecast forecast() const {
    return price_serving(stages(), layout, load, model, cluster, Profiles::built_in());
  }
};

double flops_of_pass(const PassData& pass) {
  double sum = 0;
  for (const StepOp& op : pass.ops) sum += op.flops;
  return sum;
}

// By hand: a block's matrices, and the head of one token; attention beside it.
TEST(ServedPasses, HaveTheArithmeticOfAPromptAndOfAToken) {
  const std::vector<ServedStage> stages = Serve{.layout = {.texts = 3}}.stages();
  const double block = 4096. * (4096 * 2 + 1024 * 2 + 3 * 16384), head = 4096. * 4096;
  const double pairs = 1024. * 1025 / 2 * 32 * 2 * 2 * 128 * 4;
  EXPECT_NEAR(flops_of_pass(stages.at(0).begin), 2 * (1024 * 4 * block + head) + pairs, 1);
  EXPECT_EQ(stages[0].begin.rows, 1024);
  const double seen = 3. * 1088 * 32 * 2 * 2 * 128 * 4;  // keys of each text as it ends
  EXPECT_NEAR(flops_of_pass(stages[0].token), 2 * 3 * (4 * block + head) + seen, 1);
  EXPECT_EQ(stages[0].token.rows, 3);
}

// A token of one text reads the weights once, and takes no less time.
TEST(Serving, ATokenTakesAtLeastItsWeightsAndTheirKeys) {
  const double weights = 2. * (4 * 4096. * (4096 * 2 + 1024 * 2 + 3 * 16384) + 4096. * 4096);
  const double cache = 2. * 1088 * 4 * 8 * 2 * 128;
  for (const int64_t texts : {1, 64}) {
    Serve serve{.layout = {.texts = texts}};
    const double moved_s = (weights + cache * double(texts)) / serve.cluster.device.memory_bytes_per_s;
    const double token_s = serve.forecast().token_s;
    EXPECT_GT(token_s, moved_s) << texts;
    EXPECT_LT(token_s, 3 * moved_s + 1e-3) << texts;  // launches beside it
  }
}

// Of eight experts a token is of two.
TEST(Serving, ATokenReadsItsExpertsAndManyReadAll) {
  Serve serve{.layout = {.texts = 1}};
  serve.model.experts = {.count = 8, .chosen = 2, .width = 16384};
  serve.model.layers.assign(4, {.rope = RopeSpec{}, .experts = true});
  const double all_s = 4 * 8 * 3 * 4096. * 16384 * 2 / serve.cluster.device.memory_bytes_per_s;
  const double one_s = serve.forecast().token_s;
  EXPECT_GT(one_s, all_s / 4);
  EXPECT_LT(one_s, all_s / 2 + 5e-4);
  serve.layout.texts = 64;
  EXPECT_GT(serve.forecast().token_s, all_s);
}

TEST(Serving, MoreTextsGiveMoreTokensAndWaitLonger) {
  const ServingForecast one = Serve{.layout = {.texts = 1}}.forecast(),
                        many = Serve{.layout = {.texts = 32}}.forecast();
  EXPECT_GT(many.tokens_per_s, one.tokens_per_s);
  EXPECT_GE(many.token_s, one.token_s);
  EXPECT_NEAR(many.first_token_s, one.first_token_s, 1e-12);
  EXPECT_NEAR(many.tokens_per_s, 32 * 64 / (32 * many.first_token_s + 64 * many.token_s), 1e-6);
}

TEST(Serving, ReplicasMultiplyTheRateAndFasterMemoryIsNeverSlower) {
  Serve serve{.layout = {.texts = 8}};
  const ServingForecast one = serve.forecast();
  serve.layout.replicas = 4;
  EXPECT_NEAR(serve.forecast().tokens_per_s, 4 * one.tokens_per_s, 1e-6);
  serve.cluster.device.memory_bytes_per_s *= 2;
  EXPECT_LE(serve.forecast().token_s, one.token_s * (1 + 1e-9));
}

TEST(Serving, StagesAddTheirTimesAndMessages) {
  Serve serve{.layout = {.pp = 2, .texts = 4}};
  const ServingForecast two = serve.forecast();
  serve.cluster.scale_up.latency_s += 1e-3;
  EXPECT_GT(serve.forecast().token_s, two.token_s);
  serve.layout.pp = 1;
  const ServingForecast one = serve.forecast();
  EXPECT_GT(two.token_s, one.token_s);
  EXPECT_LT(two.token_s, 2 * one.token_s + 1e-3);
}

TEST(Serving, APromptPassesStagesWhole) {
  Serve serve{.layout = {.pp = 2}};
  double flops = 0;
  for (const ServedStage& s : serve.stages()) flops += flops_of_pass(s.begin);
  EXPECT_NEAR(flops, flops_of_pass(Serve{}.stages().at(0).begin), 1);
}

TEST(Serving, TheFrontHasNoneThatAnotherBeats) {
  const auto at = [](double rate, double first, double token) {
    ServingForecast f;
    f.tokens_per_s = rate;
    f.first_token_s = first;
    f.token_s = token;
    return f;
  };
  const auto front = serving_front({at(1, 1, 1), at(3, 3, 3), at(2, 3, 3), at(2, 2, 4)});
  ASSERT_EQ(front.size(), 3u);
  EXPECT_EQ(front[0].tokens_per_s, 3);
  EXPECT_EQ(front[1].first_token_s, 2);
  EXPECT_EQ(front[2].tokens_per_s, 1);
}

}  // namespace
}  // namespace weft
