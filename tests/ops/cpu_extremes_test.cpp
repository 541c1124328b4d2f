// The CPU backend's functions where numbers are not ordinary: far tails, infinities, NaN, probabilities near 0 and 1.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "weft/ops/cpu/cpu_backend.h"

namespace weft {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinityF32 = std::numeric_limits<float>::infinity();

using Values = std::vector<float>;
Tensor row(Values& x) { return {x.data(), DType::f32, {1, int64_t(x.size())}}; }

template <class Op>
void run(const Op& op) {
  const CpuSpec spec{};
  Arena workspace("workspace", CpuWorkspace(spec).of(op));
  CpuBackend(spec, workspace).run(op);
}

// As many elements of each x as fill vectors of any CPU.
Values repeated(const Values& x) {
  Values all;
  for (int i = 0; i < 33; ++i) all.insert(all.end(), x.begin(), x.end());
  return all;
}

Values gelu(Values x, bool exact) {
  Values y(x.size());
  run(Gelu{.x = row(x), .y = row(y), .exact = exact});
  return y;
}
Values gelu_slope(Values x, bool exact) {
  Values one(x.size(), 1), dx(x.size());
  run(GeluBackward{.x = row(x), .dy = row(one), .dx = row(dx), .exact = exact});
  return dx;
}
Values swiglu(const Values& gate) {
  Values u = gate, a(gate.size());
  u.insert(u.end(), gate.size(), 1.0f);
  run(GatedUnit{.u = row(u), .a = row(a)});
  return a;
}
Values swiglu_slope(const Values& gate) {
  Values u = gate, da(gate.size(), 1), du(2 * gate.size());
  u.insert(u.end(), gate.size(), 1.0f);
  run(GatedUnitBackward{.u = row(u), .da = row(da), .du = row(du)});
  du.resize(gate.size());
  return du;
}

TEST(CpuExtremes, ActivationsVanishOrPassOnWhatIsFarOut) {
  const Values x = repeated({-1e10f, -300, -110, -90, 90, 110, 300, 1e10f});
  for (const Values& y : {gelu(x, false), gelu(x, true), swiglu(x)})
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i] > 0 ? x[i] : 0.0f, 1e-20) << x[i];
  for (const Values& slope : {gelu_slope(x, false), gelu_slope(x, true), swiglu_slope(x)})
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(slope[i], x[i] > 0 ? 1.0f : 0.0f, 1e-20) << x[i];
}

TEST(CpuExtremes, ActivationsKeepTheirDigitsInTheTails) {
  Values x;
  for (int i = 0; i <= 800; ++i) x.push_back(-8 + 0.02f * float(i));
  const Values exact = gelu(x, true), slope = gelu_slope(x, true), silu = swiglu(x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = double(x[i]), phi = std::exp(-v * v / 2) / std::sqrt(2 * M_PI);
    const double cumulative = 0.5 * std::erfc(-v / std::sqrt(2.0));
    EXPECT_NEAR(exact[i], v * cumulative, 3e-6 * std::abs(v * cumulative)) << v;
    EXPECT_NEAR(slope[i], cumulative + v * phi, 3e-6 * (cumulative + std::abs(v) * phi)) << v;
    EXPECT_NEAR(silu[i], v / (1 + std::exp(-v)), 3e-6 * std::abs(v / (1 + std::exp(-v)))) << v;
  }
}

TEST(CpuExtremes, ANanStaysANan) {
  const Values x = repeated({kNan});
  for (const Values& y :
       {gelu(x, false), gelu(x, true), gelu_slope(x, false), gelu_slope(x, true), swiglu(x), swiglu_slope(x)})
    for (float v : y) EXPECT_TRUE(std::isnan(v));
}

struct Loss {
  float nll;
  Values dlogits;
};
Loss cross_entropy(Values logits, int32_t target) {
  float weight = 1;
  Loss loss{0, Values(logits.size())};
  run(CrossEntropy{.logits = row(logits),
                   .targets = {&target, DType::i32, {1}},
                   .weights = {&weight, DType::f32, {1}},
                   .nll = {&loss.nll, DType::f32, {1}},
                   .dlogits = row(loss.dlogits)});
  return loss;
}

TEST(CpuExtremes, CrossEntropyOfFarLogitsIsTheirDifference) {
  Values logits(100, -1e4f);
  logits[37] = 1e4f;
  const Loss right = cross_entropy(logits, 37), wrong = cross_entropy(logits, 3);
  EXPECT_EQ(right.nll, 0);
  EXPECT_EQ(wrong.nll, 2e4f);
  for (size_t j = 0; j < logits.size(); ++j) {
    EXPECT_NEAR(right.dlogits[j], 0, 1e-30);
    EXPECT_NEAR(wrong.dlogits[j], j == 37 ? 1 : j == 3 ? -1 : 0, 1e-30);
  }
}

TEST(CpuExtremes, CrossEntropyOfMaskedClassesCountsTheOthers) {
  Values logits(100, -kInfinityF32);
  logits[5] = logits[80] = 2;
  const Loss loss = cross_entropy(logits, 5);
  EXPECT_NEAR(loss.nll, std::log(2.0), 1e-6);
  EXPECT_NEAR(loss.dlogits[80], 0.5, 1e-6);
  EXPECT_NEAR(loss.dlogits[7], 0, 1e-30);
}

TEST(CpuExtremes, CrossEntropyOfANanIsNan) {
  for (size_t at : {0u, 50u, 98u, 99u}) {
    Values logits(100, 1);
    logits[at] = kNan;
    EXPECT_TRUE(std::isnan(cross_entropy(logits, 7).nll)) << at;
    EXPECT_TRUE(std::isnan(cross_entropy(logits, 7).dlogits[20])) << at;
  }
}

TEST(CpuExtremes, AttentionToANanIsNan) {
  for (int64_t bad : {0, 1, 40, 69}) {
    Values q(70, 0.5f), k(70, 0.25f), v(70, 1), o(70), lse(70);
    k[size_t(bad)] = kNan;
    const auto column = [](Values& x) { return Tensor(x.data(), DType::f32, {70, 1}); };
    const std::vector<AttentionSpan> spans{{.q_count = 70, .k_count = 70}};
    run(Attention{.q = column(q),
                  .k = column(k),
                  .v = column(v),
                  .o = column(o),
                  .lse = column(lse),
                  .spans = spans,
                  .heads = {.q = 1, .kv = 1, .dim = 1, .first = 0, .total = 1}});
    for (int64_t i = 0; i < 70; ++i) {
      EXPECT_EQ(std::isnan(o[size_t(i)]), i >= bad) << "row " << i << " of keys whose number " << bad << " is NaN";
      EXPECT_EQ(std::isnan(lse[size_t(i)]), i >= bad);
    }
  }
}

TEST(CpuExtremes, DropoutDropsAsManyAsItShould) {
  const int64_t n = 1 << 16;
  for (double p : {1e-12, 0.001, 0.5, 0.999, 1 - 1e-12}) {
    Values x(n, 1), y(n);
    int64_t token = 3;
    run(Dropout{
        .x = row(x), .y = row(y), .tokens = {&token, DType::i64, {1}}, .dropout = {p, 9}, .first = 0, .total = n});
    double kept = 0;
    for (float v : y) kept += v != 0;
    EXPECT_NEAR(kept, n * (1 - p), 5 * std::sqrt(double(n) * p * (1 - p)) + 0.5) << p;
  }
}

TEST(CpuExtremes, BFloat16RoundsToNearestEvenAndKeepsNan) {
  Values x = repeated({1.0f, 1.00390625f, 1.01171875f, -1.00390626f, 3.4e38f, 1e-40f, kInfinityF32, kNan, -0.0f});
  std::vector<bf16> y(x.size());
  run(Copy{.from = row(x), .to = {y.data(), DType::bf16, {1, int64_t(y.size())}}});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i].bits, bf16(x[i]).bits) << x[i];
}

TEST(CpuExtremes, SumsOfManyElementsKeepTheirDigits) {
  Values x(1 << 21, 0.1f);
  double sum = 0, squares = 0;
  const Tensor t(x.data(), DType::f32, {int64_t(x.size())});
  run(Sum{.x = t, .out = {&sum, DType::f64, {1}}});
  run(SumSquares{.x = t, .out = {&squares, DType::f64, {1}}});
  EXPECT_NEAR(sum, double(0.1f) * double(x.size()), 1e-6);
  EXPECT_NEAR(squares, double(0.1f) * double(0.1f) * double(x.size()), 1e-6);
}

}  // namespace
}  // namespace weft
