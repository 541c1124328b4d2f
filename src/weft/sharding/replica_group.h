// Over which ranks a weight is summed: read from its placement here, and nowhere else.
#pragma once
#include <memory>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/sharding/gradient_order.h"
#include "weft/sharding/param.h"

namespace weft {

// A weight's gradient is summed over the axes where the weight is Replicate, since the ranks there use it for different
// work: over dp and cp (dense weights), or over edp (experts, which ep cuts). Throws PlacementError for other
// placements.
ReplicaSet replica_set_of(const ParamSpec& weight);
// Whether it is summed over tp too, for weights and their parts that tp holds so.
bool is_summed_over_tp(Spmd held);

// What a run does with weights: a step updates them, or only reads them: as numbers, or from codes.
enum class WeightUse : uint8_t { trained, frozen, frozen_in_codes };

// In which dtype each role of a weight is kept or sent. The only place that chooses (weight_format); where it lies is
// the arena that its role is given.
struct WeightFormat {
  DType value;     // what layers read, or make it of: u8 of weights in codes
  DType master;    // what an optimizer updates, and files are read into
  DType gradient;  // sums
  DType wire;      // gradients between ranks
  DType state;     // of the optimizer
  bool rounds() const { return value != master; }
  bool narrows() const { return wire != gradient; }
};
WeightFormat weight_format(const Precision& precision, const GradientOrder& order, WeightUse use);

// The ranks that hold the weights of a set, as one of them sees it, and in which order they sum gradients.
struct ReplicaGroup {
  ReplicaSet set;
  ReplicaRanks ranks;
  // The ranks that cut the matrices, and those that have other experts (one rank for dense weights).
  std::shared_ptr<Communicator> tp, ep;
  GradientOrder order;

  CutRanks cut() const { return {.tp = {tp->size(), tp->rank()}, .ep = {ep->size(), ep->rank()}}; }
  RankOf shard() const { return {ranks.shards->size(), ranks.shards->rank()}; }
  RankOf replica() const { return {ranks.replicas->size(), ranks.replicas->rank()}; }
  // This rank among the tensor-parallel ranks that hold the same elements: one of one if tp cuts them.
  RankOf alike(Spmd held) const;
  // Sums x over the ranks that together keep the set's weights once: shards, tp and ep. Blocks.
  void wait_sum_over_keepers(const Tensor& x, Site site = Site::current()) const;
};
// `order` is the run's, whose ranks are those of dp; the group has its own ranks and shards in it.
ReplicaGroup replica_group(const ProcessMesh& mesh, ReplicaSet set, const GradientOrder& order);
// The ranks that hold dense weights alike, each as a replica of all of them: ZeRO cuts nothing.
ReplicaGroup group_without_shards(const ProcessMesh& mesh, const GradientOrder& order);

}  // namespace weft
