#include "weft/sharding/sequence_cut.h"

#include "weft/sharding/sequence_runs.h"

namespace weft {
namespace {

// f(part, the columns of `packed` that are its own)
template <class F>
void for_parts(std::span<const Tensor> parts, const Tensor& packed, const F& f) {
  int64_t first = 0;
  for (const Tensor& part : parts) {
    f(part, packed.slice_cols(first, part.cols()));
    first += part.cols();
  }
}

}  // namespace

WholeSequences::WholeSequences() : join_(Axis::cp, Spmd::Shard0, Spmd::Replicate) {}

Tensor WholeSequences::gather(const At& at, std::span<const Tensor> parts) const {
  const Tensor& one = parts[0];
  const Shape here = {one.rows(), columns_of(parts)};
  const Placement place = one.place.with(Axis::cp, Spmd::Replicate);
  Tensor whole = at.scratch.alloc(one.dtype, {here[0] * at.cut.ranks.size, here[1]}, place);
  Scope temporaries(at.scratch);
  Tensor packed = at.scratch.alloc(one.dtype, here, one.place);
  for_parts(parts, packed, [&](const Tensor& part, const Tensor& to) { at.be.run(Copy{.from = part, .to = to}); });
  const Tensor by_rank = join_.forward(at.mesh, packed, at.scratch);
  for_runs(at.cut, by_rank, whole,
           [&](const Tensor& from, const Tensor& to) { at.be.run(Copy{.from = from, .to = to}); });
  return whole;
}

void WholeSequences::scatter_sums(const At& at, Tensor x, std::span<const Tensor> parts) const {
  Scope temporaries(at.scratch);
  Tensor by_rank = at.scratch.alloc(x.dtype, x.shape, x.place);
  for_runs(at.cut, by_rank, x, [&](const Tensor& to, const Tensor& from) { at.be.run(Copy{.from = from, .to = to}); });
  const Tensor packed = join_.backward(at.mesh, by_rank, at.scratch);
  for_parts(parts, packed, [&](const Tensor& part, const Tensor& from) { at.be.run(Copy{.from = from, .to = part}); });
}

}  // namespace weft
