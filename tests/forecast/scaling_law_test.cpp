// Laws of loss: published ones, and those that are fitted to runs.
#include "weft/forecast/scaling_law.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/scaling_law_fit.h"

namespace weft {
namespace {

constexpr ScalingLaw kTruth{.e = 1.7, .a = 300, .alpha = 0.33, .b = 900, .beta = 0.31};

// What the law says of such a run, whose batches waste as much as their size does.
LawPoint point_of(const ScalingLaw& law, double parameters, double tokens, double off = 0) {
  LawPoint p{.run = "runs/it", .parameters = parameters, .tokens = tokens};
  p.loss = law.loss(parameters, tokens) * (1 + off);
  p.batch_tokens = 0.5 * critical_batch_tokens(p.loss);
  p.tokens = tokens_in_batches(tokens, p.batch_tokens, p.loss);
  return p;
}

std::vector<LawPoint> nine_runs(double off = 0) {
  std::vector<LawPoint> all;
  for (const double n : {1e7, 1e8, 1e9})
    for (const double d : {1e9, 1e10, 1e11}) all.push_back(point_of(kTruth, n, d, all.size() % 2 == 0 ? off : -off));
  return all;
}

TEST(ScalingLaw, SaysWhatItsPaperSays) {
  const LossLaw law = published_law();
  // Chinchilla itself: 70 billion parameters, 1.4 trillion tokens.
  EXPECT_NEAR(law.best.loss(70e9, 1.4e12),
              1.8172 + 482.01 * std::pow(70e9, -0.3478) + 2085.43 * std::pow(1.4e12, -0.3658), 1e-12);
  EXPECT_NEAR(law.best.loss(70e9, 1.4e12), 1.97, 0.02);
  EXPECT_NEAR(law.others.at(0).loss(70e9, 1.4e12), 1.94, 0.02);
}

TEST(ScalingLaw, TokensToALossAreThoseThatHaveIt) {
  const ScalingLaw law = published_law().best;
  for (const double loss : {2.2, 2.6, 3.5}) EXPECT_NEAR(law.loss(1e9, law.tokens_to(loss, 1e9)), loss, 1e-9);
  EXPECT_TRUE(std::isinf(law.tokens_to(1.8, 1e9)));
}

TEST(ScalingLaw, ABatchOfTheCriticalSizeTakesTwiceTheTokens) {
  EXPECT_NEAR(critical_batch_tokens(3), 2e8 / std::pow(3, 1 / 0.21), 1);
  const double critical = critical_batch_tokens(2.5);
  EXPECT_NEAR(tokens_in_batches(1e9, critical, 2.5), 2e9, 1);
  EXPECT_NEAR(tokens_of_small_batches(2e9, critical, 2.5), 1e9, 1);
}

TEST(ScalingLaw, IsFoundAgainInRunsThatFollowIt) {
  const LossLaw law = fit_law(nine_runs());
  EXPECT_NEAR(law.best.alpha, kTruth.alpha, 2e-3);
  EXPECT_NEAR(law.best.beta, kTruth.beta, 2e-3);
  EXPECT_NEAR(law.best.e, kTruth.e, 0.01);
  const LawRange range = range_of(law, [](const ScalingLaw& l) { return l.loss(7e9, 1e12); });
  EXPECT_NEAR(law.best.loss(7e9, 1e12), kTruth.loss(7e9, 1e12), 2e-3);
  EXPECT_LT(range.high - range.low, 2e-3);
}

TEST(ScalingLaw, IsLessSureOfRunsThatScatterAndFartherAway) {
  const LossLaw law = fit_law(nine_runs(0.01));
  const auto width = [&](double n, double d) {
    const LawRange r = range_of(law, [&](const ScalingLaw& l) { return l.loss(n, d); });
    EXPECT_LT(r.low, law.best.loss(n, d));
    EXPECT_GT(r.high, law.best.loss(n, d));
    return r.high - r.low;
  };
  EXPECT_GT(width(1e8, 1e10), 0.005);
  EXPECT_LT(width(1e8, 1e10), 0.1);
  EXPECT_GT(width(1e11, 1e13), 2 * width(1e8, 1e10));
  EXPECT_EQ(fit_law(nine_runs(0.01)).others.at(7).alpha, law.others.at(7).alpha);  // the same every time
}

TEST(ScalingLaw, OfFourRunsHasThePublishedExponents) {
  const ScalingLaw published = published_law().best;
  ScalingLaw truth = published;
  truth.e = 1.5;
  std::vector<LawPoint> runs;
  for (const double n : {1e8, 1e9})
    for (const double d : {1e9, 1e10}) runs.push_back(point_of(truth, n, d));
  const LossLaw law = fit_law(runs);
  EXPECT_EQ(law.best.alpha, published.alpha);
  EXPECT_NEAR(law.best.e, 1.5, 1e-6);
  EXPECT_NEAR(law.best.b, truth.b, 1e-3);
  EXPECT_SAYS(law.source, "with the exponents of Besiroglu et al. 2024");
}

TEST(ScalingLaw, IsRefusedWhereRunsCannotTellItsNumbers) {
  const auto message = [](std::vector<LawPoint> runs) {
    return testing::error_of<ConfigError>([&] { fit_law(runs); });
  };
  EXPECT_SAYS(message({point_of(kTruth, 1e8, 1e9)}), "it takes 4 runs, two sizes and two numbers of tokens at least");
  std::vector<LawPoint> same_size, together;
  for (const double d : {1e9, 2e9, 4e9, 8e9}) {
    same_size.push_back(point_of(kTruth, 1e8, d));
    together.push_back(point_of(kTruth, d / 20, d));
  }
  EXPECT_SAYS(message(same_size), "1 size of models");
  EXPECT_SAYS(message(together), "larger models have learned from more tokens in all of these runs");
  std::vector<LawPoint> mixed = nine_runs();
  mixed[3].experts = true;
  EXPECT_SAYS(message(mixed), "one of the two has experts");
}

RecordedRun run_of_steps(int64_t steps) {
  RecordedRun run{.folder = "runs/it", .recipe = {}, .config = {}, .metrics = {}};
  run.config.spec = {.vocab_size = 100,
                     .width = 16,
                     .num_layers = 2,
                     .num_heads = 2,
                     .num_kv_heads = 2,
                     .head_dim = 8,
                     .ffn_width = 64,
                     .max_positions = 64};
  run.config.spec.rope = RopeSpec{};
  run.recipe.model.init = InitChoice::random;
  run.recipe.train.seq_length = 64;
  run.recipe.train.global_batch_size = 4;
  for (int64_t s = 1; s <= steps; ++s) run.metrics.steps.push_back({.step = s, .loss = 5.0 - 0.01 * double(s)});
  return run;
}

TEST(LawPoint, IsWhatARunCameToInTheEnd) {
  RecordedRun run = run_of_steps(100);
  EXPECT_NEAR(law_point(run).loss, 4.02, 1e-9);  // the mean of the last five
  EXPECT_EQ(law_point(run).tokens, 100 * 4 * 64);
  EXPECT_EQ(law_point(run).batch_tokens, 4 * 64);
  EXPECT_EQ(law_point(run).parameters, 2 * 100 * 16 + 2 * (4 * 16 * 16 + 3 * 16 * 64 + 2 * 16) + 16);
  run.metrics.evals = {{.step = 50, .loss = 4.9}, {.step = 100, .loss = 4.4}};
  EXPECT_EQ(law_point(run).loss, 4.4);
  for (size_t i = 50; i < 100; ++i)
    run.metrics.steps[i].phase = StepRecord::Phase{.number = 1, .global_batch_size = 8, .seq_length = 128};
  EXPECT_EQ(law_point(run).tokens, 50 * 4 * 64 + 50 * 8 * 128);
  EXPECT_EQ(law_point(run).batch_tokens, 8 * 128);
}

TEST(LawPoint, IsOfRunsThatBeganWithNothing) {
  RecordedRun run = run_of_steps(3);
  run.recipe.model.init = InitChoice::pretrained;
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { law_point(run); }), "runs/it: begins with trained weights");
}

}  // namespace
}  // namespace weft
