#include "weft/step/distill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/tiny.h"

namespace weft {
namespace {

using testing::TinyRun;

// Wider and deeper, with norms, a cap and a table of another kind.
ModelSpec wide_teacher(ModelSpec m) {
  m.width = 24;
  m.num_layers = 3;
  if (!m.layers.empty()) m.layers.resize(3, m.layers.back());
  return m;
}

const Distillation kLosses[] = {{.temperature = 2, .alpha = 0.4},
                                {.temperature = 0.8, .alpha = 1, .reverse = true},
                                {.temperature = 3, .alpha = 0.7, .reverse = true}};

// Along the gradient itself, of all weights together: of models with caps and tied tables; with what is recomputed,
// what waits, and logits of a few tokens at a time.
TEST(Distill, GradientsAreTheDerivativeOfTheLossThatIsReported) {
  const std::pair<ModelSpec, ModelSpec> models[] = {{testing::tiny_llama(), wide_teacher(testing::tiny_gemma())},
                                                    {testing::tiny_gemma(), wide_teacher(testing::tiny_gpt2())},
                                                    {testing::tiny_gpt2(), wide_teacher(testing::tiny_llama())}};
  for (size_t i = 0; i < std::size(models); ++i) {
    const Distill distill(kLosses[i]);
    TinyRun run(models[i].first, {.recompute_blocks = i == 1,
                                  .micro_batch_size = 3,
                                  .schedule = i == 1 ? "zb_h1" : "1f1b",
                                  .stream = i == 2 ? Spmd::Shard0 : Spmd::Invariant,
                                  .logits_bytes = 1,
                                  .teacher = models[i].second,
                                  .distillation = kLosses[i]});
    const double loss = run.loss_and_gradients(distill);
    EXPECT_EQ(run.used(), run.plan().persistent);
    EXPECT_NEAR(loss, kLosses[i].loss(run.divergence(), run.cross_entropy()), 1e-14);
    EXPECT_NEAR(run.cross_entropy(), run.evaluate(), 1e-13);
    EXPECT_GT(run.divergence(), 0.01);
    const std::vector<double> gradient = testing::gradients(run);
    double squares = 0;
    for (const double g : gradient) squares += g * g;
    ASSERT_GT(squares, 0);
    const auto moved = [&](double step) {
      size_t at = 0;
      for (Param* p : run.state.params.params()) {
        double* const w = run.state.params.stored(*p)[0].master.as<double>();
        for (int64_t j = 0; j < p->shape().elements(); ++j) w[j] += step * gradient[at++];
      }
      run.state.params.masters_changed(run.backend);
      return run.loss_and_gradients(distill);
    };
    const double h = 1e-5 / std::sqrt(squares), more = moved(h), less = moved(-2 * h);
    EXPECT_NEAR((more - less) / (2 * h) / squares, 1, 1e-7) << i;
  }
}

// Without the divergence it is cross-entropy, to the bit of the gradient's sums; a model that teaches itself is not
// apart from it.
TEST(Distill, OfNoShareIsCrossEntropyAndOfItselfNothing) {
  const Distillation none{.temperature = 2, .alpha = 0}, all{.temperature = 2, .alpha = 1};
  TinyRun plain(testing::tiny_llama(), {.dropout = 0.2});
  TinyRun beside(testing::tiny_llama(),
                 {.dropout = 0.2, .teacher = wide_teacher(testing::tiny_gpt2()), .distillation = none});
  EXPECT_NEAR(beside.loss_and_gradients(Distill(none)), plain.loss_and_gradients(), 1e-14);
  const std::vector<double> a = testing::gradients(beside), b = testing::gradients(plain);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-14);

  TinyRun itself(testing::tiny_llama(), {.teacher = testing::tiny_llama(), .distillation = all}, TinyRun::kSeed + 1);
  EXPECT_NEAR(itself.loss_and_gradients(Distill(all)), 0, 1e-14);
  for (const double g : testing::gradients(itself)) EXPECT_NEAR(g, 0, 1e-14);
}

// Three logits at each token, made up; the mass of the others is three quarters.
TEST(Distill, OfStoredLogitsGradientsAreTheDerivativeOfTheLoss) {
  const Distillation loss{.temperature = 2, .alpha = 0.6};
  const auto load_top = [&](const TopLogits& to, int64_t first) {
    for (int64_t i = 0; i < to.lse.rows(); ++i) {
      double sum = 0;
      for (int64_t c = 0; c < 3; ++c) {
        const double logit = std::sin(double(first + i + 7 * c)) + double(c);
        to.ids.as<int32_t>()[3 * i + c] = int32_t(2 * c + (first + i) % 2);
        to.logits.as<double>()[3 * i + c] = logit;
        sum += std::exp(logit / loss.temperature);
      }
      to.lse.as<double>()[i] = std::log(4 * sum);
    }
  };
  const Distill distill(loss);
  TinyRun run(testing::tiny_gemma(),
              {.micro_batch_size = 2, .logits_bytes = 1, .distillation = loss, .top = 3, .load_top = load_top});
  const double reported = run.loss_and_gradients(distill);
  EXPECT_NEAR(reported, loss.loss(run.divergence(), run.cross_entropy()), 1e-14);
  EXPECT_EQ(run.used(), run.plan().persistent);
  EXPECT_NEAR(run.cross_entropy(), run.evaluate(), 1e-13);
  EXPECT_GT(run.divergence(), 0.01);
  EXPECT_NEAR(testing::growth_along_gradient(run, distill), 1, 1e-6);
}

TEST(Distill, TermsAreBothLossesWithoutTheirFactors) {
  const Objective::Terms terms = Distill(kLosses[0]).taught_terms(0.25, 3);
  EXPECT_EQ(terms, (Objective::Terms{{"kl", 0.25}, {"ce", 3}}));
}

TEST(Distill, AStepThatWasPlannedForAnotherIsRefused) {
  TinyRun alone(testing::tiny_llama(), {});
  EXPECT_THROW(alone.loss_and_gradients(Distill(kLosses[0])), CheckFailure);
  TinyRun run(testing::tiny_llama(), {.teacher = testing::tiny_gpt2(), .distillation = kLosses[0]});
  EXPECT_THROW(run.loss_and_gradients(Distill(kLosses[1])), CheckFailure);
  EXPECT_THROW(run.loss_and_gradients(), CheckFailure);
}

// Kept of each micro-batch: as many numbers as the teacher's stream has; it has neither gradients nor masters.
TEST(Distill, TheTeachersStatesAreInThePlan) {
  const auto planned = [](std::optional<ModelSpec> teacher) {
    const StepSpec step = testing::step_spec({.num_micro_batches = 3, .teacher = std::move(teacher)}, kBf16);
    return measure_memory(testing::tiny_llama(), step, *make_adamw({}), WorkspaceModel());
  };
  const MemoryPlan alone = planned({}), with = planned(wide_teacher(testing::tiny_llama()));
  EXPECT_EQ(alone.taught, 0);
  EXPECT_GE(with.taught, 3 * testing::kSeq * 24 * 2);
  EXPECT_LE(with.taught, 3 * (testing::kSeq * 24 * 2 + 256));
  EXPECT_EQ(with.persistent.params, alone.persistent.params);
  EXPECT_EQ(with.persistent.grads, alone.persistent.grads);
  EXPECT_GT(with.persistent.frozen, 0);
  EXPECT_EQ(with.total_bytes() - with.taught - with.persistent.frozen >= alone.total_bytes(), true);
}

}  // namespace
}  // namespace weft
