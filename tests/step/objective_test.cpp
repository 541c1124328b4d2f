#include "weft/step/objective.h"

#include <gtest/gtest.h>

#include "models/tiny.h"

namespace weft {
namespace {

using testing::gradients;
using testing::TinyRun;

using Weights = std::vector<std::vector<double>>;  // [micro-batch][token], in the order of the schedule

// The targets with a loss above `least` count, twice; writes down what it saw and gave.
class TheHardOnes final : public Objective {
 public:
  explicit TheHardOnes(double least) : least_(least) {}
  bool scores_first() const override { return true; }
  void weigh(const Scores& scores, Sums, std::span<double> weights) const override {
    for (size_t i = 0; i < weights.size(); ++i) {
      loss += weights[i] * scores.own[i];
      weights[i] *= scores.own[i] > least_ ? 2 : 0;
    }
    given.emplace_back(weights.begin(), weights.end());
  }
  double divisor(int64_t) const override { return 10; }
  mutable Weights given;
  mutable double loss = 0;

 private:
  double least_;
};

// These weights, whatever the losses are.
class Given final : public Objective {
 public:
  explicit Given(Weights weights) : weights_(std::move(weights)) {}
  void weigh(const Scores& scores, Sums, std::span<double> weights) const override {
    EXPECT_TRUE(scores.own.empty() && scores.frozen.empty());
    std::copy(weights_[next_].begin(), weights_[next_].end(), weights.begin());
    ++next_;
  }
  double divisor(int64_t) const override { return 10; }

 private:
  Weights weights_;
  mutable size_t next_ = 0;
};

TEST(Objective, MayWeighTargetsByTheirLossesBeforeTheStep) {
  for (const std::string schedule : {"1f1b", "gpipe", "zb_h1"}) {
    TinyRun run(testing::tiny_llama(), {.schedule = schedule, .dropout = 0.2, .scores_first = true});
    const TheHardOnes hard(3.7);
    const double mean = run.evaluate(), loss = run.loss_and_gradients(hard);
    EXPECT_NEAR(hard.loss / run.counted(), mean, 1e-13) << "the losses that it saw";
    size_t chosen = 0;
    for (const auto& weights : hard.given)
      for (const double w : weights) chosen += w > 0;
    EXPECT_GT(chosen, 0u);
    EXPECT_LT(chosen, size_t(run.counted()));

    TinyRun again(testing::tiny_llama(), {.schedule = schedule, .dropout = 0.2});
    EXPECT_EQ(again.loss_and_gradients(Given(hard.given)), loss);
    EXPECT_EQ(gradients(again), gradients(run));
    TinyRun others(testing::tiny_llama(), {.schedule = schedule, .dropout = 0.2});
    others.loss_and_gradients();
    EXPECT_NE(gradients(others), gradients(run));
  }
}

// The targets count that the first frozen model finds harder than the second; sums up what each has said.
class TheFirstOnes final : public Objective {
 public:
  size_t num_frozen() const override { return 2; }
  void weigh(const Scores& scores, Sums, std::span<double> weights) const override {
    EXPECT_TRUE(scores.own.empty());
    for (size_t i = 0; i < weights.size(); ++i) {
      for (size_t m = 0; m < 2; ++m) losses[m] += weights[i] * scores.frozen[m][i];
      weights[i] *= scores.frozen[0][i] > scores.frozen[1][i];
    }
    given.emplace_back(weights.begin(), weights.end());
  }
  double divisor(int64_t) const override { return 10; }
  mutable Weights given;
  mutable double losses[2] = {};
};

TEST(Objective, MayWeighTargetsByTheLossesOfFrozenModels) {
  const std::vector<ModelSpec> frozen{testing::tiny_gpt2(), testing::tiny_mixed()};
  for (const std::string schedule : {"1f1b", "gpipe", "zb_h1"}) {
    TinyRun run(testing::tiny_llama(), {.schedule = schedule, .dropout = 0.2, .frozen = frozen});
    const TheFirstOnes first;
    const double loss = run.loss_and_gradients(first);
    EXPECT_EQ(run.used(), run.plan().persistent);
    for (size_t m = 0; m < 2; ++m) {
      TinyRun alone(frozen[m], {}, TinyRun::kSeed + 1 + m);
      EXPECT_NEAR(first.losses[m] / run.counted(), alone.evaluate(), 1e-13) << "frozen model " << m;
    }
    TinyRun again(testing::tiny_llama(), {.schedule = schedule, .dropout = 0.2});
    EXPECT_EQ(again.loss_and_gradients(Given(first.given)), loss);
    EXPECT_EQ(gradients(again), gradients(run));
    const TheFirstOnes second;
    run.update();
    run.loss_and_gradients(second);
    EXPECT_EQ(second.losses[0], first.losses[0]) << "an update moved a frozen model";
  }
}

TEST(Objective, FrozenModelsHaveNeitherGradientsNorStateNorMasters) {
  const auto planned = [](std::vector<ModelSpec> frozen) {
    const StepSpec step = testing::step_spec({.frozen = std::move(frozen)}, kBf16);
    return measure_memory(testing::tiny_llama(), step, *make_adamw({}), WorkspaceModel());
  };
  const MemoryPlan alone = planned({}), with = planned({testing::tiny_llama()});
  EXPECT_EQ(alone.persistent.frozen, 0);
  EXPECT_EQ(with.persistent.frozen * 3, alone.persistent.params);  // bf16, beside f32 and bf16
  EXPECT_EQ(with.persistent.params, alone.persistent.params);
  EXPECT_EQ(with.persistent.grads, alone.persistent.grads);
  EXPECT_EQ(with.persistent.states, alone.persistent.states);
  EXPECT_EQ(with.evaluation, alone.evaluation);
  const MemoryPlan wide = planned({testing::tiny_mixed()});
  EXPECT_GT(wide.persistent.frozen, with.persistent.frozen);
}

TEST(Objective, AStepThatWasPlannedForAnotherIsRefused) {
  TinyRun run(testing::tiny_llama(), {});
  EXPECT_THROW(run.loss_and_gradients(TheHardOnes(1)), CheckFailure);
  EXPECT_THROW(run.loss_and_gradients(TheFirstOnes()), CheckFailure);
}

TEST(Objective, ItsForwardPassIsInThePlan) {
  const auto sends = [](bool scores_first) {
    StepSpec step = testing::step_spec({.num_micro_batches = 20, .scores_first = scores_first});
    step.mesh.tp = 2;
    step.model.layers.cut_vocabulary = true;
    const auto optimizer = make_adamw({});
    ModelSpec model = testing::tiny_llama();
    model.vocab_size = 38;
    return measure_memory(model, step, *optimizer, WorkspaceModel()).traffic.bytes();
  };
  EXPECT_GT(sends(true), sends(false) + sends(false) / 5);
}

// What the model has computed before a step is computed again in it; what a frozen one has is not.
TEST(Objective, OnlyThePassesOfOthersAreArithmeticOfTheModel) {
  const auto flops = [](bool scores_first, std::vector<ModelSpec> frozen) {
    const StepSpec step = testing::step_spec({.scores_first = scores_first, .frozen = std::move(frozen)});
    return measure_arithmetic(testing::tiny_llama(), step, *make_adamw({}), WorkspaceModel());
  };
  const Arithmetic plain = flops(false, {}), scores = flops(true, {}), beside = flops(false, {testing::tiny_llama()});
  EXPECT_EQ(scores.model_flops, plain.model_flops);
  EXPECT_GT(scores.hardware_flops, 1.2 * plain.hardware_flops);
  EXPECT_GT(beside.model_flops, 1.2 * plain.model_flops);
}

}  // namespace
}  // namespace weft
