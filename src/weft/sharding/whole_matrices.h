// Gradients of matrices brought together: for updates that must see a matrix whole, however ranks cut and keep it.
#pragma once
#include <functional>
#include <vector>

#include "weft/sharding/param_store.h"

namespace weft {

// A part of a linear weight (q, k, v of a fused qkv apart): a matrix of its own.
struct WholeMatrix {
  const Param* param;
  size_t part;
  Run rows, cols;  // of the whole weight
};
// Those of this stage that the ranks of a group hold, the most expensive first: the same list on all of these.
std::vector<WholeMatrix> whole_matrices(const ParamStore& store, const ReplicaGroup& group);

// Those of them, in their order, that fall to one of `places` ranks (the group's x tp, tp innermost).
std::vector<WholeMatrix> matrices_of(const std::vector<WholeMatrix>& all, int place, int places);

// Replaces the gradient of every whole matrix by what f leaves in it, after finish_step. f(x), x [rows, cols] stat,
// contiguous, is called once for each matrix, on one of the ranks that hold it (a replica group's x tp): they take the
// matrices in turns (matrices_of), so that equal ones are under way at the same time. What f computes depends on no
// layout. Each rank sends what it keeps of the gradient once, and receives it once; beside what f takes, `scratch`
// holds one matrix (two where tensor parallel ranks have columns of it). All ranks call it. Blocks.
using MatrixFunction = std::function<void(Tensor x)>;
void wait_replace_whole(Backend& backend, const ParamStore& store, Arena& scratch, const MatrixFunction& f);

}  // namespace weft
