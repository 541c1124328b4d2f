// Updates of a whole store, Muon's and AdamW's, by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "weft/ops/ref/ref_backend.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

constexpr double kRms = 0.2 * 1.4142135623730951;  // 0.2 sqrt(2)

// Two square matrices stacked, diag(3, 4) and diag(4, 3) their gradient, and a bias.
class SmallStore {
 public:
  explicit SmallStore(const Optimizer& optimizer) : store_(kF64, {}) {
    w_ = &store_.add(
        {.name = "w", .shape = {4, 2}, .place = weights(Spmd::Invariant), .parts = {{2}, {2}}, .linear = true});
    b_ = &store_.add({.name = "b", .shape = {2}, .place = weights(Spmd::Invariant)});
    unit_ = store_.close_unit("unit", 0);
    store_.allocate({params_, grads_, states_, params_}, optimizer.formats());
    std::fill_n(at(*w_).master.as<double>(), 8, 1.0);
  }
  void step(const Optimizer& optimizer, const StepSize& size, const std::vector<double>& gradient) {
    store_.begin_step();
    store_.open_grads(backend_, unit_, 0);
    std::copy(gradient.begin(), gradient.end(), w_->grad.as<double>());
    std::fill_n(b_->grad.as<double>(), 2, 0.5);
    store_.flush(backend_, unit_, 0, true);
    store_.finish_step(backend_);
    update_all(backend_, optimizer, store_, scratch_, size);
  }
  ParamStore::Stored w() const { return store_.stored(*w_)[0]; }
  ParamStore::Stored second() const { return store_.stored(*w_)[1]; }
  ParamStore::Stored b() const { return store_.stored(*b_)[0]; }
  Arena& states() { return states_; }

 private:
  ParamStore::Stored at(const Param& p) const { return store_.stored(p)[0]; }
  Arena params_{"params", 1 << 16}, grads_{"grads", 1 << 16}, states_{"states", 1 << 16}, scratch_{"scratch", 1 << 12};
  RefBackend backend_{1};
  ParamStore store_;
  Param *w_ = nullptr, *b_ = nullptr;
  int unit_ = 0;
};

double p(double x) { return 3.4445 * x - 4.7750 * x * x * x + 2.0315 * x * x * x * x * x; }

TEST(Muon, OneStepOfDiagonalMatricesIsWhatWorksOutByHand) {
  // One step of the iteration: 0.6 -> 1.19326944, 0.8 -> 0.97648192.
  const auto optimizer = make_muon({.ns_steps = 1, .others = {.weight_decay = 0.1}});
  SmallStore s(*optimizer);
  s.step(*optimizer, {.lr = 0.5, .grad_scale = 0.1, .step = 1}, {3, 0, 0, 4, 4, 0, 0, 3});
  const double* w = s.w().master.as<double>();
  EXPECT_NEAR(w[0], 0.95 - 0.5 * kRms * 1.19326944, 1e-6);
  EXPECT_NEAR(w[1], 0.95, 1e-15);
  EXPECT_NEAR(w[3], 0.95 - 0.5 * kRms * 0.97648192, 1e-6);
  EXPECT_NEAR(s.second().master.as<double>()[0], 0.95 - 0.5 * kRms * 0.97648192, 1e-6);  // a matrix of its own
  ASSERT_EQ(s.w().states.size(), 1u);
  EXPECT_NEAR(s.w().states[0].as<double>()[3], 0.4, 1e-15);
  // The bias: AdamW's first step, no decay.
  ASSERT_EQ(s.b().states.size(), 2u);
  EXPECT_NEAR(s.b().master.as<double>()[0], -0.5, 1e-6);
}

TEST(Muon, TheSecondStepFollowsTheMomentum) {
  for (const bool nesterov : {false, true}) {
    const auto optimizer =
        make_muon({.momentum = 0.5, .nesterov = nesterov, .ns_steps = 2, .others = {.weight_decay = 0}});
    SmallStore s(*optimizer);
    s.step(*optimizer, {.lr = 0, .grad_scale = 1, .step = 1}, {3, 0, 0, 4, 0, 0, 0, 0});
    s.step(*optimizer, {.lr = 1, .grad_scale = 0.25, .step = 2}, {0, 0, 0, 8, 0, 0, 0, 0});  // clipped, not the first
    // The sums are diag(1.5, 4); with the gradient once more diag(0.75, 4).
    const double a = nesterov ? 0.75 : 1.5, norm = std::hypot(a, 4) + 1e-7;
    EXPECT_NEAR(s.w().master.as<double>()[0], 1 - kRms * p(p(a / norm)), 1e-12);
    EXPECT_NEAR(s.w().master.as<double>()[3], 1 - kRms * p(p(4 / norm)), 1e-12);
    EXPECT_EQ(s.second().master.as<double>()[0], 1);
  }
}

// Where the gradient is always the same, AdamW's steps are as long as the learning rate.
TEST(AdamW, DecaysMatricesAndNoBiases) {
  const auto optimizer = make_adamw({.weight_decay = 0.1});
  SmallStore s(*optimizer);
  for (const int64_t step : {1, 2})
    s.step(*optimizer, {.lr = 0.5, .grad_scale = 1, .step = step}, {0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_NEAR(s.w().master.as<double>()[0], 0.95 * 0.95, 1e-12);
  EXPECT_NEAR(s.b().master.as<double>()[0], -1, 1e-6);
}

TEST(Muon, ScalesByTheShapeOfEachMatrix) {
  EXPECT_DOUBLE_EQ(muon_scale(MuonSpec::Scale::match_rms_adamw, 100, 25), 2);
  EXPECT_DOUBLE_EQ(muon_scale(MuonSpec::Scale::match_rms_adamw, 25, 100), 2);
  EXPECT_DOUBLE_EQ(muon_scale(MuonSpec::Scale::original, 100, 25), 2);
  EXPECT_DOUBLE_EQ(muon_scale(MuonSpec::Scale::original, 25, 100), 1);
}

TEST(Muon, KeepsOneStateOfAMatrixWhereAdamWKeepsTwo) {
  const auto muon = make_muon({}), adamw = make_adamw({});
  SmallStore one(*muon), two(*adamw);
  EXPECT_EQ(two.states().peak() - one.states().peak(), int64_t(kSumLeaf * sizeof(double)));
}

}  // namespace
}  // namespace weft
