// From the numbers of a matrix to the codes that a rank keeps of it (ops/weight_codes.h).
#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/sharding/coded_weight.h"

namespace weft {

class ParamStore;

// A matrix that is read some rows at a time, in order.
struct MatrixRows {
  std::string name;  // in errors
  int64_t rows, cols;
  std::function<void(Run rows, float* to)> read;  // to [rows.count, cols]
  int64_t first_row = 0;                          // of the file's tensor, which may lie transposed: in errors
  bool transposed = false;
};
// Takes bytes of a weight, of which it wants those in `wanted`: put(first byte, bytes), which may have others too.
struct CodeSink {
  Run wanted;
  std::function<void(int64_t first, std::span<const std::byte> bytes)> put;
};

// Reads the whole matrix once, a few MiB at a time, and gives `sink` the bytes of the rectangle `part`.
// `stat`: f32 or f64, the dtype of scales; these and the codes are computed in f32. Throws FileError where a number is
// not finite. Blocks.
void quantise(const MatrixRows& matrix, const CodedPart& part, DType stat, int num_threads, const CodeSink& sink);
// The same for one part of a weight that `params` keeps in codes: writes what this rank keeps.
void quantise(const MatrixRows& matrix, const ParamStore& params, const Param& weight, size_t part, int num_threads);

// Replaces the numbers of a whole matrix [rows, cols] by those that its codes stand for.
void round_to_codes(WeightCodes as, const std::string& name, int64_t cols, std::span<float> values, int num_threads);

}  // namespace weft
