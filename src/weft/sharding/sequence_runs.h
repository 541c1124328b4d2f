// Rows of whole sequences beside those of the ranks that share them. Private to sequence_cut.cpp and head_exchange.cpp.
#pragma once
#include <numeric>

#include "weft/sharding/sequence_cut.h"

namespace weft {

inline int64_t columns_of(std::span<const Tensor> parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                         [](int64_t n, const Tensor& x) { return n + x.cols(); });
}

// f(rows of the ranks' tensors one after the other, the same rows of whole sequences), run by run.
template <class F>
void for_runs(const SequenceCut& cut, const Tensor& by_rank, const Tensor& whole, const F& f) {
  int64_t row = 0;
  for (int64_t rank = 0; rank < cut.ranks.size; ++rank)
    for (int64_t first = 0; first < whole.rows(); first += cut.seq_length)
      for (const Run& run : cut.runs_of(rank)) {
        f(by_rank.slice_rows(row, run.count), whole.slice_rows(first + run.first, run.count));
        row += run.count;
      }
}

}  // namespace weft
