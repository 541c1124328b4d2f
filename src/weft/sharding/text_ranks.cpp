#include "weft/sharding/text_ranks.h"

#include <unistd.h>

#include "weft/sharding/boundary.h"

namespace weft {

RankOf rank_of_texts(const ProcessMesh& mesh) { return {mesh[Axis::dp].size(), mesh[Axis::dp].rank()}; }

Communicator& ranks_of_other_texts(const ProcessMesh& mesh) { return mesh[Axis::dp]; }

bool speaks_for_texts(const ProcessMesh& mesh, bool has_head) {
  return has_head && mesh[Axis::tp].rank() == 0 && mesh[Axis::cp].rank() == 0;
}

void wait_sum_over_sharers(const ProcessMesh& mesh, const Tensor& x) {
  for (Communicator* ranks : {&mesh[Axis::tp], &mesh[Axis::cp], mesh.pp.get()}) ranks->all_reduce(x).wait();
}

Run columns_of_rank(const ProcessMesh& mesh, int64_t columns) {
  const int64_t ranks = mesh[Axis::cp].size();
  if (columns % ranks != 0) return {0, columns};
  return {mesh[Axis::cp].rank() * (columns / ranks), columns / ranks};
}

Tensor rows_of_all_keepers(const ProcessMesh& mesh, const Tensor& x, Arena& out) {
  return Boundary(Axis::cp, Spmd::Shard0, Spmd::Replicate).forward(mesh, x, out);
}

std::optional<RankOf> sharer_of_experts(const ProcessMesh& mesh) {
  const Communicator& same = *(mesh.sizes.ep == 1 ? mesh.axes[size_t(Axis::cp)] : mesh.experts.all);
  if (mesh.sizes.cp == 1 || (mesh.sizes.ep > 1 && mesh.sizes.dp > 1)) return {};
  return RankOf{same.size(), same.rank()};
}

std::vector<const void*> shown_by_ranks_of_experts(const ProcessMesh& mesh, const void* mine) {
  struct Shown {
    const void* what;
    int64_t process;
  } here{mine, ::getpid()};
  static_assert(sizeof here == 2 * sizeof(int64_t), "an address goes as a number");
  Communicator& ranks = mesh[Axis::ep];
  std::vector<Shown> shown(size_t(ranks.size()));
  ranks.all_gather({&here, DType::i64, {1, 2}}, {shown.data(), DType::i64, {ranks.size(), 2}}).wait();
  std::vector<const void*> all;
  for (const auto& [what, process] : shown) {
    WEFT_CHECK(process == here.process, "addresses of process {} are shown to process {}", process, here.process);
    all.push_back(what);
  }
  return all;
}

void wait_for_ranks_of_experts(const ProcessMesh& mesh) {
  double nothing = 0;
  mesh[Axis::ep].all_reduce({&nothing, DType::f64, {1}}).wait();
}

Tensor sum_over_keepers(const ProcessMesh& mesh, const Tensor& x, Arena& scratch) {
  const Tensor parts = x.placed(x.place.with(Axis::cp, Spmd::Partial));
  return Boundary(Axis::cp, Spmd::Partial, Spmd::Invariant).forward(mesh, parts, scratch).placed(x.place);
}

}  // namespace weft
