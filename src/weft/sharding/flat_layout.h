// Where the weights of a replica set lie in flat tensors: each unit's move, are sharded and updated whole. It touches
// neither memory nor communicators.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "weft/ops/ops.h"
#include "weft/sharding/param.h"
#include "weft/sharding/state_format.h"

namespace weft {

// The elements that two runs share; none: an empty run.
Run overlap(Run a, Run b);

// Every weight begins at a multiple of kSumLeaf. Those that decay come first, of these the linear ones; among them,
// what tensor-parallel ranks hold alike lies together. Offsets are the same on all tensor-parallel ranks, so that what
// they must sum lies in the same shards.
struct FlatLayout {
  struct Weight {
    const Param* param;
    int64_t first;
    Run run() const { return {first, param->kept_elements()}; }
  };
  struct Range {
    Run run;
    Spmd held;  // on tp
    bool decays, linear;
    bool like(const Range& r) const { return decays == r.decays && linear == r.linear; }
  };
  struct StateRun {
    int index;  // among the states of a part
    Run run;
    const Param* param = nullptr;  // of codes, the part that they are of
    size_t part = 0;
    std::optional<Levels> levels = {};
  };

  std::vector<Weight> weights = {};  // in order of `first`
  std::vector<Range> ranges = {};    // of elements that are alike, in order; padding lies between them
  int64_t size = 0;                  // elements with padding

  // The ranges of weights of one kind each, with the padding behind them: together the whole layout.
  std::vector<Range> kinds() const;
  // The runs in which no weight lies.
  std::vector<Run> gaps() const;
  // The tensors of optimizer state: of numbers, a run for the weights that follow each other and have it, with the
  // padding behind them; of codes, one for each part of a weight.
  std::vector<StateRun> state_runs(const StateFormats& formats) const;
  Run shard(RankOf r) const { return {r.rank * (size / r.size), size / r.size}; }
};

// `num_ranks`: each of so many has an equal share of the elements, a multiple of kSumLeaf.
FlatLayout flat_layout(std::vector<const Param*> weights, int64_t num_ranks);

// What a unit has of a replica set: one collective moves it.
struct FlatParam {
  std::string name;
  int64_t position = 0;             // of the unit in the whole model
  std::vector<Param*> params = {};  // ties included
  int mirrors = -1;  // the flat parameter whose tied weight's second gradient it holds; no values of its own
  FlatLayout layout = {};
  int64_t size() const { return layout.size; }
  bool has_values() const { return mirrors < 0; }
  bool is_copy() const { return params.size() == 1 && params[0]->spec().copy; }
  // The pipeline rank that has it too, or -1: it lies in a unit of its own.
  int twin() const { return has_values() && params.size() == 1 ? params[0]->spec().twin : -1; }
};

struct FlatParams {
  std::deque<FlatParam> all;
  std::vector<std::vector<int>> together;  // flat parameters that layers use at the same time

  // The flat parameters whose values or gradients a flat parameter's ties are.
  std::vector<int> owners_of(int flat) const;
  // Second gradients of tied weights lie as the first, in mirrors. Adds those of `flat`.
  void add_mirrors(int flat);
  // Elements of the buffers for those that are in use at once, the largest first; and of one for that which is on its
  // way meanwhile. `ties_stay`: the owner of a tied weight beside any other.
  std::vector<int64_t> buffer_sizes(bool ties_stay) const;
  // Holds at least one of any two that follow each other.
  int64_t largest_neighbour() const;
};

}  // namespace weft
