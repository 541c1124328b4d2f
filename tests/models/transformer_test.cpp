#include "weft/models/transformer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/tiny.h"

namespace weft {
namespace {

using testing::gradients;
using testing::tiny_models;
using testing::TinyRun;

double worst_relative(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, scale = 0;
  for (double x : b) scale = std::max(scale, std::abs(x));
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / scale);
  return a.size() == b.size() && scale > 0 ? worst : INFINITY;
}

// Along a random direction in the space of all weights: (L(w + h v) - L(w - h v)) / 2h == <dL/dw, v>.
void expect_derivative(const std::string& name, const ModelSpec& model, double dropout) {
  TinyRun run(model, {.num_micro_batches = 2, .dropout = dropout});
  run.loss_and_gradients();
  double slope = 0;
  const auto move = [&](double h) {
    std::mt19937 gen(3);
    std::normal_distribution<double> n;
    for (const Param* p : run.state.params.params()) {
      double* w = run.state.params.stored(*p)[0].master.as<double>();
      for (int64_t i = 0; i < p->spec().shape.elements(); ++i) {
        const double v = n(gen);
        w[i] += h * v;
        if (h == 0) slope += run.state.params.stored(*p)[0].grad.as<double>()[i] * v;
      }
    }
  };
  const auto loss = [&] {  // drops the same again
    return dropout > 0 || model.has_mtp() ? run.whole_loss(run.loss_and_gradients()) : run.evaluate();
  };
  move(0);
  const double h = 3e-7;  // along a direction of length about 60
  move(h);
  const double above = loss();
  move(-2 * h);
  const double below = loss();
  EXPECT_NEAR((above - below) / (2 * h), slope, 1e-8 * std::abs(slope) + 1e-9) << name << ", dropout " << dropout;
}

TEST(Transformer, TheGradientIsTheDerivativeOfTheLoss) {
  for (const auto& [name, model] : tiny_models())
    for (const double dropout : {0.0, 0.3}) expect_derivative(name, model, dropout);
  for (const auto& [name, model] : testing::tiny_models_that_look_further())
    for (const double dropout : {0.0, 0.3}) expect_derivative(name, model, dropout);
}

// Its own loss is what it is without a module; another factor moves the gradients alone.
TEST(Transformer, AModuleThatLooksFurtherAddsALossOfItsOwn) {
  for (auto [name, model] : testing::tiny_models_that_look_further()) {
    TinyRun with(model, {});
    const double loss = with.loss_and_gradients(), further = with.whole_loss(loss) - loss;
    EXPECT_GT(further, 0.1) << name;
    EXPECT_NEAR(with.evaluate(), loss, 1e-13) << name;
    model.mtp_loss_coef *= 2;
    TinyRun more(model, {});
    EXPECT_EQ(more.loss_and_gradients(), loss) << name;
    EXPECT_NEAR(more.whole_loss(loss) - loss, 2 * further, 1e-13) << name;
    EXPECT_GT(worst_relative(gradients(more), gradients(with)), 1e-3) << name;
    model.mtp_loss_coef = 0;
    TinyRun without(model, {});
    EXPECT_EQ(without.loss_and_gradients(), loss) << name;
  }
}

// Balance and the size of router logits are of the model's own layers.
TEST(Transformer, AModuleHasNoLossesOfRouters) {
  ModelSpec model = testing::tiny_mtp();
  model.layers[1].experts = false;
  TinyRun plain(model, {});
  model.experts.aux_loss_coef = model.experts.z_loss_coef = 1;
  TinyRun with(model, {});
  EXPECT_EQ(with.loss_and_gradients(), plain.loss_and_gradients());
  EXPECT_EQ(gradients(with), gradients(plain));
}

TEST(Transformer, ChunksRecomputationAndSchedulesChangeNothingOfAModuleThatLooksFurther) {
  for (const auto& [name, model] : testing::tiny_models_that_look_further()) {
    TinyRun plain(model, {.micro_batch_size = 4, .num_micro_batches = 1});
    const double loss = plain.loss_and_gradients(), whole = plain.whole_loss(loss);
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      for (const bool tree : {false, true}) {
        TinyRun run(model, {.tree = tree, .schedule = schedule});
        TinyRun full(model, {.recompute_blocks = true, .tree = tree, .schedule = schedule, .logits_bytes = 1});
        TinyRun selective(model, {.keep_activations = false, .tree = tree, .schedule = schedule});
        EXPECT_NEAR(run.whole_loss(run.loss_and_gradients()), whole, 1e-13) << name;
        EXPECT_NEAR(full.whole_loss(full.loss_and_gradients()), whole, 1e-13) << name;
        EXPECT_EQ(selective.whole_loss(selective.loss_and_gradients()), run.whole_loss(run.loss_and_gradients()));
        EXPECT_LT(worst_relative(gradients(run), gradients(plain)), 1e-12) << name << schedule << tree;
        EXPECT_LT(worst_relative(gradients(full), gradients(plain)), 1e-12) << name << schedule << tree;
        EXPECT_EQ(gradients(selective), gradients(run)) << name << schedule << tree;
      }
    }
  }
}

TEST(Transformer, ABlockIsMadeOfItsOwnSpec) {
  const auto loss_of = [](const std::vector<LayerSpec>& layers) {
    ModelSpec m = testing::tiny_llama();
    m.layers = layers;
    return TinyRun(m, {}).evaluate();
  };
  const LayerSpec usual{.rope = RopeSpec{}};
  const double loss = loss_of({});
  EXPECT_EQ(loss_of({usual, usual}), loss);
  std::vector<double> losses{loss};
  for (const LayerSpec& other :
       {LayerSpec{.norm = NormKind::layer_norm, .rope = RopeSpec{}},
        LayerSpec{.mlp = MlpKind::gelu_tanh, .rope = RopeSpec{}}, LayerSpec{.rope = RopeSpec{.theta = 100}},
        LayerSpec{}, LayerSpec{.rope = RopeSpec{}, .window = 2}}) {
    losses.push_back(loss_of({usual, other}));
    losses.push_back(loss_of({other, usual}));
  }
  std::sort(losses.begin(), losses.end());
  EXPECT_EQ(std::adjacent_find(losses.begin(), losses.end()), losses.end()) << "two models are the same";
}

TEST(Transformer, LossWithoutTrainingIsTheLossOfTraining) {
  for (const auto& [name, model] : tiny_models()) {
    TinyRun run(model, {});
    EXPECT_NEAR(run.evaluate(), run.loss_and_gradients(), 1e-13) << name;
  }
}

// 42 tokens, of which not all count, in pieces of 16 logits and all at once.
TEST(Transformer, AHeadInManyChunksHasTheLossAndTheGradientOfOneAtOnce) {
  for (const auto& [name, model] : tiny_models()) {
    TinyRun whole(model, {.micro_batch_size = 6, .num_micro_batches = 2});
    TinyRun chunks(model, {.micro_batch_size = 6, .num_micro_batches = 2, .logits_bytes = 1});
    EXPECT_LT(chunks.plan().scratch, whole.plan().scratch) << "not in chunks";
    const double loss = whole.loss_and_gradients();
    EXPECT_NEAR(chunks.loss_and_gradients(), loss, 1e-13) << name;
    EXPECT_NEAR(chunks.evaluate(), loss, 1e-13) << name;
    EXPECT_LT(worst_relative(gradients(chunks), gradients(whole)), 1e-12) << name;
  }
}

// Recomputation draws the same dropout and adds nothing twice: the same bits.
TEST(Transformer, RecomputationChangesNoBit) {
  for (const auto& [name, model] : tiny_models()) {
    for (double dropout : {0.0, 0.3}) {
      for (const char* schedule : {"1f1b", "gpipe", "zb_h1"}) {
        for (bool tree : {false, true}) {
          TinyRun none(model, {.tree = tree, .schedule = schedule, .dropout = dropout});
          TinyRun selective(model, {.keep_activations = false, .tree = tree, .schedule = schedule, .dropout = dropout});
          TinyRun full(model, {.recompute_blocks = true, .tree = tree, .schedule = schedule, .dropout = dropout});
          const double loss = none.loss_and_gradients();
          EXPECT_EQ(selective.loss_and_gradients(), loss) << name;
          EXPECT_EQ(full.loss_and_gradients(), loss) << name;
          EXPECT_EQ(gradients(selective), gradients(none)) << name << schedule;
          EXPECT_EQ(gradients(full), gradients(none)) << name << schedule;
          EXPECT_LT(full.plan().total_bytes(), none.plan().total_bytes());
        }
      }
    }
  }
}

TEST(Transformer, SchedulesAndTreesGiveTheSameSums) {
  for (const auto& [name, model] : tiny_models()) {
    TinyRun plain(model, {.micro_batch_size = 4, .num_micro_batches = 1});
    const double loss = plain.loss_and_gradients();
    for (const char* schedule : {"1f1b", "gpipe", "zb_h1"}) {
      for (bool tree : {false, true}) {
        for (Spmd stream : {Spmd::Invariant, Spmd::Shard0}) {
          TinyRun run(model, {.tree = tree, .schedule = schedule, .stream = stream});
          EXPECT_NEAR(run.loss_and_gradients(), loss, 1e-13) << name;
          EXPECT_LT(worst_relative(gradients(run), gradients(plain)), 1e-12) << name << schedule << tree;
        }
      }
    }
  }
}

// The leaves are micro-batches: how they are scheduled does not change a bit of an invariant run.
TEST(Transformer, InvariantStepsHaveTheSameBitsUnderEverySchedule) {
  for (const auto& [name, model] : tiny_models()) {
    TinyRun a(model, {.tree = true, .num_micro_batches = 6}),
        b(model, {.tree = true, .num_micro_batches = 6, .schedule = "gpipe"}),
        c(model, {.recompute_blocks = true, .tree = true, .num_micro_batches = 6, .schedule = "zb_h1"});
    for (int step = 0; step < 3; ++step) {
      const double loss = a.loss_and_gradients();
      EXPECT_EQ(b.loss_and_gradients(), loss) << name;
      EXPECT_EQ(c.loss_and_gradients(), loss) << name;
      for (TinyRun* run : {&a, &b, &c}) run->update();
    }
  }
}

TEST(Transformer, DropoutDropsAndTheNextStepDropsOthers) {
  for (const auto& [name, model] : tiny_models()) {
    TinyRun with(model, {.dropout = 0.3}), without(model, {});
    EXPECT_NE(with.loss_and_gradients(), without.loss_and_gradients()) << name;
    EXPECT_EQ(with.evaluate(), without.evaluate()) << name;  // not outside of training
  }
}

TEST(Transformer, RandomWeightsDoNotDependOnTheNumberOfThreads) {
  TinyRun a(testing::tiny_llama(), {}), b(testing::tiny_llama(), {});
  init_weights(b.state.params, 11, 3);
  for (size_t i = 0; i < a.state.params.params().size(); ++i) {
    const Param& p = *a.state.params.params()[i];
    const auto *x = a.state.params.stored(p)[0].master.as<double>(),
               *y = b.state.params.stored(*b.state.params.params()[i])[0].master.as<double>();
    EXPECT_TRUE(std::equal(x, x + p.spec().shape.elements(), y));
  }
}

}  // namespace
}  // namespace weft
