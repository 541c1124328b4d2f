// Forward ops and optimizers on the reference backend: against numbers worked out by hand, or a second way to compute.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/cases_attention.h"

namespace weft {
namespace {

using Values = std::vector<double>;

Tensor tensor(Values& v, Shape shape) { return {v.data(), DType::f64, shape}; }
Tensor tensor(Values& v) { return tensor(v, {int64_t(v.size())}); }
template <class T>
Tensor indices(std::vector<T>& v) {
  return {v.data(), dtype_of<T>, Shape(int64_t(v.size()))};
}
template <class Op>
void run(const Op& op) {
  RefBackend(2).run(op);
}
void expect_near(const Values& got, const Values& want, double tolerance = 1e-14) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

TEST(RefValues, MatmulTransposesAddsAndBiases) {
  Values a{1, 2, 3, 4, 5, 6}, b{1, 0, 2, -1, 3, 1}, bias{10, 20}, y{100, 200, 300, 400};
  const Tensor out = tensor(y, {2, 2});
  run(Matmul{.a = tensor(a, {2, 3}), .b = tensor(b, {3, 2}), .out = out, .accumulate = true});
  expect_near(y, {114, 201, 332, 401});
  run(Matmul{.a = tensor(a, {2, 3}), .b = tensor(b, {2, 3}), .out = out, .trans_b = true, .bias = tensor(bias)});
  expect_near(y, {17, 28, 26, 37});
  run(Matmul{.a = tensor(a, {3, 2}), .b = tensor(b, {3, 2}), .out = out, .trans_a = true});
  expect_near(y, {22, 2, 28, 2});
}

TEST(RefValues, EmbedLeavesIdsOfOtherRanksZero) {
  Values table{1, 2, 3, 4}, y(8, 7.0);
  std::vector<int32_t> ids{11, 10, 12, 9};
  run(Embed{.ids = indices(ids), .table = tensor(table, {2, 2}), .out = tensor(y, {4, 2}), .first = 10});
  expect_near(y, {3, 4, 1, 2, 0, 0, 0, 0});
}

TEST(RefValues, NormsOfOneToFour) {
  Values x{0, 2, 3, 3}, delta{1, 0, 0, 1}, sum(4), w{1, 1, 1, 2}, b{0, 0, 0, 1}, y(4), mean(1), rstd(1);
  const Shape row{1, 4};
  run(Norm{.x = tensor(x, row),
           .delta = tensor(delta, row),
           .sum = tensor(sum, row),
           .w = tensor(w),
           .b = tensor(b),
           .y = tensor(y, row),
           .mean = tensor(mean),
           .rstd = tensor(rstd),
           .eps = 0.3125});  // variance 1.25
  const double r = 1 / std::sqrt(1.5625);
  expect_near(sum, {1, 2, 3, 4});
  expect_near(mean, {2.5});
  expect_near(rstd, {r});
  expect_near(y, {-1.5 * r, -0.5 * r, 0.5 * r, 3 * r + 1});
  run(Norm{.x = tensor(sum, row), .w = tensor(w), .y = tensor(y, row), .rstd = tensor(rstd), .eps = 1.5});
  expect_near(y, {1 / 3.0, 2 / 3.0, 1, 8 / 3.0});  // mean square 7.5
}

TEST(RefValues, HeadNormIsTheRmsNormOfEachHead) {
  Values x{3, 4, 6, 8}, w{1, 2}, y(4), rstd(2);
  run(HeadNorm{.x = tensor(x, {1, 4}), .w = tensor(w), .y = tensor(y, {1, 4}), .rstd = tensor(rstd, {1, 2}), .eps = 0});
  const double r = 1 / std::sqrt(12.5);
  expect_near(rstd, {r, r / 2});
  expect_near(y, {3 * r, 8 * r, 3 * r, 8 * r});
}

TEST(RefValues, RopeTurnsHalvesOfAHead) {
  Values x{1, 0, 0, 2}, table{1, 1, 0, 0, 0.6, 0.8, 0.8, 0.6};
  std::vector<int32_t> positions{1};
  run(Rope{.x = tensor(x, {1, 4}), .positions = indices(positions), .table = tensor(table, {2, 4})});
  expect_near(x, {0.6, -1.2, 0.8, 1.6});
}

TEST(RefValues, RopeTurnsNeighboursWithinAPartOfAHead) {
  Values x{7, 1, 2, 0, 2, 9}, table{1, 1, 0, 0, 0.6, 0.8, 0.8, 0.6};
  std::vector<int32_t> positions{1};
  run(Rope{.x = tensor(x, {1, 6}),
           .positions = indices(positions),
           .table = tensor(table, {2, 4}),
           .dim = 6,
           .first = 1,
           .interleaved = true});
  expect_near(x, {7, 0.6 - 1.6, 0.8 + 1.2, -1.2, 1.6, 9});
}

TEST(RefValues, Activations) {
  Values u{1, -2, 3, 5}, a(2), x{1, -2}, y(2);
  run(GatedUnit{.u = tensor(u, {1, 4}), .a = tensor(a, {1, 2})});
  expect_near(a, {3 * 0.7310585786300049, -10 * 0.11920292202211755});
  run(GatedUnit{.u = tensor(u, {1, 4}), .a = tensor(a, {1, 2}), .kind = GateKind::gelu_tanh});
  expect_near(a, {3 * 0.8411919906082768, 5 * -0.04540230591222494});
  run(GatedUnit{.u = tensor(u, {1, 4}), .a = tensor(a, {1, 2}), .kind = GateKind::clamped, .limit = 2});
  expect_near(a, {-0.8457957659328212, 5.806975869432625});  // of 1 and -2; of 3 and 5, both clamped
  run(Gelu{.x = tensor(x), .y = tensor(y), .exact = true});
  expect_near(y, {0.8413447460685429, -0.04550026389635842});
  run(Gelu{.x = tensor(x), .y = tensor(y), .exact = false});
  expect_near(y, {0.8411919906082768, -0.04540230591222494});
}

TEST(RefValues, CrossEntropyOfThreeClasses) {
  Values logits{1, 2, 3, 1000, 0, 0}, nll(2), d(6);
  std::vector<int32_t> targets{2, 0};
  Values weights{1, 1};
  CrossEntropy op{.logits = tensor(logits, {2, 3}),
                  .targets = indices(targets),
                  .weights = tensor(weights),
                  .nll = tensor(nll),
                  .dlogits = tensor(d, {2, 3}),
                  .scale = 2};
  run(op);
  const double e = std::exp(1.0), z = 1 + e + e * e;
  expect_near(nll, {0.4076059644443803, 0});
  expect_near(d, {2 / z, 2 * e / z, 2 * (e * e / z - 1), 0, 0, 0});
  weights = {-0.5, 0};
  logits[3] = INFINITY;  // is not looked at
  run(op);
  expect_near(nll, {-0.5 * 0.4076059644443803, 0});
  expect_near(d, {-1 / z, -e / z, 1 - e * e / z, 0, 0, 0});
}

TEST(RefValues, DropoutFollowsTheBitsOfTheGlobalElement) {
  const double p = 0.3;
  Values x(200, 2.0), y(200);
  std::vector<int64_t> numbers{7, int64_t{1} << 40};
  run(Dropout{.x = tensor(x, {2, 100}),
              .y = tensor(y, {2, 100}),
              .tokens = indices(numbers),
              .dropout = {p, 99},
              .first = 3,
              .total = 1000});
  int dropped = 0;
  for (size_t i = 0; i < 200; ++i) {
    const uint64_t element = uint64_t(numbers[i / 100]) * 1000 + 3 + i % 100;
    const bool drops = random_bits(99, element) < p * 4294967296.0;
    EXPECT_EQ(y[i], drops ? 0 : 2 / (1 - p));
    dropped += drops;
  }
  EXPECT_NEAR(dropped, 60, 25);
}

TEST(RefValues, Reductions) {
  Values x{1, -2, NAN, INFINITY, 0.5}, sum(1);
  run(CountNonfinite{.x = tensor(x), .out = tensor(sum)});
  EXPECT_EQ(sum[0], 2);
  x[2] = x[3] = 3;
  run(Sum{.x = tensor(x), .out = tensor(sum)});
  EXPECT_EQ(sum[0], 5.5);
  run(SumSquares{.x = tensor(x), .out = tensor(sum)});
  EXPECT_EQ(sum[0], 23.25);
}

TEST(RefValues, SumsOfMultiples) {
  Values x{1, -2}, y{10, 100}, out(2);
  run(Axpby{.x = tensor(x), .y = tensor(y), .out = tensor(out), .a = 3, .b = 0.5});
  expect_near(out, {8, 44});
  run(Axpby{.x = tensor(x), .out = tensor(x), .a = 3});
  expect_near(x, {3, -6});
}

// Worked out as torch.optim.AdamW defines it: lr 0.1, betas 0.9 and 0.999, eps 1e-8, decay 0.01; gradients 0.5, -0.25.
TEST(RefValues, TwoStepsOfAdamW) {
  Values w{1}, g{5}, m{0}, v{0}, value{0};
  AdamW op{.w = tensor(w), .grad = tensor(g), .m = tensor(m), .v = tensor(v), .value = tensor(value)};
  op.lr = 0.1, op.beta1 = 0.9, op.beta2 = 0.999, op.eps = 1e-8, op.weight_decay = 0.01, op.grad_scale = 0.1;
  run(op);
  expect_near(w, {0.899000002}, 1e-15);
  g[0] = -2.5, op.step = 2;
  run(op);
  expect_near(m, {0.02});
  expect_near(v, {0.00031225});
  expect_near(w, {0.8714672987058462}, 1e-15);
  EXPECT_EQ(value, w);
}

// As torch.optim.SGD defines it: lr 0.1, momentum 0.9, decay 0.01.
TEST(RefValues, TwoStepsOfSgd) {
  Values w{1}, g{5}, buf{NAN}, value{0};
  Sgd op{.w = tensor(w), .grad = tensor(g), .buf = tensor(buf), .value = tensor(value)};
  op.lr = 0.1, op.momentum = 0.9, op.weight_decay = 0.01, op.grad_scale = 0.1;
  run(op);
  expect_near(buf, {0.51});
  expect_near(w, {0.949});
  op.step = 2;
  run(op);
  expect_near(buf, {0.9 * 0.51 + 0.50949});
  expect_near(w, {0.949 - 0.1 * 0.96849});
  EXPECT_EQ(value, w);
}

// Attention as its definition reads: every query against every key of its document, most of them masked.
class DenseAttention {
 public:
  explicit DenseAttention(const Attention& op) : op_(op), lse(size_t(op.q.rows() * op.heads.q)) {
    o.resize(size_t(op.o.elements()));
    for (const AttentionSpan& s : op.spans)
      for (int64_t i = 0; i < s.q_count; ++i)
        for (int64_t head = 0; head < op.heads.q; ++head) attend(s, i, head);
  }

 private:
  static double at(const Tensor& t, int64_t i, int64_t j) { return t.as<double>()[i * t.row_stride + j]; }
  bool masked(int64_t query, int64_t key) const {
    return key > query || (op_.heads.window > 0 && key <= query - op_.heads.window);
  }
  double kept(const AttentionSpan& s, int64_t head, int64_t query, int64_t key) const {
    const uint64_t head_key = rng_key(op_.dropout.key, uint64_t(s.sample * op_.heads.total + op_.heads.first + head));
    const double p = op_.dropout.p;
    return random_bits(head_key, uint64_t(query) << 32 | uint64_t(key)) < p * 4294967296.0 ? 0 : 1 / (1 - p);
  }
  void attend(const AttentionSpan& s, int64_t i, int64_t head) {
    const int64_t e = op_.heads.dim, u = op_.heads.value_dim(), kv = head / (op_.heads.q / op_.heads.kv);
    const int64_t query = s.q_position + i;
    Values weight(size_t(s.k_count));
    double sum = 0;
    for (int64_t j = 0; j < s.k_count; ++j) {
      double score = 0;
      for (int64_t c = 0; c < e; ++c)
        score += at(op_.q, s.q_row + i, head * e + c) * at(op_.k, s.k_row + j, kv * e + c);
      score *= op_.heads.scale;
      if (const double cap = op_.heads.softcap; cap > 0) score = cap * std::tanh(score / cap);
      weight[size_t(j)] = masked(query, s.k_position + j) ? 0 : std::exp(score);
      sum += weight[size_t(j)];
    }
    lse[size_t((s.q_row + i) * op_.heads.q + head)] = std::log(sum);
    for (int64_t j = 0; j < s.k_count; ++j)
      for (int64_t c = 0; c < u; ++c)
        o[size_t((s.q_row + i) * op_.o.cols() + head * u + c)] +=
            weight[size_t(j)] / sum * kept(s, head, query, s.k_position + j) * at(op_.v, s.k_row + j, kv * u + c);
  }
  const Attention op_;

 public:
  Values o, lse;
};

TEST(RefValuesSlow, AttentionIsTheSoftmaxOverWhatIsNotMasked) {
  for (const testing::AttentionCase& c : testing::attention_cases()) {
    testing::Operands operands(DType::f64, 0);
    const Attention op = testing::make_attention(operands, c);
    run(op);
    const DenseAttention dense(op);
    SCOPED_TRACE(c.name);
    expect_near(Values(op.o.as<double>(), op.o.as<double>() + op.o.elements()), dense.o, 1e-12);
    expect_near(Values(op.lse.as<double>(), op.lse.as<double>() + op.lse.elements()), dense.lse, 1e-12);
  }
}

}  // namespace
}  // namespace weft
