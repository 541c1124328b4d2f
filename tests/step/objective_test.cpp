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
  void weigh(std::span<const double> losses, std::span<double> weights) const override {
    for (size_t i = 0; i < weights.size(); ++i) {
      loss += weights[i] * losses[i];
      weights[i] *= losses[i] > least_ ? 2 : 0;
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
  void weigh(std::span<const double> losses, std::span<double> weights) const override {
    EXPECT_TRUE(losses.empty());
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

TEST(Objective, AStepThatWasPlannedForAnotherIsRefused) {
  TinyRun run(testing::tiny_llama(), {});
  EXPECT_THROW(run.loss_and_gradients(TheHardOnes(1)), CheckFailure);
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

}  // namespace
}  // namespace weft
