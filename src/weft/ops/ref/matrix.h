// Reference kernels on matrices and tables.
#pragma once
#include <algorithm>
#include <array>
#include <vector>

#include "weft/ops/ref/view.h"

namespace weft::ref {

constexpr int64_t kPanel = 8;              // columns of a product that are computed together
constexpr int64_t kFewProducts = 1 << 16;  // not worth a thread

// Columns [first, first + count) of op(b), as rows of kPanel numbers; zeros beyond.
template <class T>
std::vector<std::array<T, kPanel>> panel_of(const Matmul& op, int64_t first, int64_t count) {
  const auto b = rows<T>(op.b);
  std::vector<std::array<T, kPanel>> panel(size_t(op.k()));
  for (int64_t k = 0; k < op.k(); ++k)
    for (int64_t j = 0; j < count; ++j) panel[size_t(k)][size_t(j)] = op.trans_b ? b[first + j][k] : b[k][first + j];
  return panel;
}

// Those columns of out, from rows of op(a): each element is one sum over k, in order.
template <class T>
void matmul_panel(const Matmul& op, Rows<T> a, int64_t first) {
  const int64_t count = std::min(kPanel, op.n() - first);
  const auto panel = panel_of<T>(op, first, count);
  const auto out = rows<T>(op.out);
  const T* bias = flat<T>(op.bias);
  for (int64_t i = 0; i < op.m(); ++i) {
    const T* x = a[i];
    std::array<T, kPanel> sum{};
    for (const auto& row : panel) {
      const T factor = *x++;
      for (size_t j = 0; j < kPanel; ++j) sum[j] += factor * row[j];
    }
    for (int64_t j = 0; j < count; ++j) {
      const T start = op.accumulate ? out[i][first + j] : bias ? bias[first + j] : T(0);
      out[i][first + j] = start + sum[size_t(j)];
    }
  }
}

template <class T>
void run(const Matmul& op, int threads) {
  auto a = rows<T>(op.a);
  std::vector<T> turned;
  if (op.trans_a) {
    turned.resize(size_t(op.m() * op.k()));
    for (int64_t k = 0; k < op.k(); ++k)
      for (int64_t i = 0; i < op.m(); ++i) turned[size_t(i * op.k() + k)] = a[k][i];
    a = {turned.data(), op.m(), op.k(), op.k()};
  }
  spread((op.n() + kPanel - 1) / kPanel, op.m() * op.n() * op.k() < kFewProducts ? 1 : threads,
         [&](int64_t i) { matmul_panel<T>(op, a, i * kPanel); });
}

template <class T>
void run(const BiasGrad& op, int) {
  const auto dy = rows<T>(op.dy), x = rows<T>(op.x);
  T* db = flat<T>(op.db);
  for (int64_t j = 0; j < dy.cols; ++j) {
    T sum(0);
    for (int64_t i = 0; i < dy.rows; ++i) sum += x ? dy[i][j] * x[i][j] : dy[i][j];
    db[j] = op.accumulate ? db[j] + sum : sum;
  }
}

template <class T>
void run(const Embed& op, int) {
  const auto table = rows<T>(op.table), out = rows<T>(op.out);
  const int32_t* ids = op.ids.as<int32_t>();
  for (int64_t i = 0; i < out.rows; ++i) {
    const int64_t row = ids[i] - op.first;
    const bool here = row >= 0 && row < table.rows;
    for (int64_t j = 0; j < out.cols; ++j) {
      const T value = here ? table[row][j] : T(0);
      out[i][j] = op.accumulate ? out[i][j] + value : value;
    }
  }
}

template <class T>
void run(const EmbedBackward& op, int) {
  const auto dy = rows<T>(op.dy), dtable = rows<T>(op.dtable);
  const int32_t* ids = op.ids.as<int32_t>();
  for (int64_t i = 0; i < dy.rows; ++i) {
    const int64_t row = ids[i] - op.first;
    if (row < 0 || row >= dtable.rows) continue;
    for (int64_t j = 0; j < dy.cols; ++j) dtable[row][j] += dy[i][j];
  }
}

}  // namespace weft::ref
