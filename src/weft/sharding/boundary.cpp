#include "weft/sharding/boundary.h"

#include <algorithm>
#include <array>

namespace weft {

Boundary::Boundary(Axis axis, Spmd from, Spmd to) : axis_(axis), from_(from), to_(to) {
  constexpr std::array kRows = {Change{Spmd::Invariant, Spmd::Replicate}, Change{Spmd::Partial, Spmd::Invariant},
                                Change{Spmd::Shard0, Spmd::Replicate}, Change{Spmd::Partial, Spmd::Shard0}};
  if (from == to || std::find(kRows.begin(), kRows.end(), Change{from, to}) != kRows.end()) return;
  throw PlacementError(
      fmt::format("no collective changes {} into {} on axis {}", name_of(from), name_of(to), name_of(axis)));
}

Tensor Boundary::operand_for(const ProcessMesh& mesh, Tensor y, Arena& scratch) const {
  WEFT_CHECK(y.place[axis_] == to_ && (from_ == to_ || from_ != Spmd::Shard0),
             "a boundary to {} was given {} to write to", name_of(to_), y.to_string());
  const Placement place = y.place.with(axis_, from_);
  const int64_t n = mesh[axis_].size();
  if (n == 1 || from_ == to_ || to_ != Spmd::Shard0) return y.placed(place);
  return scratch.alloc(y.dtype, {y.rows() * n, y.cols()}, place);
}

void Boundary::forward_into(const ProcessMesh& mesh, Tensor x, Tensor y) const {
  if (mesh[axis_].size() == 1 || from_ != Spmd::Partial || from_ == to_) return;
  if (to_ == Spmd::Shard0)
    mesh[axis_].reduce_scatter(x, y).wait();
  else
    mesh[axis_].all_reduce(x).wait();
}

Tensor Boundary::move(const ProcessMesh& mesh, Tensor x, Change change, Arena& out) const {
  if (x.place[axis_] != change.from) {
    throw PlacementError(fmt::format("a boundary from {} to {} on axis {} was given {}", name_of(change.from),
                                     name_of(change.to), name_of(axis_), x.to_string()));
  }
  Communicator& ranks = mesh[axis_];
  const int64_t n = ranks.size();
  x.place = x.place.with(axis_, change.to);
  const bool adds = change.from == Spmd::Partial && change.to != Spmd::Partial;
  const bool gathers = change.from == Spmd::Shard0 && change.to == Spmd::Replicate;
  if (n == 1 || (!adds && !gathers)) return x;
  if (adds && change.to == Spmd::Shard0) {
    WEFT_CHECK(x.rows() % n == 0, "{} rows over {} ranks", x.rows(), n);
    Tensor y = out.alloc(x.dtype, {x.rows() / n, x.cols()}, x.place);
    ranks.reduce_scatter(x, y).wait();
    return y;
  }
  if (gathers) {
    Tensor y = out.alloc(x.dtype, {x.rows() * n, x.cols()}, x.place);
    ranks.all_gather(x, y).wait();
    return y;
  }
  ranks.all_reduce(x).wait();
  return x;
}

}  // namespace weft
