// Where weights, gradients and optimizer state lie, and when layers may touch them.
//
// The unit of movement is what a block has of a replica set (replica_group.h): flat tensors (flat_layout.h), whose
// values (param_values.h) and gradients (gradient_sums.h) move together. ZeRO cuts them into equal shards.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/comm/process_mesh.h"
#include "weft/device/arena.h"
#include "weft/sharding/adapter_spec.h"
#include "weft/sharding/gradient_sums.h"
#include "weft/sharding/param_values.h"
#include "weft/sharding/shared_blocks.h"

namespace weft {

class ParamStore {
 public:
  // Gradients are summed over the ranks of `mesh`. Frozen weights have neither gradients nor state, and are kept as
  // layers read them: masters_changed, if they have been written, and then fetch and release are all that they need.
  ParamStore(Precision precision, GradientOrder order, const ProcessMesh& mesh = single_mesh(),
             WeightUse use = WeightUse::trained);
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // Says, before any weight is added, that the model's own are frozen, and which of them have an adapter.
  void adapt(AdapterSpec adapter);
  const std::optional<AdapterSpec>& adapter() const { return adapter_; }

  // Construction: weights join the open unit; close_unit ends it and returns its index. References stay valid.
  Param& add(ParamSpec spec);
  Param& tie(Param& owner);  // another use of a weight, perhaps in another unit: same value, summed gradient
  // `position`: of the unit in the whole model, so that all stages of a pipeline count them alike.
  int close_unit(std::string name, int64_t position);
  // Says that layers use these units at the same time.
  void used_together(const std::vector<int>& units);
  // Lays everything out, once, after construction: f32/f64 masters and compute copies, gradients, and the
  // optimizer state that each part of a weight has. Arenas that only count make a dry store.
  struct Arenas {
    Arena &params, &grads, &states;
    Arena& transit;  // whole units where shards are kept: fetched values, gradients until they are reduced
  };
  void allocate(const Arenas& arenas, const StateFormats& formats);
  // The same for frozen weights.
  void allocate_frozen(Arena& params, Arena& transit);
  // In place of these, for frozen weights: their values are those of `lender`, which has the same units, cut alike, and
  // outlives this. To fetch and to release them is then to do so there.
  void borrow(ParamStore& lender);

  // Values of a unit are readable by ops until released as often as fetched. Blocks as Work::wait does where they lie
  // on other ranks.
  void fetch(int unit) {
    if (lender_ != nullptr) return fetch_from_lender(unit);
    for_each_flat(unit, [](Set& set, int flat) { set.values.fetch(flat); });
  }
  void release(int unit) {
    if (lender_ != nullptr) return lender_->release(unit);
    for_each_flat(unit, [](Set& set, int flat) { set.values.release(flat); });
  }
  // Says which unit is fetched next, so that its values may come while others are in use.
  void prefetch(int unit) {
    if (lender_ != nullptr) return lender_->prefetch(unit);
    for_each_flat(unit, [](Set& set, int flat) { set.values.prefetch(flat); });
  }
  // Gradients of a unit are writable for this micro-batch until flushed; `last` when it writes no more of them. They
  // are reduced while others are computed.
  void open_grads(Backend& backend, int unit, int64_t micro_batch) {
    for_each_learning(unit, [&](Set& set, int flat) { set.sums.open(backend, flat, micro_batch); });
  }
  void flush(Backend& backend, int unit, int64_t micro_batch, bool last) {
    for_each_learning(unit, [&](Set& set, int flat) { set.sums.flush(backend, flat, micro_batch, last); });
  }
  // After the last micro-batch: gradients are the sums over all of them, of all ranks, and over ties, until begin_step
  // or an update, which may use their memory. Blocks as Work::wait does; a device that runs ops later has the sums
  // behind what it was given.
  void finish_step(Backend& backend) {
    for_each_set([&](Set& set) { set.sums.finish_step(backend); });
  }
  void begin_step() {
    for_each_set([](Set& set) { set.sums.begin_step(); });
  }
  // For a dry run: as if a unit's gradients of micro-batches [first, end), which are like the one before, had been
  // flushed.
  void pass_over(int unit, int64_t first, int64_t end) {
    for_each_learning(unit, [&](Set& set, int flat) { set.sums.pass_over(flat, first, end); });
  }
  // After the masters have been written (by an update, from outside): rounds them into values, and gives them to the
  // ranks that keep values whole. Blocks.
  void masters_changed(Backend& backend);
  void updated() {  // the same after an update, where values are rounded already
    for_each_set([](Set& set) {
      if (set.learns) set.values.wait_gathered();
    });
  }

  // Says that this weight has learnt for fewer steps than the others, as a phase began it anew: before the steps of
  // StepSize::step_here, for so many. Does nothing where the weight is not here.
  void begins_late(std::string_view name, int64_t steps);

  // What this rank keeps of a unit, for an optimizer to update at once; gradients after finish_step.
  struct UpdateRange {
    Tensor master, grad, value;       // value: none where it is the master
    std::vector<Tensor> states;       // numbers, or codes of one part of a weight
    std::vector<StateBlocks> blocks;  // of codes, for each of them; else none
    bool decays, linear;              // of all its weights
    std::optional<int64_t> late;      // of a weight that began late: its steps before those of this span
    const Param* param = nullptr;     // of codes: the weight, and which part
    size_t part = 0;
  };
  std::vector<UpdateRange> update_ranges(int unit) const;
  // A run of a unit's weights that tensor-parallel ranks hold alike, and what this rank keeps of its gradient. It
  // begins at a multiple of kSumLeaf of the flat tensors, or ends before the next.
  struct GradRange {
    const ReplicaGroup* group;
    int64_t position;                                       // of its unit
    int64_t size;                                           // elements, here and on the ranks that shard it
    int64_t first;                                          // of the flat tensors' elements
    int64_t shard_size;                                     // of the flat tensors, a multiple of kSumLeaf
    Spmd held;                                              // on tp
    Tensor grad;                                            // of the run that is kept here
    Run kept(int64_t shard, int64_t num_shards = 1) const;  // of [0, size): what consecutive shards have
  };
  std::vector<GradRange> grad_ranges() const;  // group by group
  // What this rank keeps of a weight: blocks of the whole matrix (a vector is one column), rows together.
  struct Stored {
    Run rows, cols;
    int part;                         // that it is of
    Tensor master;                    // [rows, cols]
    Tensor grad;                      // after finish_step; none where gradients are not allocated or it does not learn
    std::vector<Tensor> states;       // likewise; numbers, or codes
    std::vector<StateBlocks> blocks;  // of codes, for each of them; else none
  };
  std::vector<Stored> stored(const Param& p) const;
  // The run of elements of a weight's part on ranks `at`, row by row, that rank `shard` of the shards keeps.
  Run kept(const Param& p, size_t part, const CutRanks& at, int64_t shard) const;
  // What this rank keeps of a weight in codes: a run of its bytes (coded_weight.h), and these.
  struct StoredCodes {
    Run run;
    Tensor bytes;  // [run.count] u8
  };
  StoredCodes stored_codes(const Param& p) const;
  // The gradient of what this rank keeps of a part, after finish_step: [kept]. None where it keeps nothing.
  Tensor kept_gradient(const Param& p, size_t part) const;

  // What optimizer state takes on the rank at `place` of these ranks' tp and ep: it differs where weights have
  // different states. Needs no memory.
  struct StateBytes {
    int64_t states = 0;                // as an arena counts them
    std::vector<int64_t> maxima = {};  // of each unit: numbers of its code blocks, a second time
    auto operator<=>(const StateBytes&) const = default;
  };
  StateBytes state_bytes(const StateFormats& formats, const MeshPlace& place) const;

  // The parts of a unit's weights whose state is codes, group by group: the same list on all ranks that hold them (a
  // replica group's shards x tp), whether they keep any of a part or not.
  struct CodedState {
    const ReplicaGroup* group;
    const Param* param;
    size_t part;
    SharedBlocks shared;
  };
  std::vector<CodedState> coded_states(int unit) const;

  // The groups that sum weights here, the dense one first; and the one that this weight is of.
  std::vector<const ReplicaGroup*> groups() const;
  const ReplicaGroup& group_of(const Param& p) const { return set_of(p).group; }

  int num_units() const { return int(units_.size()); }
  const std::string& unit_name(int unit) const { return units_[size_t(unit)].name; }
  const std::vector<Param*>& params_of(int unit) const { return units_[size_t(unit)].params; }  // ties included
  // Weights in the order of the model, without ties: those that this stage speaks for, or also its copies of others.
  enum class Copies { without, with };
  std::vector<Param*> params(Copies copies = Copies::without) const;
  int64_t num_elements() const;                      // of all weights, whole
  const Memory& memory() const { return *memory_; }  // of all it has allocated
  const std::shared_ptr<Memory>& shared_memory() const { return memory_; }
  const Precision& precision() const { return precision_; }
  const GradientOrder& order() const { return order_; }
  const ProcessMesh& mesh() const { return mesh_; }

 private:
  struct State {  // a tensor of optimizer state
    FlatLayout::StateRun of;
    Run run;  // of the flat tensors: what is kept here
    Tensor flat;
    std::optional<StateBlocks> blocks;
    bool is_first_codes() const { return of.index == 0 && blocks.has_value(); }
  };
  // The weights of a replica set that learn, or that are frozen; or those that layers write; and all that is done with
  // them.
  struct Set {
    Set(const ReplicaGroup& of, const WeightFormat& how, Communicator& pipeline)
        : group(of), format(how), values(flats, group, how), sums(flats, group, how, pipeline) {}
    void states_of(int flat, Run run, std::vector<Tensor>& tensors, std::vector<StateBlocks>& blocks) const;
    void allocate_states(Arena& arena, const StateFormats& formats);
    std::vector<SharedBlocks> shared_blocks_of(const FlatParam& flat, const std::vector<State>& states) const;
    bool learns = true;
    Run shard_of(const Param& p) const { return flats.all[size_t(p.flat_)].layout.shard(group.shard()); }
    ReplicaGroup group;
    WeightFormat format;
    FlatParams flats;
    std::vector<std::vector<State>> states;         // [flat parameter]
    std::vector<std::vector<SharedBlocks>> shared;  // [flat parameter] of its parts with codes, in order
    std::vector<int> flat_of;                       // [unit]; -1: none
    ParamValues values;
    GradientSums sums;
  };
  struct Unit {
    std::string name;
    std::vector<Param*> params;  // ties included
  };
  struct AgeRun {
    Run run;
    std::optional<int64_t> late;  // UpdateRange's
  };
  // The runs of a run in which weights have learnt for equally long.
  static std::vector<AgeRun> by_age(const FlatLayout& layout, Run run);
  // In sets_: the replica sets of weights that learn, those of frozen ones, the weights that layers write, and dense
  // ones that learn and are read in the stat dtype; the replica sets of weights that are frozen in codes.
  static constexpr size_t kFrozen = std::size(kReplicaSets), kOfLayers = 2 * kFrozen, kInStat = kOfLayers + 1,
                          kInCodes = kInStat + 1;
  static size_t index_of_set(const ParamSpec& p) {
    if (p.in_codes()) return kInCodes + size_t(replica_set_of(p));
    if (p.update == Update::its_layer) return kOfLayers;
    if (p.in_stat) return kInStat;
    return size_t(replica_set_of(p)) + (p.learns() ? 0 : kFrozen);
  }
  Set& set(size_t which);
  Set& set_of(const Param& p) const { return *sets_[index_of_set(p.spec())]; }
  template <class F>
  void for_each_set(const F& f) const {
    for (const auto& set : sets_)
      if (set) f(*set);
  }
  // Calls f(set, index of what the unit has of it).
  template <class F>
  void for_each_flat(int unit, const F& f) const {
    for_each_set([&](Set& set) {
      if (set.flat_of[size_t(unit)] >= 0) f(set, set.flat_of[size_t(unit)]);
    });
  }
  template <class F>
  void for_each_learning(int unit, const F& f) const {
    for_each_flat(unit, [&](Set& set, int flat) {
      if (set.learns) f(set, flat);
    });
  }
  void allocate_values(Arena& params, Arena& transit);
  void fetch_from_lender(int unit);
  void add_flat(Set& set, std::string name, int64_t position, std::vector<Param*> params);

  Precision precision_;
  WeightUse use_;
  std::shared_ptr<Memory> memory_ = host_memory();
  GradientOrder order_;
  ProcessMesh mesh_;
  std::vector<std::unique_ptr<Param>> all_;
  std::vector<Param*> pending_;  // of the open unit
  std::vector<Unit> units_;
  std::array<std::unique_ptr<Set>, kInCodes + kFrozen> sets_;
  std::optional<AdapterSpec> adapter_;
  ParamStore* lender_ = nullptr;
};

}  // namespace weft
