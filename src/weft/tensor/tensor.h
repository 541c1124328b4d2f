// A view of up to three dimensions that owns nothing; the arena it came from does.
#pragma once
#include <array>
#include <cstddef>
#include <string>

#include "weft/base/error.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/placement.h"

namespace weft {

// The sizes of a tensor's dimensions, outermost first. One to three of them, each >= 0.
class Shape {
 public:
  constexpr Shape() = default;
  constexpr Shape(int64_t a) : size_{a, 1, 1}, rank_(1) {}  // NOLINT: sizes convert
  constexpr Shape(int64_t a, int64_t b) : size_{a, b, 1}, rank_(2) {}
  constexpr Shape(int64_t a, int64_t b, int64_t c) : size_{a, b, c}, rank_(3) {}
  constexpr int rank() const { return rank_; }
  constexpr int64_t operator[](int dim) const { return size_[size_t(dim)]; }
  constexpr int64_t elements() const { return rank_ == 0 ? 0 : size_[0] * size_[1] * size_[2]; }
  constexpr bool operator==(const Shape&) const = default;
  std::string to_string() const;  // "[2, 3]"

 private:
  std::array<int64_t, 3> size_{0, 1, 1};
  int rank_ = 0;
};

// Rows are contiguous; consecutive rows (of dim 0) may lie further apart than a row is long, so that a run of columns
// of a matrix is a tensor too. `data` is null in a dry run.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Placement place;
  int64_t row_stride = 0;  // elements from one row to the next; at least shape[1] * shape[2]

  Tensor() = default;
  Tensor(void* data, DType dtype, Shape shape, Placement place = {})
      : data(data), dtype(dtype), shape(shape), place(place), row_stride(shape[1] * shape[2]) {}

  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return shape[1] * shape[2]; }  // elements of a row
  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype); }
  bool contiguous() const { return row_stride == cols() || rows() <= 1; }
  bool operator==(const Tensor&) const = default;               // the same view, whatever the elements are
  explicit operator bool() const { return shape.rank() != 0; }  // does it exist; a dry tensor does

  // The elements, checked for type. Null in a dry run.
  template <class T>
  T* as() const {
    WEFT_CHECK(dtype == dtype_of<T>, "a {} tensor read as {}", name_of(dtype), name_of(dtype_of<T>));
    return static_cast<T*>(data);
  }
  // Rows [first, first + n).
  Tensor slice_rows(int64_t first, int64_t n) const;
  // Columns [first, first + n) of a matrix.
  Tensor slice_cols(int64_t first, int64_t n) const;
  // The same elements in another shape. Contiguous tensors only.
  Tensor reshape(Shape to) const;
  Tensor placed(Placement p) const {
    Tensor t = *this;
    t.place = p;
    return t;
  }
  std::string to_string() const;  // "f32 [2, 3] dp:Shard0 ..."
};

}  // namespace weft
