// Where weights, gradients and optimizer state lie, and when layers may touch them.
//
// The unit of movement is a block's weights: flat tensors, in which every weight begins on a cache line and those that
// decay come first. ZeRO is where those flat tensors are placed on dp; on one rank all of it is whole.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/device/arena.h"
#include "weft/dist/param.h"
#include "weft/dist/tree_sum.h"
#include "weft/ops/backend.h"

namespace weft {

// How the gradients of a step's micro-batches become one sum. Each data-parallel rank has a run of consecutive ones.
struct GradientOrder {
  int64_t num_micro_batches = 1;  // of one rank
  bool tree = false;  // over a fixed binary tree of micro-batches (invariant numerics), else in the order they come
  int64_t ranks = 1, rank = 0;  // data parallel
  int64_t global_micro_batches() const { return ranks * num_micro_batches; }
  LeafRun run_of(int64_t r) const { return {r * num_micro_batches, num_micro_batches}; }
  int64_t first() const { return run_of(rank).first; }  // of this rank's
  // Each use of a tied weight keeps a gradient of its own, summed last: the tree of each must not depend on the layout.
  bool separate_ties() const { return tree; }
  int64_t num_leaves() const { return tree ? global_micro_batches() : 1; }
  int64_t leaf_of(int64_t micro_batch) const { return tree ? first() + micro_batch : 0; }
  // Of gradients on one rank; the largest number of any, so that all ranks need the same memory.
  int num_buffers() const;
  bool ends_leaf(int64_t micro_batch) const { return tree || micro_batch == num_micro_batches - 1; }
};

class ParamStore {
 public:
  // Gradients are summed over the ranks of `mesh` when every micro-batch has been flushed.
  ParamStore(Precision precision, GradientOrder order, const ProcessMesh& mesh = single_mesh());
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // Construction: weights join the open unit; close_unit ends it and returns its index. References stay valid.
  Param& add(ParamSpec spec);
  Param& tie(Param& owner);  // another use of a weight, perhaps in another unit: same value, summed gradient
  int close_unit(std::string name);
  // Lays everything out, once, after construction: f32/f64 masters and compute copies, gradients, `num_states` tensors
  // of optimizer state. Arenas that only count make a dry store.
  void allocate(Arena& params, Arena& grads, Arena& states, int num_states);
  // The same without gradients and state, to run forward only.
  void allocate_values(Arena& params);

  // Values of a unit are readable until released.
  void fetch(int unit);
  void release(int unit);
  // Gradients of a unit are writable for this micro-batch until flushed; `last` when it writes no more of them.
  void open_grads(int unit, int64_t micro_batch);
  void flush(Backend& backend, int unit, int64_t micro_batch, bool last);
  // After the last micro-batch: every `grad` is the sum over all of them, of all ranks, and over ties, until
  // begin_step. Blocks.
  void finish_step(Backend& backend);
  void begin_step();

  struct Segment {               // of a unit's flat tensors: what an optimizer updates at once
    Tensor master, grad, value;  // value: none where it is the master
    std::vector<Tensor> states;
    bool decays;
  };
  std::vector<Segment> segments(int unit) const;  // grads: after finish_step

  int num_units() const { return int(units_.size()); }
  const std::string& unit_name(int unit) const { return units_[size_t(unit)].name; }
  // Weights in the order of the model, without ties.
  std::vector<Param*> params() const;
  Tensor master(const Param& p) const;        // stat dtype
  Tensor state(const Param& p, int k) const;  // stat dtype
  // Rounds masters into compute copies, after they have been written from outside.
  void masters_changed(Backend& backend);
  int64_t num_elements() const;  // of all weights, without padding
  const Precision& precision() const { return precision_; }
  const GradientOrder& order() const { return order_; }

 private:
  struct OpenLeaf {
    int64_t leaf;
    int buffer;
  };
  struct Unit {
    std::string name;
    std::vector<Param*> params = {};  // ties included
    int64_t decayed = 0, size = 0;    // elements with padding; those that decay come first
    int64_t grad_size = 0;            // with the gradients of separate ties behind
    Tensor master = {}, value = {};
    std::vector<Tensor> states = {}, buffers = {};
    std::vector<std::vector<char>> written = {};  // [buffer][parameter]: does it hold a sum yet
    TreeSum tree{1};
    std::vector<OpenLeaf> open = {};
    Work reduction = {};  // over dp
  };
  Communicator& dp() const { return mesh_[Axis::dp]; }
  Tensor gradient(const Unit& unit) const;  // the buffer that holds the sum
  void join_trees(Backend& backend, Unit& unit);
  void place(Unit& unit, bool decays);
  void allocate_unit_values(Unit& unit, Arena& params);
  void point_grads(Unit& unit, int buffer);
  void share_grads(Unit& unit, int64_t micro_batch);
  Tensor slice(const Tensor& flat, const Param& p) const;

  Precision precision_;
  GradientOrder order_;
  ProcessMesh mesh_;
  std::vector<TreeNode> all_nodes_;  // of the runs of all ranks, in order
  Tensor staging_;                   // what other ranks send of their nodes
  std::vector<std::unique_ptr<Param>> all_;
  std::vector<Param*> pending_;  // of the open unit
  std::vector<Unit> units_;
};

}  // namespace weft
