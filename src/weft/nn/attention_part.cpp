#include "weft/nn/attention_part.h"

#include <algorithm>

namespace weft {
namespace {

// Queries and keys of one document that see each other: every query one of these keys, every key seen.
struct Seen {
  Run q, k;  // tokens
};
Seen seen_of(const Run& document, const Run& queries, const Run& keys, int64_t window) {
  int64_t k = std::max(document.first, keys.first), k_end = std::min(document.end(), keys.end());
  int64_t q = std::max({document.first, queries.first, k}), q_end = std::min(document.end(), queries.end());
  k_end = std::min(k_end, q_end);  // causal
  if (window > 0) {
    k = std::max(k, q - window + 1);
    q_end = std::min(q_end, k_end - 1 + window);
  }
  return {{q, std::max<int64_t>(0, q_end - q)}, {k, std::max<int64_t>(0, k_end - k)}};
}

}  // namespace

std::optional<AttentionPart> part_of(std::span<const AttentionSpan> documents, const TokenRows& queries,
                                     const TokenRows& keys, int64_t window) {
  AttentionPart part;
  Seen all;  // of the documents so far
  for (const AttentionSpan& d : documents) {
    const Seen seen = seen_of({d.q_row, d.q_count}, queries.tokens, keys.tokens, window);
    if (seen.q.count == 0 || seen.k.count == 0) continue;
    if (part.spans.empty()) all = {{seen.q.first, 0}, {seen.k.first, 0}};
    part.spans.push_back({.q_row = seen.q.first - all.q.first,
                          .q_count = seen.q.count,
                          .k_row = seen.k.first - all.k.first,
                          .k_count = seen.k.count,
                          .q_position = d.q_position + seen.q.first - d.q_row,
                          .k_position = d.k_position + seen.k.first - d.k_row,
                          .sample = d.sample});
    all.q.count = seen.q.end() - all.q.first;
    all.k.count = seen.k.end() - all.k.first;
  }
  if (part.spans.empty()) return {};
  part.q = {queries.row + all.q.first - queries.tokens.first, all.q.count};
  part.k = {keys.row + all.k.first - keys.tokens.first, all.k.count};
  return part;
}

void add_wide(Pass& p, const Tensor& x, const Tensor& sum, const Tensor& wide) {
  Tensor term = x;
  if (x.dtype != sum.dtype) {
    term = wide.slice_rows(0, x.rows());
    p.be.run(Copy{.from = x, .to = term});
  }
  p.be.run(Add{.x = sum, .y = term, .out = sum});
}

std::vector<TokenRows> token_rows(const MicroBatch& batch, const SequenceCut& cut, int64_t rank) {
  const int64_t sequences = batch.ids.rows() / batch.sequences.rows();
  std::vector<TokenRows> all;
  int64_t row = 0;
  for (int64_t sequence = 0; sequence < sequences; ++sequence)
    for (const Run& run : cut.runs_of(rank)) {
      all.push_back({{sequence * cut.seq_length + run.first, run.count}, row});
      row += run.count;
    }
  return all;
}

}  // namespace weft
