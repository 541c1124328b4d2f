#include "weft/sharding/replica_group.h"

namespace weft {

ReplicaSet replica_set_of(const ParamSpec& weight) {
  const Placement data = weight.place.on_tp(Spmd::None);
  if (data == weights(Spmd::None)) return ReplicaSet::dense;
  if (data == expert_weights(Spmd::None)) return ReplicaSet::experts;
  throw PlacementError(fmt::format("{} is {}: a weight is Replicate on dp and cp, or Replicate on edp and Shard0 on ep",
                                   weight.name, weight.place.to_string()));
}

bool is_summed_over_tp(Spmd held) { return held == Spmd::Replicate; }

WeightFormat weight_format(const Precision& precision, const GradientOrder& order, WeightUse use) {
  const DType value = use == WeightUse::frozen_in_codes ? DType::u8 : precision.compute;
  return {.value = value,
          .master = use == WeightUse::trained ? precision.stat : value,
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

ReplicaGroup group_without_shards(const ProcessMesh& mesh, const GradientOrder& order) {
  ReplicaGroup g = replica_group(mesh, ReplicaSet::dense, order);
  g.ranks.replicas = g.ranks.all;
  g.ranks.shards = single_mesh().axes[size_t(Axis::dp)];
  g.order.ranks = g.order.shards = 1;
  g.order.rank = g.order.zero_stage = 0;
  g.order.unequal.clear();
  return g;
}

RankOf ReplicaGroup::alike(Spmd held) const { return is_cut(held) ? RankOf{} : RankOf{tp->size(), tp->rank()}; }

void ReplicaGroup::wait_sum_over_keepers(const Tensor& x, Site site) const {
  for (Communicator* keepers : {ranks.shards.get(), tp.get(), ep.get()}) keepers->all_reduce(x, site).wait();
}

}  // namespace weft
