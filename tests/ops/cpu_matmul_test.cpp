// CpuMatmul against a double loop, and what its Numerics promise about bits.
#include "weft/ops/cpu/matmul.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tolerance.h"
#include "weft/ops/cpu/cpu_features.h"
#include "weft/ops/cpu/matmul_amx.h"
#include "weft/ops/cpu/matmul_converted.h"
#include "weft/ops/cpu/rows.h"

namespace weft {
namespace {

struct Case {
  int64_t m, n, k;
  bool trans_a = false, trans_b = false, accumulate = false, bias = false;
  DType in = DType::f32, out = DType::f32;
  int64_t gap = 0;  // elements between rows
  std::string name() const {
    return fmt::format("[{} {} {}]{}{}{}{} {}->{} gap {}", m, n, k, trans_a ? " a^T" : "", trans_b ? " b^T" : "",
                       accumulate ? " +=" : "", bias ? " +bias" : "", name_of(in), name_of(out), gap);
  }
};

double value_of(const Tensor& t, int64_t row, int64_t col) {
  const int64_t at = row * t.row_stride + col;
  return cpu::with_type_of(t, [&]<class T>() { return double(float(t.as<T>()[at])); });
}

// A matrix of pseudo-random values in [-1, 1), and of 7.5 in the gaps between its rows.
class Matrix {
 public:
  Matrix(DType type, int64_t rows, int64_t cols, int64_t gap, uint32_t seed)
      : memory_(size_t((rows * (cols + gap) + 1) * size_of(type))), tensor_(memory_.data(), type, {rows, cols}) {
    tensor_.row_stride = cols + gap;
    std::mt19937 draw(seed);
    cpu::with_type_of(tensor_, [&]<class T>() {
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < cols + gap; ++j)
          tensor_.as<T>()[i * (cols + gap) + j] = T(j < cols ? float(draw() >> 8) * 0x1p-23f - 1.0f : 7.5f);
    });
  }
  const Tensor& tensor() const { return tensor_; }
  const std::vector<std::byte>& memory() const { return memory_; }

 private:
  std::vector<std::byte> memory_;
  Tensor tensor_;
};

// The operands of a case. A Matmul refers to them.
struct MatmulOperands {
  explicit MatmulOperands(const Case& c)
      : a(c.in, c.trans_a ? c.k : c.m, c.trans_a ? c.m : c.k, c.gap, 1),
        b(c.in, c.trans_b ? c.n : c.k, c.trans_b ? c.k : c.n, c.gap, 2),
        out(c.out, c.m, c.n, c.gap, 3),
        bias(c.in, 1, c.n, 0, 4) {
    op = {.a = a.tensor(), .b = b.tensor(), .out = out.tensor(), .trans_a = c.trans_a, .trans_b = c.trans_b};
    op.accumulate = c.accumulate;
    if (c.bias) op.bias = Tensor(bias.tensor().data, c.in, {c.n});
  }
  MatmulOperands(const MatmulOperands&) = delete;
  Matrix a, b, out, bias;
  Matmul op;
};

template <class AnyMatmul>
void run(AnyMatmul& matmul, const Matmul& op) {
  const int64_t bytes = matmul.workspace_bytes(op);
  std::vector<std::byte> memory(size_t(bytes) + 64 + 8, std::byte{0x5a});
  const size_t skip = (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  matmul.run(op, memory.data() + skip);
  for (size_t i = skip + size_t(bytes); i < memory.size(); ++i) ASSERT_EQ(memory[i], std::byte{0x5a});
}

std::vector<std::byte> bits_of(const Case& c, int threads, Numerics numerics) {
  MatmulOperands x(c);
  CpuMatmul matmul(threads, numerics);
  run(matmul, x.op);
  return x.out.memory();
}

std::vector<double> values_of(const Tensor& t, bool transposed) {
  std::vector<double> values;
  for (int64_t i = 0; i < (transposed ? t.cols() : t.rows()); ++i)
    for (int64_t j = 0; j < (transposed ? t.rows() : t.cols()); ++j)
      values.push_back(transposed ? value_of(t, j, i) : value_of(t, i, j));
  return values;
}

// |got - exact| stays within what rounding can do: sums over k in f32, then one rounding to the type of `out`.
template <class AnyMatmul>
void expect_equals_double_loop(const Case& c, AnyMatmul& matmul) {
  SCOPED_TRACE(c.name());
  MatmulOperands x(c);
  const MatmulOperands before(c);
  run(matmul, x.op);
  const std::vector<double> a = values_of(x.op.a, c.trans_a), b = values_of(x.op.b, c.trans_b);
  const double f32_rounding = 0x1p-24, last = testing::unit_roundoff(c.out);
  const double growth = 4 * f32_rounding * std::max(1.0, std::log2(double(c.k) + 1));
  std::vector<double> row(static_cast<size_t>(c.n)),
      sizes(row.size());  // of a row of out: sums, and of absolute values
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      row[size_t(j)] = c.accumulate ? value_of(before.op.out, i, j) : c.bias ? value_of(x.bias.tensor(), 0, j) : 0;
      sizes[size_t(j)] = std::abs(row[size_t(j)]);
    }
    for (int64_t p = 0; p < c.k; ++p) {
      const double* const factors = b.data() + p * c.n;
      for (int64_t j = 0; j < c.n; ++j) {
        const double term = a[size_t(i * c.k + p)] * factors[j];
        row[size_t(j)] += term, sizes[size_t(j)] += std::abs(term);
      }
    }
    for (int64_t j = 0; j < c.n; ++j) {
      const double sum = row[size_t(j)], sums = growth * sizes[size_t(j)], got = value_of(x.op.out, i, j);
      const double allowed = sums + last * (std::abs(sum) + sums);
      if (!(std::abs(got - sum) <= allowed)) FAIL() << got << ", not " << sum << " at " << i << ", " << j;
    }
    for (int64_t j = 0; i + 1 < c.m && j < c.gap; ++j) ASSERT_EQ(value_of(x.op.out, i, c.n + j), 7.5) << "gap";
  }
}

// Odd shapes in each orientation, around the sizes of tiles and blocks; the gaps between rows take turns.
std::vector<Case> shapes() {
  constexpr std::array<std::array<int64_t, 3>, 17> kShapes{{{1, 1, 1},
                                                            {1, 17, 5},
                                                            {3, 1, 64},
                                                            {2, 33, 1},
                                                            {4, 39, 101},
                                                            {13, 31, 63},
                                                            {14, 32, 48},
                                                            {15, 47, 129},
                                                            {64, 65, 257},
                                                            {129, 257, 40},
                                                            {100, 67, 515},
                                                            {31, 700, 33},
                                                            {20, 35, 1100},
                                                            {400, 20, 70},
                                                            {67, 8, 515},
                                                            {33, 16, 40},
                                                            {129, 3, 800}}};
  constexpr std::array<int64_t, 3> kGaps{0, 3, 16};
  std::vector<Case> cases;
  for (const auto& [m, n, k] : kShapes)
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        cases.push_back({.m = m,
                         .n = n,
                         .k = k,
                         .trans_a = trans_a,
                         .trans_b = trans_b,
                         .gap = kGaps[cases.size() % kGaps.size()]});
  return cases;
}

enum class Start { zero, accumulate, bias };
std::vector<Case> cases_of(DType in, DType out, std::initializer_list<Start> starts) {
  std::vector<Case> cases;
  for (Case c : shapes())
    for (const Start start : starts) {
      c.in = in, c.out = out, c.accumulate = start == Start::accumulate, c.bias = start == Start::bias;
      cases.push_back(c);
    }
  return cases;
}

// Every way a result can start and end, for each shape.
std::vector<Case> all_cases() {
  std::vector<Case> all = cases_of(DType::f32, DType::f32, {Start::zero, Start::accumulate, Start::bias});
  for (const DType in : {DType::bf16, DType::f16})
    for (const auto& more :
         {cases_of(in, in, {Start::zero, Start::bias}), cases_of(in, DType::f32, {Start::accumulate, Start::bias})})
      all.insert(all.end(), more.begin(), more.end());
  return all;
}

// What to compare bits on: all of f32, which is cheap, and one way of 16 bits, for which a primitive is made each time.
std::vector<Case> bit_cases() {
  std::vector<Case> cases = cases_of(DType::f32, DType::f32, {Start::zero, Start::accumulate, Start::bias});
  for (const DType in : {DType::bf16, DType::f16}) {
    const std::vector<Case> narrow = cases_of(in, DType::f32, {Start::accumulate});
    cases.insert(cases.end(), narrow.begin(), narrow.end());
  }
  cases.push_back({.m = 384, .n = 520, .k = 2048, .trans_a = true});
  cases.push_back({.m = 384, .n = 520, .k = 2048, .trans_a = true, .in = DType::bf16});
  return cases;
}

TEST(CpuMatmul, EqualsADoubleLoop) {
  CpuMatmul matmul(2, Numerics::fast);
  for (const Case& c : all_cases()) expect_equals_double_loop(c, matmul);
}

TEST(CpuMatmul, EqualsADoubleLoopInInvariantNumerics) {
  CpuMatmul matmul(3, Numerics::invariant);
  for (const Case& c : all_cases()) expect_equals_double_loop(c, matmul);
}

// Large enough for several blocks of each dimension.
TEST(CpuMatmulSlow, EqualsADoubleLoopWhereBlocksDoNotFitTheCache) {
  CpuMatmul matmul(1, Numerics::fast);
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true})
      for (const auto& [m, n] : {std::pair<int64_t, int64_t>{530, 620}, {620, 530}})
        expect_equals_double_loop(
            {.m = m, .n = n, .k = 530, .trans_a = trans_a, .trans_b = trans_b, .accumulate = true}, matmul);
}

TEST(ConvertedMatmulSlow, EqualsADoubleLoop) {
  ConvertedMatmul matmul(2);
  for (const Case& c : all_cases())
    if (c.in != DType::f32) expect_equals_double_loop(c, matmul);
}

TEST(CpuMatmul, AnEmptySumIsTheBiasOrZeroOrNothingAdded) {
  CpuMatmul matmul(2, Numerics::fast);
  for (const DType in : {DType::f32, DType::bf16, DType::f16})
    for (const DType out : {DType::f32, in})
      for (const int start : {0, 1, 2})
        expect_equals_double_loop(
            {.m = 5, .n = 7, .k = 0, .accumulate = start == 1, .bias = start == 2, .in = in, .out = out, .gap = 3},
            matmul);
}

TEST(CpuMatmul, WritesNothingWhereOutIsEmpty) {
  CpuMatmul matmul(2, Numerics::fast);
  expect_equals_double_loop({.m = 0, .n = 7, .k = 5}, matmul);
  expect_equals_double_loop({.m = 7, .n = 0, .k = 5}, matmul);
}

TEST(CpuMatmul, RepeatsBitForBit) {
  for (const Case& c : bit_cases()) {
    SCOPED_TRACE(c.name());
    ASSERT_EQ(bits_of(c, 2, Numerics::fast), bits_of(c, 2, Numerics::fast));
  }
}

TEST(CpuMatmul, InvariantBitsDoNotDependOnThreads) {
  for (const Case& c : bit_cases()) {
    SCOPED_TRACE(c.name());
    const std::vector<std::byte> one = bits_of(c, 1, Numerics::invariant);
    for (const int threads : {2, 3, 4}) ASSERT_EQ(one, bits_of(c, threads, Numerics::invariant)) << threads;
  }
}

// The order of a sum must not follow from where the operands happen to lie.
TEST(CpuMatmul, InvariantBitsDoNotDependOnStrides) {
  for (Case c : cases_of(DType::f32, DType::f32, {Start::accumulate})) {  // oneDNN does not promise it for bf16
    SCOPED_TRACE(c.name());
    MatmulOperands dense((c.gap = 0, c)), apart((c.gap = 19, c));
    CpuMatmul matmul(2, Numerics::invariant);
    run(matmul, dense.op);
    run(matmul, apart.op);
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j)
        ASSERT_EQ(value_of(dense.op.out, i, j), value_of(apart.op.out, i, j)) << "at " << i << ", " << j;
  }
}

// A micro-batch cut differently gives the same rows.
TEST(CpuMatmul, InvariantBitsOfARowDoNotDependOnTheOtherRows) {
  MatmulOperands x({.m = 131, .n = 67, .k = 900, .trans_b = true});
  CpuMatmul matmul(2, Numerics::invariant);
  run(matmul, x.op);
  const std::vector<std::byte> whole = x.out.memory();
  for (const int64_t rows : {1, 5, 64}) {
    Matmul part = x.op;
    part.a = x.op.a.slice_rows(7, rows);
    part.out = x.op.out.slice_rows(7, rows);
    run(matmul, part);
    EXPECT_EQ(x.out.memory(), whole) << rows;
  }
}

// A batch of texts writes what each of them would alone.
TEST(CpuMatmul, BitsOfFewRowsDependNeitherOnTheOtherRowsNorOnThreads) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t k : {301, 320}) {  // 320: of whole steps of AMX
      MatmulOperands x({.m = 16, .n = 131, .k = k, .trans_b = true, .in = type, .out = type});
      CpuMatmul first(1, Numerics::fast);
      run(first, x.op);
      const std::vector<std::byte> whole = x.out.memory();
      for (const int threads : {1, 2, 7})
        for (const int64_t rows : {1, 3, 8}) {
          SCOPED_TRACE(fmt::format("{}, {} rows, k {}, {} threads", name_of(type), rows, k, threads));
          CpuMatmul matmul(threads, Numerics::fast);
          Matmul part = x.op;
          part.a = x.op.a.slice_rows(5, rows);
          part.out = x.op.out.slice_rows(5, rows);
          run(matmul, part);
          EXPECT_EQ(x.out.memory(), whole);
        }
    }
  }
}

// Whole groups of tiles, a part of one, and columns behind whole tiles; rows that lie apart.
TEST(CpuMatmul, EqualsADoubleLoopForFewRowsOfWholeSteps) {
  CpuMatmul matmul(2, Numerics::fast);
  for (const int64_t m : {1, 5, 16})
    for (const int64_t n : {15, 16, 47, 64, 131, 200})
      for (const Start start : {Start::zero, Start::accumulate, Start::bias})
        for (const DType out : {DType::bf16, DType::f32}) {
          const int64_t gap = n % 2 == 0 ? 0 : 3;
          Case c{.m = m, .n = n, .k = 32 * m, .trans_b = true, .in = DType::bf16, .out = out, .gap = gap};
          c.accumulate = start == Start::accumulate, c.bias = start == Start::bias;
          expect_equals_double_loop(c, matmul);
        }
}

// AmxMatmul alone, where kernels may use AMX.
class AmxMatmulTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (isa_of_kernels() != CpuIsa::amx) GTEST_SKIP() << "this CPU has no AMX, or kernels are kept from it";
  }
};

std::vector<Case> amx_cases() {
  std::vector<Case> cases = cases_of(DType::bf16, DType::bf16, {Start::zero, Start::accumulate, Start::bias});
  const std::vector<Case> wide = cases_of(DType::bf16, DType::f32, {Start::zero, Start::accumulate, Start::bias});
  cases.insert(cases.end(), wide.begin(), wide.end());
  for (const DType out : {DType::bf16, DType::f32})  // several blocks of k, the last with an odd value
    for (const bool trans : {false, true})
      cases.push_back({.m = 70,
                       .n = 41,
                       .k = 4131,
                       .trans_a = trans,
                       .trans_b = !trans,
                       .accumulate = trans,
                       .in = DType::bf16,
                       .out = out,
                       .gap = 5});
  return cases;
}

TEST_F(AmxMatmulTest, EqualsADoubleLoop) {
  AmxMatmul matmul(2);
  for (const Case& c : amx_cases()) expect_equals_double_loop(c, matmul);
}

TEST_F(AmxMatmulTest, CutsOutWhereSumsOfSeveralBlocksOfKWait) {
  AmxMatmul matmul(1);
  MatmulOperands x({.m = 1100, .n = 40, .k = 2100, .trans_b = true, .in = DType::bf16, .out = DType::f32});
  run(matmul, x.op);
  const std::vector<std::byte> whole = x.out.memory();
  Matmul part = x.op;  // the rows behind the cut
  part.a = x.op.a.slice_rows(1000, 100);
  part.out = x.op.out.slice_rows(1000, 100);
  run(matmul, part);
  EXPECT_EQ(x.out.memory(), whole);
}

TEST_F(AmxMatmulTest, BitsDependNeitherOnThreadsNorOnStridesNorOnTheOtherRows) {
  for (Case c : amx_cases()) {
    SCOPED_TRACE(c.name());
    MatmulOperands one((c.gap = 0, c)), apart((c.gap = 19, c));
    AmxMatmul alone(1), team(3 + int(c.m % 2));
    run(alone, one.op);
    run(team, apart.op);
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j)
        ASSERT_EQ(value_of(one.op.out, i, j), value_of(apart.op.out, i, j)) << "at " << i << ", " << j;
    if (c.trans_a || c.accumulate || c.m < 3) continue;
    const std::vector<std::byte> whole = one.out.memory();
    Matmul part = one.op;
    part.a = one.op.a.slice_rows(1, c.m / 2);
    part.out = one.op.out.slice_rows(1, c.m / 2);
    run(team, part);
    ASSERT_EQ(one.out.memory(), whole);
  }
}

TEST_F(AmxMatmulTest, NanAndInfinityReachTheRowsAndColumnsTheyBelongToAlone) {
  for (const DType out : {DType::bf16, DType::f32}) {
    MatmulOperands x({.m = 35, .n = 37, .k = 33, .in = DType::bf16, .out = out});
    x.op.a.as<bf16>()[34 * x.op.a.row_stride + 32] = bf16(std::nanf(""));
    x.op.a.as<bf16>()[3 * x.op.a.row_stride + 1] = bf16(INFINITY);
    AmxMatmul matmul(1);
    run(matmul, x.op);
    for (int64_t i = 0; i < 35; ++i)
      for (int64_t j = 0; j < 37; ++j) {
        const double got = value_of(x.op.out, i, j);
        EXPECT_EQ(std::isnan(got), i == 34) << i << ", " << j;
        EXPECT_EQ(std::isinf(got), i == 3) << i << ", " << j;
      }
  }
}

TEST_F(AmxMatmulTest, NoProductNeedsMoreMemoryThanTheMostOfAny) {
  for (const int threads : {1, 3}) {
    const AmxMatmul matmul(threads);
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                     {9000, 9000, 3},
                                                                     {9000, 9000, 2049},
                                                                     {5000, 512, 50257},
                                                                     {40000, 512, 512},
                                                                     {33, 40000, 2048}}) {
      const auto product = [](int64_t rows, int64_t cols, int64_t depth) {
        return Matmul{.a = Tensor(nullptr, DType::bf16, {rows, depth}),
                      .b = Tensor(nullptr, DType::bf16, {depth, cols}),
                      .out = Tensor(nullptr, DType::bf16, {rows, cols})};
      };
      const int64_t most = matmul.most_workspace_bytes(product(m, n, k));
      for (const int64_t part : {1, 2, 7, 64})  // of the rows, as an expert has; of k, as its weights' gradient has
        for (const Matmul& op : {product((m + part - 1) / part, n, k), product(m, n, (k + part - 1) / part)})
          EXPECT_LE(matmul.workspace_bytes(op), most) << m << " " << n << " " << k << ", part " << part;
    }
  }
}

TEST(CpuMatmul, RanksOnThreadsOfTheirOwnDoNotDisturbEachOther) {
  const Case c{.m = 200, .n = 131, .k = 515, .trans_b = true};
  const std::vector<std::byte> alone = bits_of(c, 2, Numerics::fast);
  std::vector<std::vector<std::byte>> got(4);
  std::vector<std::thread> ranks;
  for (auto& bits : got) ranks.emplace_back([&bits, &c] { bits = bits_of(c, 2, Numerics::fast); });
  for (auto& rank : ranks) rank.join();
  for (const auto& bits : got) EXPECT_EQ(bits, alone);
}

}  // namespace
}  // namespace weft
