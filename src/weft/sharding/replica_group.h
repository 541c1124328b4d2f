// Over which ranks a weight is summed: read from its placement here, and nowhere else.
#pragma once
#include <memory>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/sharding/gradient_order.h"
#include "weft/sharding/param.h"

namespace weft {

// The axes over which the gradient of a weight that is placed so is summed: those where it is Replicate, since the
// ranks there use it for different work.
std::vector<Axis> summed_over(const Placement& weight);
// The set whose ranks are these axes without tp. Throws PlacementError where there is none.
ReplicaSet replica_set_of(const ParamSpec& weight);
// Whether tensor-parallel ranks have summands of the gradient of what they hold so.
bool is_summed_over_tp(Spmd held);

// In which dtype each role of a weight is kept or sent. The only place that chooses (weight_format); where it lies is
// the arena that its role is given.
struct WeightFormat {
  DType value;     // what layers read
  DType master;    // what an optimizer updates
  DType gradient;  // sums
  DType wire;      // gradients between ranks
  DType state;     // of the optimizer
  bool rounds() const { return value != master; }
  bool narrows() const { return wire != gradient; }
};
WeightFormat weight_format(const Precision& precision, const GradientOrder& order);

// The ranks that hold the weights of a set, as one of them sees it, and in which order they sum gradients.
struct ReplicaGroup {
  ReplicaSet set;
  ReplicaRanks ranks;
  // Those that hold other parts of the same weights: of the matrices, and of the experts (one rank for dense weights).
  std::shared_ptr<Communicator> tp, ep;
  GradientOrder order;

  CutRanks cut() const { return {.tp = {tp->size(), tp->rank()}, .ep = {ep->size(), ep->rank()}}; }
  RankOf shard() const { return {ranks.shards->size(), ranks.shards->rank()}; }
  RankOf replica() const { return {ranks.replicas->size(), ranks.replicas->rank()}; }
  // Among the tensor-parallel ranks that hold the same elements of a piece: one where it is cut.
  RankOf alike(Spmd held) const;
  // x becomes its sum over all ranks that keep parts of a copy of the set's weights. Blocks.
  void wait_sum_over_parts(const Tensor& x, Site site = Site::current()) const;
};
// `order` is of the dense set without context parallelism: num_micro_batches, tree and stage are taken from it.
ReplicaGroup replica_group(const ProcessMesh& mesh, ReplicaSet set, const GradientOrder& order);

}  // namespace weft
