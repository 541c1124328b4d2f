#include "weft/sharding/head_exchange.h"

#include <algorithm>

#include "weft/comm/all_to_all.h"
#include "weft/sharding/sequence_runs.h"

namespace weft {
namespace {

std::vector<Tensor> slices_of(const Tensor& x, int64_t ranks) {
  const int64_t rows = x.rows() / ranks;
  std::vector<Tensor> slices;
  for (int64_t r = 0; r < ranks; ++r) slices.push_back(x.slice_rows(r * rows, rows));
  return slices;
}

// What is for rank `first` of cp and those behind it, as what is for each rank of cp.
std::vector<Tensor> among_all(const Communicator& cp, int64_t first, const std::vector<Tensor>& slices) {
  std::vector<Tensor> all(size_t(cp.size()));
  std::copy(slices.begin(), slices.end(), all.begin() + first);
  return all;
}

// Slice j of `sent`, [n T, w] both, becomes this rank's slice of the group's rank j's `received`.
void exchange(const HeadExchange::At& at, const RankOf& ranks, const Tensor& sent, const Tensor& received) {
  const std::vector<Tensor> out = slices_of(sent, ranks.size), in = slices_of(received, ranks.size);
  Communicator& cp = at.mesh[Axis::cp];
  const int64_t first = at.cut.ranks.rank - ranks.rank;
  wait_all_to_all(cp, among_all(cp, first, out), among_all(cp, first, in));
  const auto me = size_t(ranks.rank);
  at.be.run(Copy{.from = out[me].placed(in[me].place), .to = in[me]});
}

// f(the columns of a part that are rank r's, their place among its rows of `packed`)
template <class F>
void for_shares(int64_t n, std::span<const Tensor> parts, const Tensor& packed, const F& f) {
  const std::vector<Tensor> slices = slices_of(packed, n);
  for (int64_t r = 0; r < n; ++r) {
    int64_t first = 0;
    for (const Tensor& part : parts) {
      const int64_t cols = part.cols() / n;
      f(part.slice_cols(r * cols, cols), slices[size_t(r)].slice_cols(first, cols));
      first += cols;
    }
  }
}

}  // namespace

Tensor HeadExchange::to_heads(const At& at, std::span<const Tensor> parts) const {
  const Tensor& one = parts[0];
  const SequenceCut cut = at.cut.within_group(ranks_);
  const int64_t n = ranks_;
  const Shape shape = {one.rows() * n, columns_of(parts) / n};
  Tensor whole = at.scratch.alloc(one.dtype, shape, one.place.with(Axis::cp, Spmd::Shard1));
  Scope temporaries(at.scratch);
  const Tensor sent = at.scratch.alloc(one.dtype, shape, one.place);
  for_shares(n, parts, sent, [&](const Tensor& part, const Tensor& to) { at.be.run(Copy{.from = part, .to = to}); });
  const Tensor by_rank = at.scratch.alloc(one.dtype, shape, whole.place);
  exchange(at, cut.ranks, sent, by_rank);
  for_runs(cut, by_rank, whole, [&](const Tensor& from, const Tensor& to) { at.be.run(Copy{.from = from, .to = to}); });
  return whole;
}

void HeadExchange::to_rows(const At& at, Tensor x, std::span<const Tensor> parts) const {
  Scope temporaries(at.scratch);
  const SequenceCut cut = at.cut.within_group(ranks_);
  const Tensor by_rank = at.scratch.alloc(x.dtype, x.shape, x.place);
  for_runs(cut, by_rank, x, [&](const Tensor& to, const Tensor& from) { at.be.run(Copy{.from = from, .to = to}); });
  const Tensor received = at.scratch.alloc(x.dtype, x.shape, parts[0].place);
  exchange(at, cut.ranks, by_rank, received);
  for_shares(ranks_, parts, received,
             [&](const Tensor& part, const Tensor& from) { at.be.run(Copy{.from = from, .to = part}); });
}

}  // namespace weft
