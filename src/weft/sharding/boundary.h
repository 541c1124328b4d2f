// Where an activation changes how the ranks of an axis hold it. The (from, to) pair determines the collective of the
// forward pass and, on the duals, that of the backward pass: the two are adjoint.
#pragma once
#include "weft/comm/process_mesh.h"
#include "weft/device/arena.h"

namespace weft {

//   from       to         forward          backward
//   Invariant  Replicate  none             all-reduce
//   Partial    Invariant  all-reduce       none
//   Shard0     Replicate  all-gather       reduce-scatter
//   Partial    Shard0     reduce-scatter   all-gather
//   s          s          none             none
// Anything else is a PlacementError. On an axis of one rank nothing moves, but the placements change all the same.
class Boundary {
 public:
  Boundary(Axis axis, Spmd from, Spmd to);
  Spmd from() const { return from_; }

  // x [n, d], placed `from` on the axis. The result is x itself (all-reduced in place where the table says so), or lies
  // in `out`. Blocks until it is there.
  Tensor forward(const ProcessMesh& mesh, Tensor x, Arena& out) const { return move(mesh, x, {from_, to_}, out); }
  // The same, with a result that lies in `y`: `x` must have been made by operand_for, which is y itself where the
  // result comes to lie where x was, and else from `scratch`.
  Tensor operand_for(const ProcessMesh& mesh, Tensor y, Arena& scratch) const;
  void forward_into(const ProcessMesh& mesh, Tensor x, Tensor y) const;
  Tensor backward(const ProcessMesh& mesh, Tensor dy, Arena& out) const {
    return move(mesh, dy, {dual(to_), dual(from_)}, out);
  }

 private:
  struct Change {
    Spmd from, to;
    bool operator==(const Change&) const = default;
  };
  Tensor move(const ProcessMesh& mesh, Tensor x, Change change, Arena& out) const;
  Axis axis_;
  Spmd from_, to_;
};

}  // namespace weft
