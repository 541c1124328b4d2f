#include "weft/sharding/replica_group.h"

#include <algorithm>

namespace weft {

std::vector<Axis> summed_over(const Placement& weight) {
  std::vector<Axis> axes;
  for (int a = 0; a < kAxes; ++a)
    if (weight[Axis(a)] == Spmd::Replicate) axes.push_back(Axis(a));
  return axes;
}

ReplicaSet replica_set_of(const ParamSpec& weight) {
  std::vector<Axis> data = summed_over(weight.place);
  std::erase(data, Axis::tp);
  if (data == std::vector{Axis::dp, Axis::cp}) return ReplicaSet::dense;
  if (data == std::vector{Axis::edp}) return ReplicaSet::experts;
  throw PlacementError(fmt::format("{} is {}: the ranks that sum its gradient must be those of dp and cp, or of edp",
                                   weight.name, weight.place.to_string()));
}

bool is_summed_over_tp(Spmd held) { return held == Spmd::Replicate; }

WeightFormat weight_format(const Precision& precision, const GradientOrder& order) {
  return {.value = precision.compute,
          .master = precision.stat,
          .gradient = precision.stat,
          .wire = order.reduces_in_bf16 && order.ranks > 1 ? DType::bf16 : precision.stat,
          .state = precision.stat};
}

ReplicaGroup replica_group(const ProcessMesh& mesh, ReplicaSet set, const GradientOrder& order) {
  ReplicaGroup g{.set = set, .ranks = mesh[set], .tp = mesh.axes[size_t(Axis::tp)], .ep = {}, .order = order};
  g.ep = set == ReplicaSet::experts ? mesh.axes[size_t(Axis::ep)] : single_mesh().axes[size_t(Axis::ep)];
  g.order.ranks = g.ranks.all->size();
  g.order.rank = g.ranks.all->rank();
  g.order.shards = g.ranks.shards->size();
  if (g.order.shards == 1) g.order.zero_stage = 0;
  return g;
}

RankOf ReplicaGroup::alike(Spmd held) const {
  return held == Spmd::Shard0 || held == Spmd::Shard1 ? RankOf{} : RankOf{tp->size(), tp->rank()};
}

void ReplicaGroup::wait_sum_over_parts(const Tensor& x, Site site) const {
  for (Communicator* parts : {ranks.shards.get(), tp.get(), ep.get()}) parts->all_reduce(x, site).wait();
}

}  // namespace weft
