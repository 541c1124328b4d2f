// What MFU is a fraction of is measured again where it must have been wrong.
#include "weft/train/matmul_rate.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft {
namespace {

// Gives these rates in turn, the last for ever.
struct Measured {
  std::vector<double> rates;
  size_t calls = 0;
  std::function<double()> measure() {
    return [this] { return rates[std::min(calls++, rates.size() - 1)]; };
  }
};

TEST(MatmulRate, AStepFasterThanLargeProductsMakesThemBeMeasuredAgainAndTheBestCounts) {
  Measured m{.rates = {50e9, 100e9}};
  MatmulRate rate(m.measure(), true);
  EXPECT_DOUBLE_EQ(rate.mfu(25e9, 1), 0.5);
  EXPECT_EQ(m.calls, 1u);
  EXPECT_DOUBLE_EQ(rate.mfu(60e9, 1), 0.6);
  EXPECT_EQ(rate.take_note(),
            "MFU is of 100.0 GFLOP/s from here on, and was of 50.0 GFLOP/s before: " + std::string(kWhyAboveOne));
  EXPECT_EQ(rate.take_note(), "");
  EXPECT_DOUBLE_EQ(rate.mfu(60e9, 1), 0.6);
  EXPECT_EQ(m.calls, 2u);
}

TEST(MatmulRate, AnMfuThatStaysAboveOneIsSaidToBeUnsureAndNotMeasuredEachStep) {
  Measured m{.rates = {50e9, 40e9}};
  MatmulRate rate(m.measure(), true);
  for (int i = 0; i < 99; ++i) EXPECT_DOUBLE_EQ(rate.mfu(60e9, 1), 1.2);
  EXPECT_EQ(m.calls, 3u);  // at the beginning, in the first step and in the tenth
  EXPECT_NE(rate.take_note().find("MFU is above 100 %, and unsure: it is of 50.0 GFLOP/s"), std::string::npos);
}

TEST(MatmulRate, ARateThatIsMuchBetterAtTheEndOfALongRunIsTold) {
  Measured m{.rates = {50e9, 100e9}};
  MatmulRate rate(m.measure(), true), once(m.measure(), false);
  m.calls = 1;
  rate.check_at_end(1);
  EXPECT_EQ(m.calls, 1u);
  rate.check_at_end(100);
  EXPECT_NE(rate.take_note().find("multiply it by 0.50"), std::string::npos);
  once.check_at_end(100);
  EXPECT_EQ(once.take_note(), "");
}

TEST(MatmulRate, WhereNothingIsMeasuredMfuIsZero) {
  MatmulRate none, zero([] { return 0.0; }, true);
  EXPECT_EQ(none.mfu(1e9, 1), 0);
  EXPECT_EQ(zero.mfu(1e9, 1), 0);
  zero.check_at_end(1000);
  EXPECT_EQ(zero.take_note(), "");
}

}  // namespace
}  // namespace weft
