#include "weft/ops/dry/dry_backend.h"

namespace weft {
namespace {

// Pairs of a query and a key that it sees.
double pairs(const AttentionHeads& heads, std::span<const AttentionSpan> spans) {
  double n = 0;
  for (const AttentionSpan& s : spans) {
    for (int64_t i = 0; i < s.q_count; ++i) {
      const int64_t at = s.q_position + i;
      const int64_t last = std::min(at, s.k_position + s.k_count - 1);
      const int64_t first = std::max(s.k_position, heads.window > 0 ? at - heads.window + 1 : s.k_position);
      n += double(std::max<int64_t>(0, last - first + 1));
    }
  }
  return n * double(heads.q);
}

}  // namespace

double flops_of(const Matmul& op) { return 2.0 * double(op.m()) * double(op.n()) * double(op.k()); }
double flops_of(const Attention& op) { return 4.0 * pairs(op.heads, op.spans) * double(op.heads.dim); }
double flops_of(const AttentionBackward& op) { return 8.0 * pairs(op.heads, op.spans) * double(op.heads.dim); }

}  // namespace weft
