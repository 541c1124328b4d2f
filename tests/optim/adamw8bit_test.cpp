// AdamW with moments in 8 bits, by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "weft/ops/ref/ref_backend.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

// Two matrices stacked, of 2 x 300 elements and of 1 x 300, and a bias of 300.
class StackedStore {
 public:
  explicit StackedStore(const Optimizer& optimizer, int64_t columns = 300) : store_(kF64, {}) {
    w_ = &store_.add({.name = "w", .shape = {3, columns}, .place = weights(Spmd::Invariant), .parts = {{2}, {1}}});
    b_ = &store_.add({.name = "b", .shape = {columns}, .place = weights(Spmd::Invariant)});
    unit_ = store_.close_unit("unit", 0);
    store_.allocate({params_, grads_, states_, params_}, optimizer.formats());
  }
  // f(element of the whole weight) is its gradient, also of the bias.
  template <class F>
  void step(const Optimizer& optimizer, const StepSize& size, const F& f) {
    store_.begin_step();
    store_.open_grads(backend_, unit_, 0);
    for (Param* p : {w_, b_})
      for (int64_t i = 0; i < p->grad.elements(); ++i) p->grad.as<double>()[i] = f(i);
    store_.flush(backend_, unit_, 0, true);
    store_.finish_step(backend_);
    update_all(backend_, optimizer, store_, scratch_, size);
  }
  ParamStore::Stored part(size_t i) const { return store_.stored(*w_)[i]; }
  ParamStore::Stored bias() const { return store_.stored(*b_)[0]; }
  int64_t state_bytes() const { return states_.peak(); }

 private:
  Arena params_{"params", 1 << 18}, grads_{"grads", 1 << 18}, states_{"states", 1 << 18}, scratch_{"scratch", 1 << 12};
  RefBackend backend_{1};
  ParamStore store_;
  Param *w_ = nullptr, *b_ = nullptr;
  int unit_ = 0;
};

TEST(AdamW8bit, KeepsCodesOfEachPartInBlocksOfItsOwn) {
  const auto optimizer = make_adamw8bit({.min_size = 300});
  StackedStore s(*optimizer);
  s.step(*optimizer, {.lr = 0.1, .grad_scale = 1, .step = 1}, [](int64_t i) {
    return i == 255 ? 8.0 : i == 256 ? 2.0 : 1.0;
  });
  const ParamStore::Stored q = s.part(0), k = s.part(1);
  ASSERT_EQ(q.blocks.size(), 2u);
  EXPECT_EQ(q.states[0].dtype, DType::u8);
  EXPECT_EQ(q.blocks[0].absmax.elements(), 3);
  EXPECT_EQ(k.blocks[0].absmax.elements(), 2);  // 300 elements, from their own first on
  // m = 0.1 g, v = 0.05 g^2
  const double* m = q.blocks[0].absmax.as<double>();
  EXPECT_NEAR(m[0], 0.8, 1e-15);
  EXPECT_NEAR(m[1], 0.2, 1e-15);
  EXPECT_NEAR(m[2], 0.1, 1e-15);
  EXPECT_NEAR(q.blocks[1].absmax.as<double>()[0], 3.2, 1e-14);
  EXPECT_EQ(q.states[0].as<uint8_t>()[255], 255);
  const double level = levels_of(Levels::with_sign)[q.states[0].as<uint8_t>()[0]];
  EXPECT_NEAR(level, 0.125, 0.0071);  // the nearest of levels 0.0141 apart
}

// The first step's moments are in full: it is AdamW's; the second goes on from codes.
TEST(AdamW8bit, UpdatesWithMomentsInFullAndForgetsTheirLastDigitsAfterwards) {
  const auto in_codes = make_adamw8bit({.adamw = {.weight_decay = 0.1}, .min_size = 0}),
             in_full = make_adamw({.weight_decay = 0.1});
  StackedStore a(*in_codes), b(*in_full);
  const auto gradient = [](int64_t i) { return std::sin(double(i)) + 0.01; };
  a.step(*in_codes, {.lr = 0.1, .grad_scale = 0.5, .step = 1}, gradient);
  b.step(*in_full, {.lr = 0.1, .grad_scale = 0.5, .step = 1}, gradient);
  std::vector<double> m(600), v(600);
  for (int64_t i = 0; i < 600; ++i) {
    ASSERT_NEAR(a.part(0).master.as<double>()[i], b.part(0).master.as<double>()[i], 1e-15) << i;
    const auto stands_for = [&](size_t k) {
      const StateBlocks blocks = a.part(0).blocks[k];
      return levels_of(blocks.levels)[a.part(0).states[k].as<uint8_t>()[i]] *
             blocks.absmax.as<double>()[i / kCodeBlock];
    };
    m[size_t(i)] = stands_for(0), v[size_t(i)] = stands_for(1);
  }
  const auto w = std::vector<double>(a.part(0).master.as<double>(), a.part(0).master.as<double>() + 600);
  a.step(*in_codes, {.lr = 0.1, .grad_scale = 0.5, .step = 2}, gradient);
  for (int64_t i = 0; i < 600; ++i) {
    const double g = 0.5 * gradient(i);
    const double mean = (0.9 * m[size_t(i)] + 0.1 * g) / (1 - 0.81);
    const double square = (0.95 * v[size_t(i)] + 0.05 * g * g) / (1 - 0.95 * 0.95);
    ASSERT_NEAR(a.part(0).master.as<double>()[i], w[size_t(i)] * 0.99 - 0.1 * mean / (std::sqrt(square) + 1e-8), 1e-12);
  }
}

TEST(AdamW8bit, KeepsSmallPartsInFull) {
  const auto optimizer = make_adamw8bit({.min_size = 301});
  StackedStore s(*optimizer);
  EXPECT_EQ(s.part(0).blocks.size(), 2u);
  for (const ParamStore::Stored& small : {s.part(1), s.bias()}) {
    EXPECT_TRUE(small.blocks.empty());
    ASSERT_EQ(small.states.size(), 2u);
    EXPECT_EQ(small.states[0].dtype, DType::f64);
  }
  const auto in_full = make_adamw({});
  StackedStore b(*in_full);
  for (const int64_t step : {1, 2}) {
    const auto gradient = [](int64_t i) { return double(i % 7) - 3; };
    s.step(*optimizer, {.lr = 0.1, .grad_scale = 1, .step = step}, gradient);
    b.step(*in_full, {.lr = 0.1, .grad_scale = 1, .step = step}, gradient);
  }
  for (int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(s.part(1).master.as<double>()[i], b.part(1).master.as<double>()[i]);
    EXPECT_EQ(s.bias().master.as<double>()[i], b.bias().master.as<double>()[i]);
  }
}

// A block that never has a gradient stays at 0, and divides by no 0.
TEST(AdamW8bit, ABlockOfZerosStaysOne) {
  const auto optimizer = make_adamw8bit({.min_size = 0});
  StackedStore s(*optimizer);
  for (const int64_t step : {1, 2})
    s.step(*optimizer, {.lr = 0.1, .grad_scale = 1, .step = step}, [](int64_t i) { return i < 256 ? 0.0 : 1.0; });
  const ParamStore::Stored q = s.part(0);
  EXPECT_EQ(q.blocks[0].absmax.as<double>()[0], 0);
  EXPECT_EQ(q.states[0].as<uint8_t>()[7], 127);
  EXPECT_EQ(q.states[1].as<uint8_t>()[7], 0);
  EXPECT_EQ(q.master.as<double>()[7], 0);
}

// 2 bytes an element and two numbers a block, in place of two numbers an element.
TEST(AdamW8bit, KeepsTwoBytesAnElementAndTwoNumbersABlock) {
  const auto in_codes = make_adamw8bit({.min_size = 0}), in_full = make_adamw({});
  StackedStore a(*in_codes, 2048), b(*in_full, 2048);
  const int64_t elements = 4 * 2048, blocks = elements / kCodeBlock;
  EXPECT_EQ(b.state_bytes(), elements * 2 * 8);
  EXPECT_EQ(a.state_bytes(), elements * 2 + blocks * 2 * 8);
}

}  // namespace
}  // namespace weft
