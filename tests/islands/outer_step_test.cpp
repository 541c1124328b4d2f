// The outer step beside its definition.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "weft/islands/outer_step.h"

namespace weft {
namespace {

using Wire = OuterSpec::Wire;

// w - (w - 1e-10) is 0 in f32, where w is 1; and zeros keep their signs.
TEST(OuterStep, WithoutMomentumAtRateOneIsTheMeanToTheBit) {
  const OuterSpec spec{.lr = 1, .momentum = 0, .wire = Wire::f32};
  for (const float mean : {1e-10f, -1e-10f, 0.0f, -0.0f, 3.0000002f, 1e30f})
    for (float w : {1.0f, -2.5f, 0.0f, 1e-30f}) {
      float m = 0;
      outer_step(spec, mean, w, m);
      EXPECT_EQ(std::bit_cast<uint32_t>(w), std::bit_cast<uint32_t>(mean)) << mean;
    }
}

// As torch.optim.SGD(lr, momentum, nesterov=True) has it, in fp64. Each step rounds w and m to f32 once, so that after
// n steps w is off by less than 2 n units of 2^-24 of the largest number, of about 4.
TEST(OuterStep, IsNesterovs) {
  const OuterSpec spec{.lr = 0.7, .momentum = 0.9, .wire = Wire::f32};
  float w = 1, m = 0;
  double w_exact = 1, m_exact = 0;
  constexpr int kSteps = 8;
  for (int step = 1; step <= kSteps; ++step) {
    const float mean = 1 + std::sin(float(step));
    outer_step(spec, mean, w, m);
    const double g = w_exact - double(mean);
    m_exact = 0.9 * m_exact + g;
    w_exact -= 0.7 * (g + 0.9 * m_exact);
  }
  EXPECT_NEAR(double(w), w_exact, 4 * 2 * kSteps * 0x1p-24);
  EXPECT_NEAR(double(m), m_exact, 4 * 2 * kSteps * 0x1p-24);
}

// What is sent is then how far the weight has moved.
TEST(OuterStep, OfDifferencesIsThatOfWeights) {
  for (const double momentum : {0.0, 0.9}) {
    float w = 2, m = 0, w_moved = 2, m_moved = 0;
    outer_step({.lr = 0.5, .momentum = momentum, .wire = Wire::f32}, 1.75f, w, m);
    outer_step({.lr = 0.5, .momentum = momentum, .wire = Wire::bf16}, 0.25f, w_moved, m_moved);
    EXPECT_EQ(w, w_moved);
    EXPECT_EQ(m, m_moved);
  }
}

}  // namespace
}  // namespace weft
