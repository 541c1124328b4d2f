// The values of flat parameters: masters, which an optimizer updates, and what layers read of them.
#pragma once
#include "weft/ops/backend.h"
#include "weft/sharding/buffer_pool.h"
#include "weft/sharding/flat_layout.h"
#include "weft/sharding/replica_group.h"

namespace weft {

// Holds the values of one replica set. `flats` and `group` are borrowed. Flat parameters are named by their index.
class ParamValues {
 public:
  ParamValues(const FlatParams& flats, const ReplicaGroup& group, const WeightFormat& format)
      : flats_(flats), group_(group), format_(format) {}
  // Once, when all are laid out: memory for masters and values in `params`, for fetched ones in `transit`.
  void allocate(Arena& params, Arena& transit);

  // As ParamStore's, of a flat parameter and of those that its ties belong to.
  void fetch(int flat);
  void release(int flat);
  void prefetch(int flat);
  // Masters have been written: rounds them, where values have fewer digits.
  void round(Backend& backend);
  // Values that are kept here are new: gives them to the ranks that keep them whole. Blocks.
  void wait_gathered();

  // What is kept here, of the layout's shard; the value is the master's own memory where it is not rounded.
  const Tensor& master(int flat) const { return at(flat).master; }
  const Tensor& kept_value(int flat) const { return at(flat).shard; }

 private:
  struct Flat {
    Tensor master = {}, whole = {}, shard = {};
    int fetched = 0, buffer = -1;  // of the pool
    Work gather = {};              // into that buffer
  };
  bool is_cut() const { return group_.order.zero_stage == 3; }
  Flat& at(int flat) { return all_[size_t(flat)]; }
  const Flat& at(int flat) const { return all_[size_t(flat)]; }
  const FlatParam& of(int flat) const { return flats_.all[size_t(flat)]; }
  void begin_gather(int flat, int buffer);
  void drop_prefetched();
  void point(int flat);

  const FlatParams& flats_;
  const ReplicaGroup& group_;
  WeightFormat format_;
  std::vector<Flat> all_;
  BufferPool pool_;
};

}  // namespace weft
