#include <fcntl.h>
#include <unistd.h>

#include "train/golden_cases.h"
#include "train/reference_machine.h"

namespace weft {
namespace {

// How far the trace's losses say they are from fp64, in two digits.
double own_distance(const testing::GoldenCase& c) {
  const auto deviation = c.trace.find("f64_deviation");
  return deviation == c.trace.end()
             ? 0
             : 1.05 *
                   deviation->value(
                       testing::kind_of(c) == "grpo" || testing::kind_of(c) == "ppo" ? "loss_absolute" : "loss", 0.0);
}

// The traces are f32 themselves: 2e-7 in loss and 2e-6 in gradient norm is how far they are from fp64.
TEST(GoldenRefSlow, EveryCaseInFp64) {
  int run = 0;
  for (const testing::GoldenCase& c : testing::golden_cases()) {
    if (!testing::is_a_run(c)) continue;
    // No wider than the f32 trace is from fp64 itself.
    testing::GoldenTolerance t = testing::f32_tolerance(c);
    if (t.loss < testing::kGoldenNearTies.loss)
      t.loss = std::max(std::min(t.loss, 1e-6), own_distance(c)), t.grad_norm = std::min(t.grad_norm, 4e-6),
      t.tensor_norm = 2e-5, t.term = testing::kGoldenF32.term;
    testing::expect_golden(c, testing::reference_machine(2), {"run.backend=ref", testing::up_to_four(c)}, t);
    ++run;
  }
  if (run == 0) GTEST_SKIP() << "the folders have no case that weft can run";
}

}  // namespace
}  // namespace weft
