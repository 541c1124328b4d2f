// Shapes that the GPU's kernels treat apart, on a CPU: vectors beside columns, rows in packs and not, sums of many
// blocks, tiles that end within a group, products cut in two.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "ops/cases_experts.h"
#include "ops/cases_matrix.h"
#include "ops/cases_norm.h"
#include "ops/cases_pointwise.h"
#include "ops/host_kernels.h"
#include "weft/ops/cuda/cut_matmul.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

using testing::normal;
using testing::OpCases;
using testing::Operands;
using testing::Variant;

void expect_equal_to_the_reference(const OpCases& cases) {
  for (const testing::OpCase& c : cases) {
    const auto trial = c.make();
    RefBackend ref(1);
    for (const auto order : {gpu::HostOrder::Kind::ascending, gpu::HostOrder::Kind::descending}) {
      testing::HostKernels kernels(order);
      trial->reset();
      trial->run(kernels);
      trial->run_exact(ref);
      EXPECT_EQ(trial->difference(), "") << c.name;
      EXPECT_EQ(trial->trespass(), "") << c.name;
    }
  }
}

TEST(GpuShapes, AVectorIsCopiedToAColumnAndBack) {
  OpCases cases;
  for (const int64_t gap : {0, 8}) {
    const Variant v{DType::bf16, gap};
    testing::add_case(cases, v, "from a vector",
                      [](Operands& o) { return Copy{.from = o.stats(37, normal()), .to = o.act_out(37, 1)}; });
    testing::add_case(cases, v, "to a vector",
                      [](Operands& o) { return Copy{.from = o.act(37, 1), .to = o.stats(37)}; });
  }
  expect_equal_to_the_reference(cases);
}

TEST(GpuShapes, NormsOfManyRowsInPacksAndNot) {
  OpCases cases;
  for (const int64_t width : {72, 75}) {  // 9 packs; no packs
    for (const bool layer : {false, true}) {
      const testing::NormCase c{.t = 70, .d = width, .layer_norm = layer, .bias = layer, .carry = true};
      const Variant v{DType::bf16};
      testing::add_case(cases, v, testing::name_of_case(c), [c](Operands& o) { return testing::make_norm(o, c); });
      testing::add_case(cases, v, testing::name_of_case(c),
                        [c](Operands& o) { return testing::make_norm_backward(o, c); });
    }
  }
  expect_equal_to_the_reference(cases);
}

TEST(GpuShapes, ClassesInPacksAndBehindThem) {
  OpCases cases;
  for (const auto& [classes, gap] : {std::pair<int64_t, int64_t>{72, 0}, {75, 5}}) {  // rows of 72 and of 80
    const Variant v{DType::bf16, gap};
    const testing::LossCase all{9, classes, "packs", 1, 3};
    const testing::PartCase part{9, classes, 3, "packs"};
    testing::add_case(cases, v, "", [=](Operands& o) { return testing::make_cross_entropy(o, all); });
    testing::add_case(cases, v, "", [=](Operands& o) { return testing::make_cross_entropy_part(o, part); });
    testing::add_case(cases, v, "", [=](Operands& o) { return testing::make_cross_entropy_join(o, part, true); });
  }
  expect_equal_to_the_reference(cases);
}

TEST(GpuShapes, ALossBesideNanIsNan) {
  constexpr int64_t kClasses = 72;
  for (int64_t bad = 0; bad < kClasses; ++bad) {
    std::vector<float> logits(size_t(kClasses), 0.5f), weights{1}, nll{0};
    std::vector<int32_t> targets{3};
    logits[size_t(bad)] = std::numeric_limits<float>::quiet_NaN();
    testing::HostKernels kernels;
    kernels.run(CrossEntropy{.logits = {logits.data(), DType::f32, {1, kClasses}},
                             .targets = {targets.data(), DType::i32, {1}},
                             .weights = {weights.data(), DType::f32, {1}},
                             .nll = {nll.data(), DType::f32, {1}}});
    EXPECT_TRUE(std::isnan(nll[0])) << bad;
  }
}

// In f32 the sum of what an id has depends on its order: 1e8 - 1e8 + 1 + 1 + ... is as many ones as there are.
TEST(GpuShapes, RowsOfAnEmbeddingAddInTheOrderOfTheirTokens) {
  constexpr int64_t kTokens = 700, kWidth = 9;
  std::vector<int32_t> ids(size_t{kTokens}, 7);
  std::vector<float> dy(size_t(kTokens * kWidth), 1.0f), dtable(size_t{2 * kWidth}, 0.0f);
  int64_t of_six = 0;
  for (int64_t i = 0; i < kTokens; i += 3, ++of_six) ids[size_t(i)] = 6;
  for (int64_t j = 0; j < kWidth; ++j) dy[size_t(j)] = 1e8f, dy[size_t(3 * kWidth + j)] = -1e8f;
  for (const auto order : {gpu::HostOrder::Kind::ascending, gpu::HostOrder::Kind::shuffled}) {
    std::fill(dtable.begin(), dtable.end(), 0.0f);
    testing::HostKernels(order).run(EmbedBackward{.ids = {ids.data(), DType::i32, {kTokens}},
                                                  .dy = {dy.data(), DType::f32, {kTokens, kWidth}},
                                                  .dtable = {dtable.data(), DType::f32, {2, kWidth}},
                                                  .first = 6});
    for (int64_t j = 0; j < kWidth; ++j) {
      EXPECT_EQ(dtable[size_t(j)], float(of_six - 2));
      EXPECT_EQ(dtable[size_t(kWidth + j)], float(kTokens - of_six));
    }
  }
}

TEST(GpuShapes, SquaresOfMoreLeavesThanABlockAdds) {
  constexpr int64_t kElements = (gpu::kTreeRun + 3) * kSumLeaf + 5;
  OpCases cases;
  testing::add_case(cases, Variant{}, "many",
                    [](Operands& o) { return SumSquares{.x = o.stats(kElements, normal(1e-3)), .out = o.scalar()}; });
  expect_equal_to_the_reference(cases);
}

TEST(GpuShapes, TilesOfExpertsEndWithinTheirGroups) {
  OpCases cases;
  const Variant v{DType::bf16};
  const std::vector<int32_t> offsets{0, 131, 131, 150};
  for (const bool turned : {false, true})
    testing::add_case(cases, v, turned ? "turned" : "", [=](Operands& o) {
      return GroupedMatmul{.x = o.act(153, turned ? 40 : 72),
                           .w = o.make_together({3 * 40, 72}, normal()),
                           .offsets = o.index(offsets, Placement()),
                           .out = o.act_out(153, turned ? 72 : 40),
                           .turned = turned};
    });
  testing::add_case(cases, v, "", [=](Operands& o) {
    return GroupedWeightGrad{.dy = o.act(153, 40),
                             .x = o.act(153, 72),
                             .offsets = o.index(offsets, Placement()),
                             .dw = o.gradient_together({3 * 40, 72}, true),
                             .accumulate = true};
  });
  expect_equal_to_the_reference(cases);
}

// Both parts one after the other are the whole product.
TEST(GpuShapes, ProductsThatAreCutAreWhole) {
  for (const bool depth : {false, true}) {
    for (const bool turned : {false, true}) {
      Operands o(DType::bf16, 0, std::make_shared<testing::HeapMemory>());
      const int64_t n = depth ? 24 : 1043, k = depth ? 1043 : 24;
      Matmul op{.a = o.act(9, k),
                .b = turned ? o.weight({n, k}) : o.weight({k, n}),
                .out = o.act_out(9, n),
                .trans_b = turned,
                .bias = depth ? Tensor() : o.weight({n})};
      ASSERT_EQ(cuts_depth(op), depth);
      ASSERT_EQ(cuts_columns(op), !depth);
      const Tensor whole = o.act_out(9, n), sum = o.stats(9, n);
      testing::HostKernels kernels;
      Matmul once = op;
      once.out = whole;
      kernels.run(once);
      if (depth) {
        kernels.run(part_of_depth(op, 0, whole_part(k), sum));
        Matmul rest = part_of_depth(op, whole_part(k), k % kWholeMultiple, sum);
        rest.accumulate = true;
        kernels.run(rest);
        kernels.run(Copy{.from = sum, .to = op.out});
      } else {
        kernels.run(part_of_columns(op, 0, whole_part(n)));
        kernels.run(part_of_columns(op, whole_part(n), n % kWholeMultiple));
      }
      for (int64_t i = 0; i < 9 * n; ++i)
        ASSERT_NEAR(float(op.out.as<bf16>()[i]), float(whole.as<bf16>()[i]), 0.01 * std::sqrt(double(k))) << i;
    }
  }
}

}  // namespace
}  // namespace weft
