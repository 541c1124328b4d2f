#include "weft/step/head_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace weft {
namespace {

struct Found {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  float lse = 0;
};
Found top_of(std::vector<float> row, int64_t k, double temperature) {
  Found f{.ids = std::vector<int32_t>(size_t(k)), .logits = std::vector<float>(size_t(k))};
  const Tensor logits{row.data(), DType::f32, {1, int64_t(row.size())}};
  find_top(logits, 0, temperature, {.ids = f.ids, .logits = f.logits, .lse = f.lse});
  return f;
}

TEST(HeadLogits, TheLargestAreFoundInTheOrderOfTheirIdsAndTheFirstOfEqualOnes) {
  const std::vector<float> row{1, 5, -2, 3, 5, 3, 3, 0};
  for (int64_t k = 1; k <= 8; ++k) {
    const Found f = top_of(row, k, 2);
    double sum = 0;
    for (const float x : row) sum += std::exp(x / 2);
    EXPECT_NEAR(f.lse, std::log(sum), 1e-6);
    for (size_t i = 0; i < f.ids.size(); ++i) EXPECT_EQ(f.logits[i], row[size_t(f.ids[i])]);
  }
  EXPECT_EQ(top_of(row, 1, 2).ids, (std::vector<int32_t>{1}));
  EXPECT_EQ(top_of(row, 3, 2).ids, (std::vector<int32_t>{1, 3, 4}));
  EXPECT_EQ(top_of(row, 4, 2).ids, (std::vector<int32_t>{1, 3, 4, 5}));
  EXPECT_EQ(top_of(row, 7, 2).ids, (std::vector<int32_t>{0, 1, 3, 4, 5, 6, 7}));
}

TEST(HeadLogits, OneThatIsNotFiniteSpoilsTheRowAndNoId) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Found f = top_of({1, bad, 3}, 2, 1);
    EXPECT_EQ(f.ids, (std::vector<int32_t>{0, 1}));
    EXPECT_TRUE(std::isnan(f.lse) && std::isnan(f.logits[0]) && std::isnan(f.logits[1]));
  }
}

}  // namespace
}  // namespace weft
