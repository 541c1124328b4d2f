#include "weft/sharding/head_exchange.h"

#include "weft/comm/all_to_all.h"
#include "weft/sharding/sequence_runs.h"

namespace weft {
namespace {

std::vector<Tensor> pieces_of(const Tensor& x, int64_t ranks) {
  const int64_t rows = x.rows() / ranks;
  std::vector<Tensor> pieces;
  for (int64_t r = 0; r < ranks; ++r) pieces.push_back(x.slice_rows(r * rows, rows));
  return pieces;
}

// Piece j of `sent`, [n T, w] both, becomes this rank's piece of rank j's `received`.
void exchange(const HeadExchange::At& at, const Tensor& sent, const Tensor& received) {
  const std::vector<Tensor> out = pieces_of(sent, at.cut.ranks.size), in = pieces_of(received, at.cut.ranks.size);
  const auto me = size_t(at.cut.ranks.rank);
  wait_all_to_all(at.mesh[Axis::cp], out, in);
  at.be.run(Copy{.from = out[me].placed(in[me].place), .to = in[me]});
}

// f(the columns of a part that are rank r's, their place among its rows of `packed`)
template <class F>
void for_shares(const SequenceCut& cut, std::span<const Tensor> parts, const Tensor& packed, const F& f) {
  const std::vector<Tensor> pieces = pieces_of(packed, cut.ranks.size);
  for (int64_t r = 0; r < cut.ranks.size; ++r) {
    int64_t first = 0;
    for (const Tensor& part : parts) {
      const int64_t cols = part.cols() / cut.ranks.size;
      f(part.slice_cols(r * cols, cols), pieces[size_t(r)].slice_cols(first, cols));
      first += cols;
    }
  }
}

}  // namespace

Tensor HeadExchange::to_heads(const At& at, std::span<const Tensor> parts) const {
  const Tensor& one = parts[0];
  const int64_t n = at.cut.ranks.size;
  const Shape shape = {one.rows() * n, columns_of(parts) / n};
  Tensor whole = at.scratch.alloc(one.dtype, shape, one.place.with(Axis::cp, Spmd::Shard1));
  Scope temporaries(at.scratch);
  const Tensor sent = at.scratch.alloc(one.dtype, shape, one.place);
  for_shares(at.cut, parts, sent,
             [&](const Tensor& part, const Tensor& to) { at.be.run(Copy{.from = part, .to = to}); });
  const Tensor by_rank = at.scratch.alloc(one.dtype, shape, whole.place);
  exchange(at, sent, by_rank);
  for_runs(at.cut, by_rank, whole,
           [&](const Tensor& from, const Tensor& to) { at.be.run(Copy{.from = from, .to = to}); });
  return whole;
}

void HeadExchange::to_rows(const At& at, Tensor x, std::span<const Tensor> parts) const {
  Scope temporaries(at.scratch);
  const Tensor by_rank = at.scratch.alloc(x.dtype, x.shape, x.place);
  for_runs(at.cut, by_rank, x, [&](const Tensor& to, const Tensor& from) { at.be.run(Copy{.from = from, .to = to}); });
  const Tensor received = at.scratch.alloc(x.dtype, x.shape, parts[0].place);
  exchange(at, by_rank, received);
  for_shares(at.cut, parts, received,
             [&](const Tensor& part, const Tensor& from) { at.be.run(Copy{.from = from, .to = part}); });
}

}  // namespace weft
