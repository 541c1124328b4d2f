// Advantages and returns of the tokens of sampled completions, from their rewards and the values that the sampler gave.
#pragma once
#include <span>
#include <vector>

#include "weft/data/row_order.h"
#include "weft/recipe/recipe.h"

namespace weft {

// A number for each token of one completion, or of many, one behind the other.
struct Returns {
  std::vector<double> advantages, returns;
};

// A token of the row's completion is rewarded with -kl_coef (old logp - ref logp), the last one with the row's reward
// too. d_t = reward_t + gamma V_(t+1) - V_t of old values, 0 behind the end; A_t = d_t + gamma lambda A_(t+1), and the
// return is A_t + V_t.                                                   Schulman et al. 2016, eq. 16; 2017, eq. 11
Returns returns_of(const IdRows& rows, int64_t row, const Recipe::Objective& objective);

// Those of every batch of a run; with objective.whiten_advantages, advantages less their mean, divided by
// sqrt(var + 1e-8), over all tokens of the batch (var of n - 1). Each rank computes the whole batch. Borrows `order`.
class BatchReturns {
 public:
  BatchReturns(const RowOrder& order, const Recipe& recipe, const BatchPlace& place = {});
  struct OfSequence {
    std::span<const double> advantages, returns;  // until another batch is asked for
  };
  OfSequence of(int64_t batch, int64_t sequence);

 private:
  void open(int64_t batch);

  const RowOrder& order_;
  const Recipe::Objective objective_;
  const int64_t rows_of_batch_;
  const BatchPlace place_;
  int64_t open_ = -1;         // the batch of which this is
  Returns all_;               // of its tokens
  std::vector<size_t> ends_;  // [sequence] in them
};

}  // namespace weft
