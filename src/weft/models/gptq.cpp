#include "weft/models/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/parallel.h"

namespace weft {
namespace {

constexpr int64_t kBlock = 64;  // columns that are rounded before those behind them hear of it

void subtract_scaled(double* to, const double* from, double by, int64_t n) {
  constexpr int64_t kTogether = 8;
  int64_t i = 0;
  for (; i + kTogether <= n; i += kTogether)
    for (int64_t k = 0; k < kTogether; ++k) to[i + k] -= by * from[i + k];
  for (; i < n; ++i) to[i] -= by * from[i];
}

// Row-major [n, n].
struct Square {
  int64_t n;
  std::vector<double> values;
  explicit Square(int64_t size) : n(size), values(size_t(size * size)) {}
  double* row(int64_t i) { return values.data() + i * n; }
  const double* row(int64_t i) const { return values.data() + i * n; }
};

// Rows [first, end) of the lower triangle, whose columns before `first` are done: its square block, then the columns
// [first, end) of the rows below. False where a is not positive.
bool factor_block(Square& a, int64_t first, int64_t end) {
  for (int64_t j = first; j < end; ++j) {
    if (!(a.row(j)[j] > 0)) return false;
    const double pivot = a.row(j)[j] = std::sqrt(a.row(j)[j]);
    for (int64_t i = j + 1; i < end; ++i) a.row(i)[j] /= pivot;
    for (int64_t i = j + 1; i < end; ++i)
      for (int64_t k = j + 1; k <= i; ++k) a.row(i)[k] -= a.row(i)[j] * a.row(k)[j];
  }
  return true;
}

// a = L L^T: L takes the place of the lower triangle. False where a is not positive.
bool cholesky(Square& a, int threads) {
  std::vector<double> turned(size_t(kBlock * a.n));  // the block's columns of L, as rows
  for (int64_t first = 0; first < a.n; first += kBlock) {
    const int64_t end = std::min(a.n, first + kBlock);
    if (!factor_block(a, first, end)) return false;
    parallel_for(a.n - end, threads, 1, [&](int64_t begin, int64_t stop) {
      for (int64_t i = end + begin; i < end + stop; ++i)
        for (int64_t j = first; j < end; ++j) {
          double sum = a.row(i)[j];
          for (int64_t k = first; k < j; ++k) sum -= a.row(i)[k] * a.row(j)[k];
          turned[size_t((j - first) * a.n + i)] = a.row(i)[j] = sum / a.row(j)[j];
        }
    });
    parallel_for(a.n - end, threads, 16, [&](int64_t begin, int64_t stop) {
      for (int64_t i = end + begin; i < end + stop; ++i)
        for (int64_t j = first; j < end; ++j)
          subtract_scaled(a.row(i) + end, turned.data() + (j - first) * a.n + end, a.row(i)[j], i + 1 - end);
    });
  }
  return true;
}

// L^-1 of a lower triangular L: columns by themselves.
Square inverse_of_lower(const Square& l, int threads) {
  Square x(l.n);
  parallel_for(l.n, threads, kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kBlock) {
      const int64_t count = std::min(kBlock, end - first);
      for (int64_t i = first; i < l.n; ++i) {
        double* to = x.row(i) + first;
        if (i < first + count) to[i - first] = 1;
        for (int64_t k = first; k < i; ++k) subtract_scaled(to, x.row(k) + first, l.row(i)[k], count);
        for (int64_t c = 0; c < count; ++c) to[c] /= l.row(i)[i];
      }
    }
  });
  return x;
}

// H of the columns in `order`, backwards: its lower factor is the upper one of H, turned around.
Square turned_around(std::span<const float> products, const std::vector<int64_t>& order, double added) {
  const auto n = int64_t(order.size());
  Square a(n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      const int64_t row = order[size_t(n - 1 - i)], col = order[size_t(n - 1 - j)];
      a.row(i)[j] = double(products[size_t(row * n + col)]) + (i == j ? added : 0);
    }
  // An input that was always 0 weighs nothing: its column is rounded by itself.
  for (int64_t i = 0; i < n; ++i)
    if (!(a.row(i)[i] > 0)) a.row(i)[i] = 1;
  return a;
}

int code_of(double number, float scale, int largest) {
  return int(std::clamp(std::nearbyint(number / double(scale)) + (largest + 1) / 2, 0.0, double(largest)));
}

double squared_error(std::span<const double> numbers, float scale, int largest) {
  double sum = 0;
  for (const double x : numbers) {
    const double off = x - double(scale) * (code_of(x, scale, largest) - (largest + 1) / 2);
    sum += off * off;
  }
  return sum;
}

// Of scales that leave out ever more of the largest number, the one with the least squared error.
f16 scale_of(std::span<const double> numbers, int largest) {
  constexpr int kTried = 16;
  double most = 0;
  for (const double x : numbers) most = std::max(most, std::abs(x));
  const f16 usual(float(2 * most / largest));
  f16 best = float(usual) > 0 ? usual : f16(0x1p-24f);
  double least = squared_error(numbers, float(best), largest);
  for (int i = 1; i < kTried; ++i) {
    const f16 scale(float(2 * most / largest * (1 - 0.02 * i)));
    if (!(float(scale) > 0)) break;
    const double error = squared_error(numbers, float(scale), largest);
    if (error < least) least = error, best = scale;
  }
  return best;
}

// Rounds some rows of a matrix.
class RowRounder {
 public:
  RowRounder(const GptqCosts& costs, const GptqFormat& format, GptqMatrix& to)
      : w_(costs), f_(format), to_(to), n_(costs.cols), group_(format.group_size == 0 ? n_ : format.group_size) {}

  void round(std::span<const float> numbers, int64_t first, int64_t count) {
    first_ = first, count_ = count;
    left_.resize(size_t(count * n_));
    error_.resize(size_t(count * kBlock));
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < n_; ++j)
        left_[size_t(i * n_ + j)] = double(numbers[size_t((first + i) * n_ + w_.order[size_t(j)])]);
    for (int64_t begin = 0; begin < n_;) {
      const int64_t end = block_end(begin);
      for (int64_t j = begin; j < end; ++j) round_column(j, begin, end);
      if (!w_.factor.empty()) tell_the_rest(begin, end);
      begin = end;
    }
  }

 private:
  // No block has the first column of a group behind its own first, unless it has all of that group.
  int64_t block_end(int64_t begin) const {
    if (group_ <= kBlock) return std::min(n_, begin + kBlock / group_ * group_);
    return std::min({n_, begin + kBlock, (begin / group_ + 1) * group_});
  }
  double* left(int64_t i) { return left_.data() + i * n_; }
  const double* factor(int64_t j) const { return w_.factor.data() + j * n_; }

  void round_column(int64_t j, int64_t begin, int64_t end) {
    const int64_t g = j / group_;
    if (j % group_ == 0) begin_group(g);
    for (int64_t i = 0; i < count_; ++i) {
      const float scale = float(to_.scales[size_t(g * to_.rows + first_ + i)]);
      const int code = code_of(left(i)[j], scale, f_.largest());
      to_.codes[size_t((first_ + i) * n_ + w_.order[size_t(j)])] = uint8_t(code);
      if (w_.factor.empty()) continue;
      const double off = left(i)[j] - double(scale) * (code - (f_.largest() + 1) / 2);
      const double share = error_[size_t(i * kBlock + j - begin)] = off / factor(j)[j];
      subtract_scaled(left(i) + j + 1, factor(j) + j + 1, share, end - j - 1);
    }
  }

  void begin_group(int64_t g) {
    const int64_t size = std::min(group_, n_ - g * group_);
    for (int64_t i = 0; i < count_; ++i)
      to_.scales[size_t(g * to_.rows + first_ + i)] = scale_of({left(i) + g * group_, size_t(size)}, f_.largest());
  }

  void tell_the_rest(int64_t begin, int64_t end) {
    constexpr int64_t kAtOnce = 512;  // columns: so many of a block's rows of U stay in a cache
    for (int64_t first = end; first < n_; first += kAtOnce)
      for (int64_t i = 0; i < count_; ++i)
        for (int64_t j = begin; j < end; ++j)
          subtract_scaled(left(i) + first, factor(j) + first, error_[size_t(i * kBlock + j - begin)],
                          std::min(kAtOnce, n_ - first));
  }

  const GptqCosts& w_;
  const GptqFormat& f_;
  GptqMatrix& to_;
  const int64_t n_, group_;
  int64_t first_ = 0, count_ = 0;
  std::vector<double> left_;   // [count, n] numbers with what earlier columns gave them, in the order of rounding
  std::vector<double> error_;  // [count, kBlock] of the present block's columns
};

std::vector<int64_t> in_order(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

GptqCosts gptq_costs(std::span<const float> products, int64_t cols, bool by_size, int threads) {
  GptqCosts w{cols, in_order(cols), {}};
  const auto on_diagonal = [&](int64_t j) { return double(products[size_t(j * cols + j)]); };
  double mean = 0;
  for (int64_t j = 0; j < cols; ++j) mean += on_diagonal(j) / double(cols);
  if (!std::isfinite(mean) || !std::all_of(products.begin(), products.end(), [](float x) { return std::isfinite(x); }))
    throw NumericsError("the inputs of a matrix are not finite numbers: are the model's weights?");
  if (by_size)
    std::stable_sort(w.order.begin(), w.order.end(),
                     [&](int64_t a, int64_t b) { return on_diagonal(a) > on_diagonal(b); });
  for (double damping = kGptqDamping; damping < 1e4; damping *= 10) {
    Square a = turned_around(products, w.order, damping * mean);
    if (!cholesky(a, threads)) continue;
    w.factor = inverse_of_lower(a, threads).values;
    std::reverse(w.factor.begin(), w.factor.end());
    return w;
  }
  throw NumericsError("the sums of products of a matrix's inputs are no such sums: are they finite?");
}

GptqCosts equal_gptq_costs(int64_t cols) { return {cols, in_order(cols), {}}; }

GptqMatrix gptq_rounded(std::span<const float> numbers, const GptqCosts& costs, const GptqFormat& format,
                        std::string_view name, int threads) {
  constexpr float kLargest = 65504;  // of f16
  const int64_t n = costs.cols, rows = int64_t(numbers.size()) / n, groups = format.num_groups(n);
  for (const float x : numbers)
    if (!(std::abs(x) <= kLargest))
      throw NumericsError(fmt::format("{} holds {}, for which codes with scales in f16 have no place", name, x));
  GptqMatrix m{.rows = rows,
               .cols = n,
               .codes = std::vector<uint8_t>(numbers.size()),
               .scales = std::vector<f16>(size_t(groups * rows)),
               .zeros = std::vector<uint8_t>(size_t(groups * rows), uint8_t((format.largest() + 1) / 2)),
               .group_of = std::vector<int32_t>(size_t(n))};
  for (int64_t j = 0; j < n; ++j)
    m.group_of[size_t(costs.order[size_t(j)])] = int32_t(format.group_size == 0 ? 0 : j / format.group_size);
  parallel_for(rows, threads, 1, [&](int64_t begin, int64_t end) {
    constexpr int64_t kRows = 16;
    RowRounder rounder(costs, format, m);
    for (int64_t i = begin; i < end; i += kRows) rounder.round(numbers, i, std::min(kRows, end - i));
  });
  return m;
}

}  // namespace weft
