#include "weft/base/low_rank.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/parallel.h"
#include "weft/base/rng.h"

namespace weft {
namespace {

// Vectors as columns: row-major [size, count].
struct Columns {
  int64_t size = 0, count = 0;
  std::vector<double> values = {};
  Columns(int64_t n, int64_t k) : size(n), count(k), values(size_t(n * k)) {}
  double* row(int64_t i) { return values.data() + i * count; }
  const double* row(int64_t i) const { return values.data() + i * count; }
};

struct Matrix {
  std::span<const float> values;
  int64_t rows, cols;
  int threads;
};

void add_scaled(double* to, const double* from, double by, int64_t n) {
  for (int64_t c = 0; c < n; ++c) to[c] += by * from[c];
}

Columns times(const Matrix& m, const Columns& x) {
  Columns y(m.rows, x.count);
  parallel_for(m.rows, m.threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < m.cols; ++j)
        add_scaled(y.row(i), x.row(j), double(m.values[size_t(i * m.cols + j)]), x.count);
  });
  return y;
}

Columns transpose_times(const Matrix& m, const Columns& x) {
  Columns y(m.cols, x.count);
  parallel_for(m.cols, m.threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < m.rows; ++i)
      for (int64_t j = begin; j < end; ++j)
        add_scaled(y.row(j), x.row(i), double(m.values[size_t(i * m.cols + j)]), x.count);
  });
  return y;
}

// Products of the vectors with each other, [count, count].
Columns products(const Columns& x) {
  Columns g(x.count, x.count);
  for (int64_t i = 0; i < x.size; ++i)
    for (int64_t a = 0; a < x.count; ++a) add_scaled(g.row(a), x.row(i), x.row(i)[a], x.count);
  return g;
}

// x v
Columns combined(const Columns& x, const Columns& v) {
  Columns y(x.size, v.count);
  for (int64_t i = 0; i < x.size; ++i)
    for (int64_t a = 0; a < x.count; ++a) add_scaled(y.row(i), v.row(a), x.row(i)[a], v.count);
  return y;
}

struct Eigen {
  std::vector<double> values;  // descending
  Columns vectors;
};

// Turns rows and columns a and b of `g` so that g[a][b] becomes 0, and columns a and b of `v` along.
void turn(Columns& g, Columns& v, int64_t a, int64_t b) {
  const double apart = (g.row(b)[b] - g.row(a)[a]) / (2 * g.row(a)[b]);
  const double t = (apart >= 0 ? 1 : -1) / (std::abs(apart) + std::sqrt(apart * apart + 1));
  const double cos = 1 / std::sqrt(t * t + 1), sin = t * cos;
  for (Columns* m : {&g, &v})
    for (int64_t i = 0; i < m->size; ++i) {
      double &x = m->row(i)[a], &y = m->row(i)[b];
      const double was = x;
      x = cos * was - sin * y;
      y = sin * was + cos * y;
    }
  for (int64_t i = 0; i < g.count; ++i) {
    double &x = g.row(a)[i], &y = g.row(b)[i];
    const double was = x;
    x = cos * was - sin * y;
    y = sin * was + cos * y;
  }
}

// Of a symmetric matrix, by turns of two rows each.                                           Jacobi 1846
Eigen eigen_of(Columns g) {
  constexpr int kMostSweeps = 60;
  const int64_t n = g.count;
  Columns v(n, n);
  for (int64_t i = 0; i < n; ++i) v.row(i)[i] = 1;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    bool turned = false;
    for (int64_t a = 0; a < n; ++a)
      for (int64_t b = a + 1; b < n; ++b) {
        if (std::abs(g.row(a)[b]) <= 1e-15 * std::sqrt(std::abs(g.row(a)[a] * g.row(b)[b]))) continue;
        turn(g, v, a, b);
        turned = true;
      }
    if (!turned) break;
  }
  std::vector<int64_t> order(size_t(n), 0);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return g.row(a)[a] > g.row(b)[b]; });
  Eigen e{{}, Columns(n, n)};
  for (int64_t c = 0; c < n; ++c) {
    const int64_t from = order[size_t(c)];
    e.values.push_back(std::max(0.0, g.row(from)[from]));
    for (int64_t i = 0; i < n; ++i) e.vectors.row(i)[c] = v.row(i)[from];
  }
  return e;
}

// Vectors of length 1 and at right angles that span the same; zeros where there are fewer. Twice: rounding of the
// first time is large where lengths differ much.
Columns orthonormal(Columns x) {
  for (int time = 0; time < 2; ++time) {
    Eigen e = eigen_of(products(x));
    for (int64_t c = 0; c < x.count; ++c) {
      const double square = e.values[size_t(c)];
      const double by = square > 1e-14 * e.values[0] ? 1 / std::sqrt(square) : 0;
      for (int64_t i = 0; i < x.count; ++i) e.vectors.row(i)[c] *= by;
    }
    x = combined(x, e.vectors);
  }
  return x;
}

}  // namespace

LowRank nearest_of_rank(std::span<const float> values, int64_t rows, int64_t cols, int64_t rank, int num_threads) {
  constexpr int64_t kMore = 16;  // vectors than the rank has
  constexpr int kRounds = 3;
  const Matrix m{values, rows, cols, num_threads};
  Columns x(cols, std::min({rank + kMore, rows, cols}));
  const uint64_t key = rng_key(0, "nearest_of_rank");
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = random_normal(key, i);
  Columns q = orthonormal(times(m, x));
  for (int round = 0; round < kRounds; ++round) q = orthonormal(times(m, orthonormal(transpose_times(m, q))));
  const Columns b = transpose_times(m, q);  // [cols, count]; m is nearly q b^T
  const Eigen e = eigen_of(products(b));
  const Columns left = combined(q, e.vectors), right = combined(b, e.vectors);
  LowRank near{std::vector<double>(size_t(rows * rank)), std::vector<double>(size_t(rank * cols))};
  for (int64_t c = 0; c < rank; ++c) {
    const double root = std::sqrt(std::sqrt(e.values[size_t(c)]));
    if (!(e.values[size_t(c)] > 1e-14 * e.values[0])) break;  // rounding
    for (int64_t i = 0; i < rows; ++i) near.left[size_t(i * rank + c)] = left.row(i)[c] * root;
    for (int64_t j = 0; j < cols; ++j) near.right[size_t(c * cols + j)] = right.row(j)[c] / root;
  }
  return near;
}

double squares_left(std::span<const float> m, int64_t rows, int64_t cols, const LowRank& near, int num_threads) {
  const auto rank = int64_t(near.left.size()) / rows;
  std::vector<double> of_row(size_t(rows), 0.0);
  parallel_for(rows, num_threads, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> row(size_t(cols), 0.0);
    for (int64_t i = begin; i < end; ++i) {
      std::fill(row.begin(), row.end(), 0.0);
      for (int64_t c = 0; c < rank; ++c)
        for (int64_t j = 0; j < cols; ++j)
          row[size_t(j)] +=
              double(float(near.left[size_t(i * rank + c)])) * double(float(near.right[size_t(c * cols + j)]));
      for (int64_t j = 0; j < cols; ++j) {
        const double apart = double(m[size_t(i * cols + j)]) - row[size_t(j)];
        of_row[size_t(i)] += apart * apart;
      }
    }
  });
  return std::accumulate(of_row.begin(), of_row.end(), 0.0);
}

}  // namespace weft
