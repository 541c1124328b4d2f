#include "weft/ops/cost.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft {
namespace {

// 1 + 2 + ... + n, and 0 for less.
double triangle(int64_t n) { return n <= 0 ? 0 : double(n) * double(n + 1) / 2; }

// Pairs of one of `queries` consecutive queries, the first at position p, with a key in [first, its position].
double pairs_from(int64_t first, int64_t p, int64_t queries) {
  return triangle(p + queries - first) - triangle(p - first);
}

// Pairs of a query and a key that it sees: keys not after it, less those after the last key, less those that left its
// window (which a query `window` earlier would see). Every query sees a key, so the last key leaves no window.
double pairs_of(const AttentionSpan& s, int64_t window) {
  double pairs =
      pairs_from(s.k_position, s.q_position, s.q_count) - pairs_from(s.k_position + s.k_count, s.q_position, s.q_count);
  if (window > 0) pairs -= pairs_from(s.k_position, s.q_position - window, s.q_count);
  return pairs;
}

double pairs_of(const AttentionHeads& heads, std::span<const AttentionSpan> spans) {
  double pairs = 0;
  for (const AttentionSpan& s : spans) pairs += pairs_of(s, heads.window);
  return pairs * double(heads.q);
}

}  // namespace

double flops_of(const Matmul& op) { return 2.0 * double(op.m()) * double(op.n()) * double(op.k()); }
double flops_of(const Attention& op) {
  return 2.0 * pairs_of(op.heads, op.spans) * double(op.heads.dim + op.heads.value_dim());
}
double flops_of(const AttentionBackward& op) {
  return 4.0 * pairs_of(op.heads, op.spans) * double(op.heads.dim + op.heads.value_dim());
}
double flops_of(const GroupedMatmul& op) {
  return 2.0 * double(op.x.rows()) * double(op.rows_of_group()) * double(op.w.cols());
}
double flops_of(const GroupedWeightGrad& op) {
  return 2.0 * double(op.x.rows()) * double(op.rows_of_group()) * double(op.dw.cols());
}

ProductShape shape_of(const Matmul& op) {
  return {.m = op.m(), .n = op.n(), .k = op.k(), .trans_a = op.trans_a, .trans_b = op.trans_b};
}

std::string to_string(const ProductShape& s) {
  return fmt::format("{} x {} x {} {}{}", s.m, s.n, s.k, s.trans_a ? 't' : 'n', s.trans_b ? 't' : 'n');
}

}  // namespace weft
