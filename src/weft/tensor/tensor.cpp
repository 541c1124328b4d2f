#include "weft/tensor/tensor.h"

namespace weft {
namespace {

void* offset(const Tensor& t, int64_t elements) {
  return t.data == nullptr ? nullptr : static_cast<std::byte*>(t.data) + elements * size_of(t.dtype);
}

}  // namespace

std::string Shape::to_string() const {
  std::string text = "[";
  for (int d = 0; d < rank_; ++d) text += (d ? ", " : "") + std::to_string(size_[size_t(d)]);
  return text + "]";
}

Tensor Tensor::slice_rows(int64_t first, int64_t n) const {
  WEFT_CHECK(first >= 0 && n >= 0 && first + n <= rows(), "rows [{}, {}) of {}", first, first + n, shape.to_string());
  Tensor t = *this;
  t.data = offset(*this, first * row_stride);
  t.shape = shape.rank() == 1 ? Shape(n) : shape.rank() == 2 ? Shape(n, shape[1]) : Shape(n, shape[1], shape[2]);
  return t;
}

Tensor Tensor::slice_cols(int64_t first, int64_t n) const {
  WEFT_CHECK(shape.rank() == 2, "columns of {}", shape.to_string());
  WEFT_CHECK(first >= 0 && n >= 0 && first + n <= cols(), "columns [{}, {}) of {}", first, first + n,
             shape.to_string());
  Tensor t = *this;
  t.data = offset(*this, first);
  t.shape = Shape(rows(), n);
  return t;
}

Tensor Tensor::reshape(Shape to) const {
  WEFT_CHECK(contiguous() && to.elements() == elements(), "{} as {}", shape.to_string(), to.to_string());
  return {data, dtype, to, place};
}

std::string Tensor::to_string() const {
  return fmt::format("{} {} {}", name_of(dtype), shape.to_string(), place.to_string());
}

}  // namespace weft
