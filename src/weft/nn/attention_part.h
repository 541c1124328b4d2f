// Which queries of one run of tokens see which keys of another.
#pragma once
#include <optional>
#include <vector>

#include "weft/nn/attention_core.h"

namespace weft {

// One call of Attention: neighbouring rows of q, each in one span, and of k, each in at least one.
struct AttentionPart {
  Run q, k;                          // rows of the tensors
  std::vector<AttentionSpan> spans;  // whose rows are counted from the first of these
};

// Consecutive tokens of one sequence, which lie in consecutive rows of a tensor.
struct TokenRows {
  Run tokens;       // of the micro-batch's whole sequences, one after the other
  int64_t row = 0;  // of the first
};

// None where no query sees a key. `documents`: MicroBatch::spans.
std::optional<AttentionPart> part_of(std::span<const AttentionSpan> documents, const TokenRows& queries,
                                     const TokenRows& keys, int64_t window);

// Keys beside values, as they are moved.
struct KeysValues {
  Tensor both, k, v;
  KeysValues(const Tensor& both, const QueryKeyValue& like)
      : both(both), k(both.slice_cols(0, like.k.cols())), v(both.slice_cols(like.k.cols(), like.v.cols())) {}
};

inline WholeSequences::At sequences_of(const Pass& p) { return {p.be, p.mesh, p.batch.sequences, *p.scratch}; }
inline Tensor rows_of(const Tensor& x, const Run& run) { return x.slice_rows(run.first, run.count); }
inline AttentionCore::Saved of_part(const AttentionCore::Saved& s, const AttentionPart& part) {
  return {rows_of(s.o, part.q), rows_of(s.lse, part.q)};
}

// sum += x, where sums are wider than x or not. `wide`: memory for x as wide as sums.
void add_wide(Pass& p, const Tensor& x, const Tensor& sum, const Tensor& wide);

// The tokens and rows of one of the ranks that share the batch's sequences so: two runs for each sequence, in order.
std::vector<TokenRows> token_rows(const MicroBatch& batch, const SequenceCut& cut, int64_t rank);

}  // namespace weft
