// Matrices between files and memory: element types, row ranges, transposition, without a copy of the whole.
//   Files hold f64, f32, bf16, f16 at any alignment; memory holds the same.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weft/checkpoint/safetensors_header.h"
#include "weft/tensor/dtype.h"

namespace weft {

// The numbers of one tensor in a file, as a row-major matrix: its first dimension times the product of the others.
// A vector is one number per row; a scalar is [1, 1].
struct FileMatrix {
  std::span<const std::byte> bytes;  // borrowed
  FileDType dtype = FileDType::f32;
  int64_t rows = 0, cols = 0;
};

// A block of a matrix in memory; rows are `row_stride` elements apart.
struct MatrixOut {
  void* data = nullptr;
  DType dtype = DType::f32;  // f64, f32, bf16 or f16
  int64_t rows = 0, cols = 0, row_stride = 0;
};
struct MatrixIn {
  const void* data = nullptr;
  DType dtype = DType::f32;  // f64, f32, bf16 or f16
  int64_t rows = 0, cols = 0, row_stride = 0;
};

// Whether read_matrix takes numbers of this type.
bool is_convertible(FileDType t);

// to[i, j] = from[first_row + i, first_col + j]. Conversions round to nearest even; f64 becomes bf16 or f16 by way of
// f32. Throws CheckFailure where the block is not inside `from`, or a type is not one of those above.
struct BlockStart {
  int64_t row = 0, col = 0;
};
void read_matrix(const FileMatrix& from, BlockStart start, const MatrixOut& to);
// to[i, j] = from[start.row + j, start.col + i]: `start` is the corner in the file.
void read_transposed(const FileMatrix& from, BlockStart start, const MatrixOut& to);

// Takes the bytes of a tensor in order, in pieces of any size.
using ByteSink = std::function<void(std::span<const std::byte>)>;

// Gives `sink` the bytes of `from` (or of its transpose) as a row-major matrix of `as`: f64, f32, bf16 or f16. The
// buffer in between has about 256 KiB, or one row where that is longer.
void stream_matrix(const MatrixIn& from, FileDType as, bool transposed, const ByteSink& sink);

}  // namespace weft
