// Which attention ops a library may compute, in which batches, and with how much memory. Needs no GPU.
#pragma once
#include <optional>

#include "weft/ops/cuda/attention_graph.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

struct AttentionLimits {
  int64_t batch = int64_t{256} << 20;      // most bytes of a batch that is larger than the least one
  int64_t least_batch = int64_t{1} << 30;  // most bytes of the least batch: the queries of one key head
  bool repeats = true;                     // the same bits each time; else there is one batch
};

// The shape if the spans are a batch: sequences of equal length in a row, each attending only to itself, from its first
// token. Nothing otherwise, and for f32, dropout, windows of less than half the length, lengths that are no multiple of
// 128, heads whose width is no multiple of 8 or above 128, values of another width, and rows that are not aligned to 16
// bytes.
std::optional<AttentionShape> shape_of(const Attention& op, const AttentionLimits& limits = {});
std::optional<AttentionShape> shape_of(const AttentionBackward& op, const AttentionLimits& limits = {});
// Whether the tensors themselves begin at a multiple of 16 bytes, which a dry run cannot know.
bool begin_aligned(const Attention& op);
bool begin_aligned(const AttentionBackward& op);

// A library with repeatable bits stores the scores' gradients of each batch, f16 or bf16 [sequences, heads, length,
// length]. So backward goes in equal batches of whole sequences, or of a sequence's heads.
struct AttentionBatches {
  AttentionShape batch;
  int64_t count = 0;
  int64_t workspace_bytes = 0;  // that the library may use for one
};
// Nothing where the least batch takes more.
std::optional<AttentionBatches> batches_of(const AttentionShape& whole, const AttentionLimits& limits = {});

// Compares a row of two tensors, to judge a library (fast_attention.h).
struct RowReport {
  float largest, apart;  // of weft's own numbers; of the differences. inf: something is not finite
  float squares, apart_squares;
  uint64_t bits;  // of the library's numbers: equal where these are
};

// Offsets into one run of memory, which begins at a multiple of so many bytes.
inline constexpr int64_t kRegionAlignment = 256;
struct AttentionRegion {
  int64_t lse = 0;       // f32 [sequences, heads, length]
  int64_t weighted = 0;  // the same, backward
  int64_t sums = 0;      // f32 [sequences, heads, length, dim], backward that need not repeat
  int64_t reports = 0;   // of each token
  int64_t shared = 0;    // the library's workspace; after it, weft's own results, to compare with
  int64_t bytes = 0;
};
AttentionRegion region_of(const AttentionBatches& batches, const AttentionShape& whole);

// The bytes of that region at any alignment; 0 if no library may compute the op.
template <class Op>
int64_t library_bytes(const Op& op, const AttentionLimits& limits = {}) {
  const auto shape = shape_of(op, limits);
  if (!shape) return 0;
  const auto batches = batches_of(*shape, limits);
  return batches ? region_of(*batches, *shape).bytes + kRegionAlignment : 0;
}

}  // namespace weft::gpu
