#include "weft/ops/cost.h"

#include <algorithm>

namespace weft {
namespace {

// 1 + 2 + ... + n, and 0 for less.
double triangle(int64_t n) { return n <= 0 ? 0 : double(n) * double(n + 1) / 2; }

// Pairs of one of `queries` consecutive queries, the first at position p, with a key in [first, p]: a trapezoid.
double pairs_up_to(int64_t p, int64_t queries, int64_t first) {
  return triangle(p + queries - first) - triangle(p - first);
}

// Pairs of a query and a key that it sees: keys not after it, less those beyond its window, less those that both count
// but are not there (after the last key).
double pairs_of(const AttentionSpan& s, int64_t window) {
  const auto up_to = [&](int64_t first) {  // keys of positions from `first` on
    return pairs_up_to(s.q_position, s.q_count, first);
  };
  const int64_t end = s.k_position + s.k_count;
  double pairs = up_to(s.k_position) - up_to(end);
  if (window == 0) return pairs;
  // A key that left the window of a query is one that a query `window` earlier would see.
  const auto before = [&](int64_t first) { return pairs_up_to(s.q_position - window, s.q_count, first); };
  return pairs - (before(s.k_position) - before(end));
}

double pairs_of(const AttentionHeads& heads, std::span<const AttentionSpan> spans) {
  double pairs = 0;
  for (const AttentionSpan& s : spans) pairs += pairs_of(s, heads.window);
  return pairs * double(heads.q);
}

}  // namespace

double flops_of(const Matmul& op) { return 2.0 * double(op.m()) * double(op.n()) * double(op.k()); }
double flops_of(const Attention& op) { return 4.0 * pairs_of(op.heads, op.spans) * double(op.heads.dim); }
double flops_of(const AttentionBackward& op) { return 8.0 * pairs_of(op.heads, op.spans) * double(op.heads.dim); }

}  // namespace weft
