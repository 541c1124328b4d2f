#include "weft/checkpoint/convert.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<From, bf16> || std::is_same_v<From, f16>)
    return convert<To>(float(x));
  else
    return To(float(x));
}
template <>
double convert<double, float>(float x) {
  return double(x);
}

// Calls f.operator()<T>() with the type that `t`, of a file or of a tensor, names.
template <class Type, class F>
void with_type(Type t, F f) {
  switch (t) {
    case Type::f64:
      return f.template operator()<double>();
    case Type::f32:
      return f.template operator()<float>();
    case Type::bf16:
      return f.template operator()<bf16>();
    case Type::f16:
      return f.template operator()<f16>();
    default:
      WEFT_CHECK(false, "no conversion for {}", name_of(t));
  }
}

// A row-major block of numbers at any alignment; strides are in elements.
struct Source {
  const std::byte* data;
  int64_t row_stride;
};
struct Target {
  void* data;
  int64_t rows, cols, row_stride;
};

template <class From, class To>
void copy_block(Source from, Target to) {
  for (int64_t i = 0; i < to.rows; ++i) {
    const std::byte* row = from.data + i * from.row_stride * int64_t(sizeof(From));
    To* out = static_cast<To*>(to.data) + i * to.row_stride;
    if constexpr (std::is_same_v<From, To>) {
      if (to.cols > 0) std::memcpy(out, row, size_t(to.cols) * sizeof(To));
    } else {
      for (int64_t j = 0; j < to.cols; ++j) out[j] = convert<To>(load<From>(row + j * int64_t(sizeof(From))));
    }
  }
}

// In tiles that fit the first-level cache, or every number of the file would be a miss.
template <class From, class To>
void transpose_block(Source from, Target to) {
  constexpr int64_t kTile = 32;
  for (int64_t i0 = 0; i0 < to.rows; i0 += kTile) {
    for (int64_t j0 = 0; j0 < to.cols; j0 += kTile) {
      for (int64_t j = j0; j < std::min(j0 + kTile, to.cols); ++j) {
        const std::byte* row = from.data + j * from.row_stride * int64_t(sizeof(From));
        for (int64_t i = i0; i < std::min(i0 + kTile, to.rows); ++i)
          static_cast<To*>(to.data)[i * to.row_stride + j] = convert<To>(load<From>(row + i * int64_t(sizeof(From))));
      }
    }
  }
}

void check_block(const FileMatrix& from, BlockStart start, int64_t rows, int64_t cols) {
  WEFT_CHECK(is_convertible(from.dtype), "no conversion from {}", name_of(from.dtype));
  WEFT_CHECK(from.bytes.size() == size_t(from.rows * from.cols * bits_of(from.dtype) / 8),
             "{} bytes for [{}, {}] of {}", from.bytes.size(), from.rows, from.cols, name_of(from.dtype));
  WEFT_CHECK(start.row >= 0 && start.col >= 0 && rows >= 0 && cols >= 0 && rows <= from.rows - start.row &&
                 cols <= from.cols - start.col,
             "block [{}, {}] at ({}, {}) of [{}, {}]", rows, cols, start.row, start.col, from.rows, from.cols);
}

Source source_at(const FileMatrix& from, BlockStart start) {
  return {from.bytes.data() + (start.row * from.cols + start.col) * bits_of(from.dtype) / 8, from.cols};
}

Target target_of(const MatrixOut& to) { return {to.data, to.rows, to.cols, to.row_stride}; }

}  // namespace

bool is_convertible(FileDType t) {
  return t == FileDType::f64 || t == FileDType::f32 || t == FileDType::bf16 || t == FileDType::f16;
}

void read_matrix(const FileMatrix& from, BlockStart start, const MatrixOut& to) {
  check_block(from, start, to.rows, to.cols);
  with_type(from.dtype, [&]<class From>() {
    with_type(to.dtype, [&]<class To>() { copy_block<From, To>(source_at(from, start), target_of(to)); });
  });
}

void read_transposed(const FileMatrix& from, BlockStart start, const MatrixOut& to) {
  check_block(from, start, to.cols, to.rows);
  with_type(from.dtype, [&]<class From>() {
    with_type(to.dtype, [&]<class To>() { transpose_block<From, To>(source_at(from, start), target_of(to)); });
  });
}

void stream_matrix(const MatrixIn& from, FileDType as, bool transposed, const ByteSink& sink) {
  constexpr int64_t kBufferBytes = 256 * 1024;
  const int64_t rows = transposed ? from.cols : from.rows, cols = transposed ? from.rows : from.cols;
  const int64_t row_bytes = std::max<int64_t>(1, cols * bits_of(as) / 8);
  const int64_t step = std::max<int64_t>(1, std::min(rows, kBufferBytes / row_bytes));
  std::vector<std::byte> buffer(size_t(step * row_bytes));
  for (int64_t first = 0; first < rows && cols > 0; first += step) {
    const int64_t count = std::min(step, rows - first);
    const int64_t skip = transposed ? first : first * from.row_stride;
    const Source block{static_cast<const std::byte*>(from.data) + skip * size_of(from.dtype), from.row_stride};
    with_type(from.dtype, [&]<class From>() {
      with_type(as, [&]<class To>() {
        const Target out{buffer.data(), count, cols, cols};
        transposed ? transpose_block<From, To>(block, out) : copy_block<From, To>(block, out);
      });
    });
    sink(std::span(buffer).first(size_t(count * row_bytes)));
  }
}

}  // namespace weft
