// The work that an op's result takes on any backend: for plans, traces and rooflines.
#pragma once
#include <compare>
#include <string>

#include "weft/ops/ops.h"

namespace weft {

struct OpCost {
  double flops = 0;                           // floating-point operations of products; recomputation is not counted
  int64_t bytes_read = 0, bytes_written = 0;  // of operands, each once
  OpCost& operator+=(const OpCost& c) {
    flops += c.flops;
    bytes_read += c.bytes_read;
    bytes_written += c.bytes_written;
    return *this;
  }
};

// 2 m n k of a product; of attention, for each pair of a query and a key that it sees, 2 per element of a key and of a
// value forward, 4 backward. 0 of all others: they cost bytes.
double flops_of(const Matmul& op);
double flops_of(const Attention& op);
double flops_of(const AttentionBackward& op);
double flops_of(const GroupedMatmul& op);  // of every row, whether an expert has it or not
double flops_of(const GroupedWeightGrad& op);
template <class Op>
double flops_of(const Op&) {
  return 0;
}

// The shape by which matrix products are tuned.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  auto operator<=>(const ProductShape&) const = default;
};
ProductShape shape_of(const Matmul& op);
std::string to_string(const ProductShape& shape);  // "16384 x 4096 x 1024 nt": a as it lies, b transposed

// Bytes that one operand moves: all of it, except that only the rows looked up in a table count.
template <class Op>
int64_t bytes_of(const Op& op, const Field& field) {
  int64_t rows = field.tensor->rows();
  if constexpr (requires { op.ids; }) rows = field.name == "table" || field.name == "dtable" ? op.ids.rows() : rows;
  if constexpr (requires { op.positions; }) rows = field.name == "table" ? op.positions.rows() : rows;
  return rows * field.tensor->cols() * size_of(field.tensor->dtype);
}

template <class Op>
OpCost cost_of(const Op& op) {
  OpCost c{.flops = flops_of(op)};
  for (const Field& f : op.fields()) {
    if (!*f.tensor) continue;
    if (f.role != Role::out) c.bytes_read += bytes_of(op, f);
    if (f.role != Role::in) c.bytes_written += bytes_of(op, f);
  }
  return c;
}

}  // namespace weft
