#include "weft/ops/cuda/attention_batch.h"

#include <algorithm>

namespace weft::gpu {
namespace {

constexpr int64_t kAlignment = 16;  // bytes
constexpr int64_t kLengths = 128;   // lengths are multiples of it
constexpr int64_t kWidths = 8, kMostWidth = 128;
constexpr int64_t kSlack = int64_t{1} << 20;  // bytes, for what a library wants besides

bool is_batch(std::span<const AttentionSpan> spans) {
  if (spans.empty()) return false;
  const int64_t length = spans.front().q_count;
  for (size_t i = 0; i < spans.size(); ++i) {
    const AttentionSpan& s = spans[i];
    const int64_t row = int64_t(i) * length;
    if (s.q_row != row || s.k_row != row || s.q_count != length || s.k_count != length || s.q_position != s.k_position)
      return false;
  }
  return length > 0 && length % kLengths == 0;
}

bool rows_fit(DType dtype, std::initializer_list<const Tensor*> all) {
  return std::all_of(all.begin(), all.end(), [&](const Tensor* x) {
    return x->dtype == dtype && x->row_stride * size_of(dtype) % kAlignment == 0;
  });
}

bool aligned(std::initializer_list<const Tensor*> all) {
  return std::all_of(all.begin(), all.end(),
                     [](const Tensor* x) { return reinterpret_cast<uintptr_t>(x->data) % kAlignment == 0; });
}

// The conditions that forward and backward share.
template <class Op>
std::optional<AttentionShape> common_shape(const Op& op) {
  const AttentionHeads& h = op.heads;
  if (size_of(op.q.dtype) != 2 || op.dropout.p > 0 || h.softcap > 0 || !is_batch(op.spans)) return {};
  const int64_t length = op.spans.front().q_count, count = int64_t(op.spans.size());
  if (h.window > 0 && 2 * h.window < length) return {};  // weft's own kernels do only what the window shows
  if (h.dim % kWidths != 0 || h.dim > kMostWidth || h.value_dim() != h.dim || h.q % h.kv != 0) return {};
  if (op.q.rows() != count * length || op.k.rows() != count * length) return {};
  if (!rows_fit(op.q.dtype, {&op.q, &op.k, &op.v, &op.o})) return {};
  return AttentionShape{.dtype = op.q.dtype,
                        .sequences = count,
                        .length = length,
                        .heads = h.q,
                        .kv_heads = h.kv,
                        .dim = h.dim,
                        .window = h.window < length ? h.window : 0,
                        .q_stride = op.q.row_stride,
                        .k_stride = op.k.row_stride,
                        .v_stride = op.v.row_stride,
                        .o_stride = op.o.row_stride};
}

int64_t largest_divisor(int64_t of, int64_t most) {
  int64_t d = std::clamp<int64_t>(most, 1, of);
  while (of % d != 0) --d;
  return d;
}

// For one query head of one sequence: the scores' gradients, where they repeat; where heads share keys, each one's
// gradients of them, first apart; sums of the queries' gradients in f32, which an A100 wants even where it is given
// such; a few numbers for each row.
int64_t backward_bytes(const AttentionShape& s) {
  const int64_t element = size_of(s.dtype), sums = s.length * s.dim * int64_t(sizeof(float));
  const int64_t apart = s.heads == s.kv_heads ? 0 : 2 * s.length * s.dim * element;
  const int64_t scores = s.repeats ? s.length * s.length * element : 0;
  return scores + apart + sums + 4 * s.length * int64_t(sizeof(float));
}

}  // namespace

std::optional<AttentionShape> shape_of(const Attention& op, const AttentionLimits&) { return common_shape(op); }
std::optional<AttentionShape> shape_of(const AttentionBackward& op, const AttentionLimits& limits) {
  auto shape = common_shape(op);
  if (!shape || !rows_fit(op.q.dtype, {&op.dout, &op.dq, &op.dk, &op.dv})) return {};
  shape->backward = true;
  shape->repeats = limits.repeats;
  shape->dout_stride = op.dout.row_stride;
  shape->dq_stride = op.dq.row_stride, shape->dk_stride = op.dk.row_stride, shape->dv_stride = op.dv.row_stride;
  return shape;
}

bool begin_aligned(const Attention& op) { return aligned({&op.q, &op.k, &op.v, &op.o}); }
bool begin_aligned(const AttentionBackward& op) {
  return aligned({&op.q, &op.k, &op.v, &op.o, &op.dout, &op.dq, &op.dk, &op.dv});
}

std::optional<AttentionBatches> batches_of(const AttentionShape& whole, const AttentionLimits& limits) {
  AttentionBatches batches{.batch = whole, .count = 1, .workspace_bytes = kSlack};
  if (!whole.backward) return batches;
  AttentionShape& batch = batches.batch;
  const int64_t group = whole.heads / whole.kv_heads, of_head = backward_bytes(whole);
  if (!whole.repeats) {
    batches.workspace_bytes += whole.sequences * whole.heads * of_head;
    return batches;
  }
  if (group * of_head > limits.least_batch) return {};
  if (whole.heads * of_head <= limits.batch) {
    batch.sequences = largest_divisor(whole.sequences, limits.batch / (whole.heads * of_head));
  } else {
    batch.sequences = 1;
    batch.kv_heads = largest_divisor(whole.kv_heads, limits.batch / (group * of_head));
    batch.heads = group * batch.kv_heads;
  }
  batches.count = whole.sequences / batch.sequences * (whole.heads / batch.heads);
  batches.workspace_bytes += batch.sequences * batch.heads * of_head;
  return batches;
}

AttentionRegion region_of(const AttentionBatches& batches, const AttentionShape& whole) {
  AttentionRegion region;
  const auto take = [&](int64_t bytes) {
    const int64_t at = region.bytes;
    region.bytes += (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
    return at;
  };
  const int64_t tokens = whole.sequences * whole.length, numbers = tokens * whole.heads * int64_t(sizeof(float));
  region.lse = take(numbers);
  if (whole.backward) region.weighted = take(numbers);
  if (!whole.repeats) region.sums = take(numbers * whole.dim);
  region.reports = take(tokens * int64_t(sizeof(RowReport)));
  const int64_t results = whole.backward
                              ? tokens * (whole.heads + 2 * whole.kv_heads) * whole.dim * size_of(whole.dtype)
                              : tokens * whole.heads * whole.dim * size_of(whole.dtype) + numbers;
  region.shared = take(std::max(batches.workspace_bytes, results + 4 * kRegionAlignment));
  return region;
}

}  // namespace weft::gpu
