// Where weights, gradients and optimizer state lie, and when layers may touch them.
//
// The unit of movement is a block's weights: flat tensors, in which every weight begins at a multiple of kSumLeaf and
// those that decay come first. ZeRO is where those flat tensors are placed on dp: its first step cuts them into equal
// shards.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/device/arena.h"
#include "weft/ops/backend.h"
#include "weft/sharding/buffer_pool.h"
#include "weft/sharding/gradient_order.h"
#include "weft/sharding/param.h"

namespace weft {

class ParamStore {
 public:
  // Gradients are summed over the ranks of `mesh`.
  ParamStore(Precision precision, GradientOrder order, const ProcessMesh& mesh = single_mesh());
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // Construction: weights join the open unit; close_unit ends it and returns its index. References stay valid.
  Param& add(ParamSpec spec);
  Param& tie(Param& owner);  // another use of a weight, perhaps in another unit: same value, summed gradient
  // `position`: of the unit in the whole model, so that all stages of a pipeline count them alike.
  int close_unit(std::string name, int64_t position);
  // Says that layers use these units at the same time.
  void used_together(const std::vector<int>& units);
  // Lays everything out, once, after construction: f32/f64 masters and compute copies, gradients, and of each weight
  // `num_states` tensors of optimizer state. Arenas that only count make a dry store.
  struct Arenas {
    Arena &params, &grads, &states;
    Arena& transit;  // whole units where shards are kept: fetched values, gradients until they are reduced
  };
  using NumStates = std::function<int(const ParamSpec&)>;
  void allocate(const Arenas& arenas, const NumStates& num_states);
  // The same without gradients and state, to run forward only.
  void allocate_values(Arena& params, Arena& transit);

  // Values of a unit are readable by ops until released as often as fetched. Blocks as Work::wait does where they lie
  // on other ranks.
  void fetch(int unit);
  void release(int unit);
  // Says which unit is fetched next, so that its values may come while others are in use.
  void prefetch(int unit);
  // Gradients of a unit are writable for this micro-batch until flushed; `last` when it writes no more of them. They
  // are reduced while others are computed.
  void open_grads(Backend& backend, int unit, int64_t micro_batch);
  void flush(Backend& backend, int unit, int64_t micro_batch, bool last);
  // After the last micro-batch: gradients are the sums over all of them, of all ranks, and over ties, until begin_step
  // or an update, which may use their memory. Blocks as Work::wait does; a device that runs ops later has the sums
  // behind what it was given.
  void finish_step(Backend& backend);
  void begin_step();
  // For a dry run: as if micro-batches [first, end), alike to the one before, had been flushed.
  void pass_over(int64_t first, int64_t end);
  // After the masters have been written (by an update, from outside): rounds them into values, and gives them to the
  // ranks that keep values whole. Blocks.
  void masters_changed(Backend& backend);
  void updated();  // the same where values are rounded already

  // What this rank keeps of a unit, for an optimizer to update at once; gradients after finish_step.
  struct Segment {
    Tensor master, grad, value;  // value: none where it is the master
    std::vector<Tensor> states;
    bool decays, linear;  // of all its weights
  };
  std::vector<Segment> segments(int unit) const;
  // A run of a unit's weights that tensor-parallel ranks hold alike, and what this rank keeps of its gradient. It
  // begins at a multiple of kSumLeaf of the flat tensors, or ends before the next.
  struct GradRange {
    int64_t position;                                       // of its unit
    int64_t size;                                           // elements, here and on the ranks that shard it
    int64_t first;                                          // of the flat tensors' elements
    int64_t shard_size;                                     // of the flat tensors, a multiple of kSumLeaf
    Spmd held;                                              // on tp
    Tensor grad;                                            // of the run that is kept here
    Run kept(int64_t shard, int64_t num_shards = 1) const;  // of [0, size): what consecutive shards have
  };
  std::vector<GradRange> grad_ranges() const;
  // What this rank keeps of a weight: blocks of the whole matrix (a vector is one column), rows together.
  struct Stored {
    Run rows, cols;
    int piece;                   // that it is of
    Tensor master;               // [rows, cols]
    Tensor grad;                 // after finish_step; none where gradients are not allocated
    std::vector<Tensor> states;  // likewise
  };
  std::vector<Stored> stored(const Param& p) const;
  // Of the elements of a weight's piece on rank `tp` of its axis, row by row, those that rank `shard` of the shards
  // keeps.
  Run kept(const Param& p, size_t piece, RankOf tp, int64_t shard) const;
  // The gradient of what this rank keeps of a piece, after finish_step: [kept]. None where it keeps nothing.
  Tensor kept_gradient(const Param& p, size_t piece) const;

  // [shard]: how many elements the tensors of optimizer state have there, each. They differ where weights have
  // different numbers of states. Needs no memory.
  std::vector<std::vector<int64_t>> state_sizes(const NumStates& num_states) const;

  int num_units() const { return int(units_.size()); }
  // Weights in the order of the model, without ties: those that this stage speaks for, or also its copies of others.
  enum class Copies { without, with };
  std::vector<Param*> params(Copies copies = Copies::without) const;
  int64_t num_elements() const;                      // of all weights, whole
  const Memory& memory() const { return *memory_; }  // of all it has allocated
  const Precision& precision() const { return precision_; }
  const GradientOrder& order() const { return order_; }
  const ProcessMesh& mesh() const { return mesh_; }

 private:
  struct Open {
    int64_t leaf;
    int buffer;  // of the unit's (of the transient ones, where each micro-batch is reduced)
  };
  struct Range {
    Run run;  // of the flat tensors
    Spmd held;
    bool decays, linear;
    bool like(const Range& r) const { return decays == r.decays && linear == r.linear; }
  };
  struct State {  // a tensor of optimizer state, of those weights that have so many
    Run run;      // of the flat tensors: what is kept here
    Tensor flat;
  };
  struct Unit {
    std::string name;
    int64_t position = 0;
    std::vector<Param*> params = {};  // ties included
    int mirrors = -1;                 // the unit whose tied weights' second gradients it holds; no values of its own
    std::vector<Range> ranges = {};
    std::vector<Run> gaps = {};  // of the flat tensors: what no weight's gradient is written to
    int64_t size = 0;            // elements with padding
    Tensor master = {}, value = {}, value_shard = {};
    int fetched = 0, slot = -1;  // of the pool of values
    Work gather = {};            // of values into that slot
    std::vector<State> states = {};
    std::vector<Tensor> buffers = {};
    std::vector<std::vector<char>> written = {};  // [buffer][parameter]: does it hold a sum yet
    TreeSum tree{1};
    std::vector<Open> open = {};
    Tensor sum = {};     // [shard] where each micro-batch is reduced
    bool sums = false;   // does it hold one
    Work replicas = {};  // their sum
  };
  Communicator& dp() const { return mesh_[Axis::dp]; }
  Communicator& shards() const { return *mesh_.shards; }
  RankOf tp() const { return {mesh_[Axis::tp].size(), mesh_[Axis::tp].rank()}; }
  Unit& unit(int index) { return units_[size_t(index)]; }

  void lay_out(Unit& unit);
  void add_pool(BufferPool& pool, Arena& arena, DType dtype, bool ties_stay) const;
  void add_value_pool(Arena& transit);
  int64_t largest_neighbour() const;
  void begin_gather(Unit& unit, int slot);
  void drop_prefetched();
  void point_values(Unit& unit);
  void make_mirrors(int unit);
  static std::vector<Run> gaps_of(const Unit& unit);
  static std::vector<Range> kinds(const Unit& unit);
  static std::vector<Run> state_runs(const Unit& unit, const NumStates& num_states);
  void allocate_states(Unit& unit, Arena& states, const NumStates& num_states);
  static std::vector<Tensor> states_of(const Unit& unit, Run run);
  void allocate_gradients(Unit& unit, Arena& grads);
  Tensor slice(const Tensor& flat, const Param& p) const;
  Run shard_of(const Unit& unit) const;
  Run share_of_rank(const Unit& unit, int64_t dp_rank) const;
  static bool has_gradient(const Unit& unit) { return unit.sum || !unit.buffers.empty(); }
  Tensor shard_gradient(const Unit& unit) const;

  Open& open_leaf(Backend& backend, Unit& unit, int64_t leaf);
  void point_grads(Unit& unit, const Tensor& flat, std::vector<char>& written);
  void open_owners(Backend& backend, Unit& unit, int64_t micro_batch);
  void share_grads(Unit& unit);
  void settle(Backend& backend, Unit& unit, TreeNode node, int buffer);
  void begin_reduction(Backend& backend, Unit& unit, const Tensor& whole, int transient = -1);
  void reduce_each(Backend& backend, Unit& unit, int64_t micro_batch, int buffer);
  void wait_oldest_reduction(Backend& backend);
  void wait_reductions(Backend& backend) {
    while (!reducing_.empty()) wait_oldest_reduction(backend);
  }
  void wait_replicas();
  void exchange_leaves(Backend& backend, Unit& unit, int64_t micro_batch, const Tensor& whole);
  void join_trees(Backend& backend, Unit& unit);
  void sum_over_tp(Unit& unit);
  void add_ties(Backend& backend);
  void add_twins(Backend& backend);
  static bool is_copy(const Unit& unit) { return unit.params.size() == 1 && unit.params[0]->spec().copy; }

  Precision precision_;
  std::shared_ptr<Memory> memory_ = host_memory();
  GradientOrder order_;
  ProcessMesh mesh_;
  int num_sums_;                     // of each unit, while leaves come
  std::vector<TreeNode> all_nodes_;  // of the runs of all ranks, in order; where ranks first sum their own
  std::vector<size_t> nodes_until_;  // [rank + 1] of those, which are whose
  Tensor staging_;                   // what other ranks send of their nodes
  Tensor twins_;                     // what another stage sends of a twin's gradient
  BufferPool values_, transient_;    // fetched values; gradients that are reduced at once
  BufferPool narrow_;                // gradients that are reduced in bf16
  std::vector<std::vector<char>> transient_written_;
  std::vector<std::unique_ptr<Param>> all_;
  std::vector<Param*> pending_;  // of the open unit
  std::vector<std::vector<int>> together_;
  std::deque<Unit> units_;
  struct Reduction {  // of gradients that lie in `whole`, into this rank's shard
    Unit* unit;
    Tensor whole;
    int transient, narrow;  // buffers to give back; -1: none
    Work work;
  };
  std::deque<Reduction> reducing_;
};

}  // namespace weft
