// How gradients of micro-batches on many ranks become sums: over micro-batches, the ranks of a replica set, tensor
// parallel ranks, and ties.
#pragma once
#include "weft/ops/backend.h"
#include "weft/sharding/buffer_pool.h"
#include "weft/sharding/flat_layout.h"
#include "weft/sharding/replica_group.h"

namespace weft {

// Sums the gradients of one replica set. `flats`, `group` and `pipeline` (for twins) are borrowed. Flat parameters are
// named by their index.
class GradientSums {
 public:
  GradientSums(const FlatParams& flats, const ReplicaGroup& group, const WeightFormat& format, Communicator& pipeline);
  // Once, when all are laid out: memory for sums in `grads`, for what is reduced at once in `transit`.
  void allocate(Arena& grads, Arena& transit);

  // As ParamStore's, of a flat parameter.
  void open(Backend& backend, int flat, int64_t micro_batch);
  void flush(Backend& backend, int flat, int64_t micro_batch, bool last);
  void finish_step(Backend& backend);
  void begin_step();
  void pass_over(int flat, int64_t first, int64_t end);

  bool exist() const { return !all_.empty(); }
  // What is kept here of the sums, of the layout's shard; after finish_step.
  Tensor shard(int flat) const;

 private:
  struct Open {
    int64_t leaf;
    int buffer;  // of the flat parameter's (of the transient ones, where each micro-batch is reduced)
  };
  struct Flat {
    std::vector<Run> gaps = {};  // what no weight's gradient is written to
    std::vector<Tensor> buffers = {};
    std::vector<std::vector<char>> written = {};  // [buffer][parameter]: does it hold a sum yet
    TreeSum tree{1};
    std::vector<Open> open = {};
    Tensor sum = {};     // [shard] where each micro-batch is reduced
    bool sums = false;   // does it hold one
    Work replicas = {};  // their sum
  };
  struct Reduction {  // of gradients that lie in `whole`, into this rank's shard
    int flat;
    Tensor whole;
    int transient, narrow;  // buffers to give back; -1: none
    Work work;
  };
  const GradientOrder& order() const { return group_.order; }
  Communicator& ranks() const { return *group_.ranks.all; }
  Flat& at(int flat) { return all_[size_t(flat)]; }
  const Flat& at(int flat) const { return all_[size_t(flat)]; }
  const FlatParam& of(int flat) const { return flats_.all[size_t(flat)]; }
  Run shard_of(int flat) const { return of(flat).layout.shard(group_.shard()); }
  Run share_of_rank(int flat, int64_t rank) const;
  // Calls f(index) for each that has elements.
  template <class F>
  void for_each(const F& f) const {
    for (int i = 0; i < int(all_.size()); ++i)
      if (of(i).size() > 0) f(i);
  }

  Open& open_leaf(Backend& backend, int flat, int64_t leaf);
  void point(int flat, const Tensor& whole, std::vector<char>& written);
  void open_owners(Backend& backend, int flat, int64_t micro_batch);
  void point_ties(int flat);
  void settle(Backend& backend, int flat, TreeNode node, int buffer);
  void begin_reduction(Backend& backend, int flat, const Tensor& whole, int transient = -1);
  void reduce_each(Backend& backend, int flat, int64_t micro_batch, int buffer);
  void wait_oldest_reduction(Backend& backend);
  void wait_reductions(Backend& backend) {
    while (!reducing_.empty()) wait_oldest_reduction(backend);
  }
  void wait_replicas();
  void exchange_leaves(Backend& backend, int flat, int64_t micro_batch, const Tensor& whole);
  void join_trees(Backend& backend, int flat);
  void sum_over_tp(int flat);
  void add_ties(Backend& backend);
  void add_twins(Backend& backend);

  const FlatParams& flats_;
  const ReplicaGroup& group_;
  WeightFormat format_;
  Communicator& pipeline_;
  std::vector<TreeNode> all_nodes_;  // of the runs of all ranks, in order; where ranks first sum their own
  std::vector<size_t> nodes_until_;  // [rank + 1] of those, which are whose
  std::vector<Flat> all_;
  Tensor staging_;        // what other ranks send of their nodes
  Tensor twins_;          // what another stage sends of a twin's gradient
  BufferPool transient_;  // gradients that are reduced at once
  BufferPool narrow_;     // gradients in the wire's dtype
  std::vector<std::vector<char>> transient_written_;
  std::deque<Reduction> reducing_;
};

}  // namespace weft
