// Where the weights of a unit lie in flat tensors. It touches neither memory nor communicators.
#pragma once
#include <functional>
#include <vector>

#include "weft/ops/ops.h"
#include "weft/sharding/param.h"

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
    Run run() const { return {first, param->shape().elements()}; }
  };
  struct Range {
    Run run;
    Spmd held;  // on tp
    bool decays, linear;
    bool like(const Range& r) const { return decays == r.decays && linear == r.linear; }
  };
  using NumStates = std::function<int(const ParamSpec&)>;

  std::vector<Weight> weights = {};  // in order of `first`
  std::vector<Range> ranges = {};    // of elements that are alike, in order; padding lies between them
  int64_t size = 0;                  // elements with padding

  // The ranges of weights of one kind each, with the padding behind them: together the whole layout.
  std::vector<Range> kinds() const;
  // The runs in which no weight lies.
  std::vector<Run> gaps() const;
  // For each tensor of optimizer state, the weights that have it: those with more states lie before the others.
  std::vector<Run> state_runs(const NumStates& num_states) const;
  Run shard(RankOf r) const { return {r.rank * (size / r.size), size / r.size}; }
};

// `num_ranks`: each of so many has an equal share of the elements, a multiple of kSumLeaf.
FlatLayout flat_layout(std::vector<const Param*> weights, int64_t num_ranks);
// The same ranges with one weight alone: the layout of the second gradient of a tied weight.
FlatLayout alone(const FlatLayout& layout, const Param& weight);

// The run of elements of a weight's piece on ranks `at`, row by row, that one of the shards keeps. `first`: where the
// weight begins in its layout.
Run kept(const FlatLayout& layout, const Param& p, int64_t first, size_t piece, const CutRanks& at, RankOf shard);

}  // namespace weft
