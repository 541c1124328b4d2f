// What routers add to the scores by which they choose: loads of experts move it, no optimizer does.
#include <gtest/gtest.h>

#include "weft/nn/router_records.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

constexpr int64_t kExperts = 4, kLayer = 1;

struct OneRouter {
  ParamStore store{kBf16, {}};
  Arena params{"params", 1 << 16}, grads{"grads", 1 << 16}, states{"states", 1 << 16}, held{"records", 1 << 12};
  RouterRecords records{{2, 0}, kExperts, Spmd::Invariant, false};
  Param *weight, *correction;

  explicit OneRouter(const Optimizer& optimizer) {
    weight = &store.add({.name = "router.weight", .shape = {kExperts, 3}, .place = weights(Spmd::Invariant)});
    correction = &store.add({.name = "router.correction",
                             .shape = {kExperts},
                             .place = weights(Spmd::Invariant),
                             .update = Update::its_layer});
    store.close_unit("block", 0);
    store.allocate({params, grads, states, params}, optimizer.formats());
    records.corrects(kLayer, *correction);
    records.allocate(held, DType::f32);
    records.begin_step();
  }
  void load(const std::vector<double>& tokens) {
    std::copy(tokens.begin(), tokens.end(), records.sums(kLayer).as<double>() + RouterSums::kScalars);
  }
  std::vector<float> values() const {
    const float* b = correction->value.as<float>();
    return {b, b + kExperts};
  }
};

TEST(RouterCorrection, RisesWhereThereIsLittleLoadFallsWhereThereIsMuchAndStaysAtTheMean) {
  OneRouter r(*make_adamw({}));
  const std::vector<float> before{0.5f, 0.25f, -1, 0};
  std::copy(before.begin(), before.end(), r.store.stored(*r.correction)[0].master.as<float>());
  r.load({5, 3, 4, 4});
  r.records.wait_correct(r.store, 0.001);
  EXPECT_EQ(r.values(), (std::vector<float>{0.5f - 0.001f, 0.25f + 0.001f, -1, 0}));
  r.records.wait_correct(r.store, 0);
  EXPECT_EQ(r.values(), (std::vector<float>{0.5f - 0.001f, 0.25f + 0.001f, -1, 0}));
}

TEST(RouterCorrection, IsReadInF32WhateverLayersComputeIn) {
  const OneRouter r(*make_adamw({}));
  EXPECT_EQ(r.weight->value.dtype, DType::bf16);
  EXPECT_EQ(r.correction->value.dtype, DType::f32);
  EXPECT_EQ(r.correction->value.data, r.store.stored(*r.correction)[0].master.data);
}

TEST(RouterCorrection, HasNoGradientAndNoOptimizerKnowsIt) {
  for (const auto& optimizer : {make_adamw({}), make_sgd({}), make_muon({})}) {
    const OneRouter r(*optimizer);
    EXPECT_TRUE(optimizer->state_names(r.correction->spec()).empty());
    const ParamStore::Stored kept = r.store.stored(*r.correction)[0];
    EXPECT_FALSE(kept.grad);
    EXPECT_TRUE(kept.states.empty());
    for (const ParamStore::UpdateRange& range : r.store.update_ranges(0))
      EXPECT_NE(range.master.data, kept.master.data);
    ASSERT_EQ(r.store.grad_ranges().size(), 1u) << "the weight's alone";
    EXPECT_EQ(r.store.groups().size(), 1u);
  }
}

}  // namespace
}  // namespace weft
