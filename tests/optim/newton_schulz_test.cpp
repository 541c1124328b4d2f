#include "weft/optim/newton_schulz.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "weft/ops/cpu/cpu_backend.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

using Column = std::vector<double>;

double dot(const Column& a, const Column& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// n orthonormal columns of length m, by Gram and Schmidt's way, twice.
std::vector<Column> orthonormal(int64_t m, int64_t n, std::mt19937& gen) {
  std::normal_distribution<double> normal;
  std::vector<Column> all;
  for (int64_t j = 0; j < n; ++j) {
    Column c(static_cast<size_t>(m));
    for (double& x : c) x = normal(gen);
    for (int again = 0; again < 2; ++again)
      for (const Column& other : all) {
        const double along = dot(c, other);
        for (size_t i = 0; i < c.size(); ++i) c[i] -= along * other[i];
      }
    const double length = std::sqrt(dot(c, c));
    for (double& x : c) x /= length;
    all.push_back(c);
  }
  return all;
}

// A matrix whose singular value decomposition is known: sizes from 1/100 to 1, times `size`.
struct Decomposed {
  std::vector<Column> u, v;
  Column s;
  int64_t m, n;
  Decomposed(int64_t m, int64_t n, double size, uint32_t seed) : m(m), n(n) {
    std::mt19937 gen(seed);
    const int64_t rank = std::min(m, n);
    u = orthonormal(m, rank, gen), v = orthonormal(n, rank, gen);
    for (int64_t k = 0; k < rank; ++k)
      s.push_back(size * std::pow(0.01, double(k) / double(std::max<int64_t>(1, rank - 1))));
  }
  double at(int64_t i, int64_t j, const Column& sizes) const {
    double sum = 0;
    for (size_t k = 0; k < sizes.size(); ++k) sum += u[k][size_t(i)] * sizes[k] * v[k][size_t(j)];
    return sum;
  }
  // What the iteration makes of the singular values, one at a time.
  Column iterated(int64_t steps) const {
    Column out = s;
    for (double& x : out) {
      x /= std::sqrt(dot(s, s)) + 1e-7;
      for (int64_t i = 0; i < steps; ++i) x = 3.4445 * x - 4.7750 * std::pow(x, 3) + 2.0315 * std::pow(x, 5);
    }
    return out;
  }
};

constexpr std::pair<int64_t, int64_t> kShapes[] = {{24, 24}, {40, 12}, {12, 40}, {1, 9}, {9, 1}, {1, 1}};

template <class T>
std::vector<T> orthogonalized(Backend& backend, const Decomposed& d, int64_t steps) {
  std::vector<T> x;
  for (int64_t i = 0; i < d.m; ++i)
    for (int64_t j = 0; j < d.n; ++j) x.push_back(T(d.at(i, j, d.s)));
  Arena scratch("scratch", 1 << 16);
  wait_orthogonalize(backend, scratch, {x.data(), dtype_of<T>, {d.m, d.n}}, steps);
  EXPECT_EQ(scratch.used(), 0);
  return x;
}

TEST(NewtonSchulz, MapsEachSingularValueByThePolynomial) {
  for (const auto& [m, n] : kShapes) {
    for (const int64_t steps : {1, 5}) {
      const Decomposed d(m, n, 7, uint32_t(m + 3 * n));
      RefBackend backend(1);
      const std::vector<double> x = orthogonalized<double>(backend, d, steps);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          EXPECT_NEAR(x[size_t(i * n + j)], d.at(i, j, d.iterated(steps)), 1e-11) << m << " x " << n;
    }
  }
}

// In the basis of the singular vectors the result is diagonal, with its own singular values.
TEST(NewtonSchulz, FiveStepsBringSingularValuesNearOneOnTheFastBackendToo) {
  for (const auto& [m, n] : kShapes) {
    const Decomposed d(m, n, 1e-3, 5);
    Arena workspace("workspace", 1 << 24);
    CpuBackend backend({.threads = 2, .numerics = Numerics::invariant}, workspace);
    const std::vector<float> x = orthogonalized<float>(backend, d, 5);
    for (size_t a = 0; a < d.s.size(); ++a) {
      for (size_t b = 0; b < d.s.size(); ++b) {
        double value = 0;
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) value += d.u[a][size_t(i)] * double(x[size_t(i * n + j)]) * d.v[b][size_t(j)];
        EXPECT_NEAR(value, a == b ? 0.945 : 0, a == b ? 0.265 : 1e-3) << m << " x " << n;
      }
    }
  }
}

TEST(NewtonSchulz, OfAMatrixOfZerosLeavesZeros) {
  double x[6] = {};
  Arena scratch("scratch", 1 << 12);
  RefBackend backend(1);
  wait_orthogonalize(backend, scratch, {x, DType::f64, {2, 3}}, 5);
  for (const double v : x) EXPECT_EQ(v, 0);
}

}  // namespace
}  // namespace weft
