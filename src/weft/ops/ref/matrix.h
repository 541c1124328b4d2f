// Reference kernels on matrices and tables: plain loops, templated so that tests can differentiate them by complex
// step.
//   T  double, or std::complex<double>
#pragma once
#include <complex>
#include <cstdint>

namespace weft::ref {

// A view of rows of `cols` numbers, `stride` apart. A null `at` is an operand that does not exist.
template <class T>
struct Rows {
  T* at = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  T* operator[](int64_t i) const { return at + i * stride; }
  explicit operator bool() const { return at != nullptr; }
};

template <class T>
struct MatmulArgs {
  Rows<const T> a, b;
  Rows<T> out;
  bool trans_a, trans_b, accumulate;
  const T* bias;
  int64_t k() const { return trans_a ? a.rows : a.cols; }
};
// Row i of out.
template <class T>
void matmul_row(const MatmulArgs<T>& m, int64_t i) {
  T* y = m.out[i];
  const auto a = [&](int64_t k) { return m.trans_a ? m.a[k][i] : m.a[i][k]; };
  for (int64_t j = 0; j < m.out.cols; ++j) y[j] = m.accumulate ? y[j] : m.bias ? m.bias[j] : T(0);
  if (m.trans_b) {
    for (int64_t j = 0; j < m.out.cols; ++j) {
      T sum(0);
      for (int64_t k = 0; k < m.k(); ++k) sum += a(k) * m.b[j][k];
      y[j] += sum;
    }
  } else {
    for (int64_t k = 0; k < m.k(); ++k) {
      const T factor = a(k);
      for (int64_t j = 0; j < m.out.cols; ++j) y[j] += factor * m.b[k][j];
    }
  }
}

template <class T>
void bias_grad(Rows<const T> dy, T* db, bool accumulate) {
  for (int64_t j = 0; j < dy.cols; ++j) {
    T sum(0);
    for (int64_t i = 0; i < dy.rows; ++i) sum += dy[i][j];
    db[j] = accumulate ? db[j] + sum : sum;
  }
}

template <class T>
void embed(const int32_t* ids, Rows<const T> table, Rows<T> out, int64_t first, bool accumulate) {
  for (int64_t i = 0; i < out.rows; ++i) {
    const int64_t row = ids[i] - first;
    const bool here = row >= 0 && row < table.rows;
    for (int64_t j = 0; j < out.cols; ++j) {
      const T value = here ? table[row][j] : T(0);
      out[i][j] = accumulate ? out[i][j] + value : value;
    }
  }
}

template <class T>
void embed_backward(const int32_t* ids, Rows<const T> dy, Rows<T> dtable, int64_t first) {
  for (int64_t i = 0; i < dy.rows; ++i) {
    const int64_t row = ids[i] - first;
    if (row < 0 || row >= dtable.rows) continue;
    for (int64_t j = 0; j < dy.cols; ++j) dtable[row][j] += dy[i][j];
  }
}

// In place; `sign` -1 turns back.   table: cos | sin of each position
template <class T>
void rope(Rows<T> x, const int32_t* positions, Rows<const T> table, double sign) {
  const int64_t width = table.cols, half = width / 2;
  for (int64_t i = 0; i < x.rows; ++i) {
    const T* angle = table[positions[i]];
    for (int64_t head = 0; head < x.cols; head += width) {
      T* v = x[i] + head;
      for (int64_t j = 0; j < half; ++j) {
        const T c = angle[j], s = sign * angle[half + j], a = v[j], b = v[half + j];
        v[j] = a * c - b * s;
        v[half + j] = b * c + a * s;
      }
    }
  }
}

}  // namespace weft::ref
