#include "weft/sharding/gradient_order.h"

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"

namespace weft {

int64_t GradientOrder::global_micro_batches() const {
  if (unequal.empty()) return ranks * num_micro_batches;
  return std::accumulate(unequal.begin(), unequal.end(), int64_t{0});
}

GradientOrder GradientOrder::of_rank(int64_t dp_rank) const {
  GradientOrder order = *this;
  order.rank = dp_rank;
  if (!unequal.empty()) order.num_micro_batches = unequal.at(size_t(dp_rank));
  return order;
}

int64_t GradientOrder::busiest() const {
  return unequal.empty() ? 0 : std::max_element(unequal.begin(), unequal.end()) - unequal.begin();
}

LeafRun GradientOrder::run_of(int64_t r) const {
  if (unequal.empty()) return {r * num_micro_batches, num_micro_batches};
  WEFT_CHECK(!reduces_each() && r < int64_t(unequal.size()), "rank {} of {} with unequal micro-batches", r,
             unequal.size());
  return {std::accumulate(unequal.begin(), unequal.begin() + r, int64_t{0}), unequal[size_t(r)]};
}

GradientOrder::Holder GradientOrder::holder_of(int64_t global) const {
  if (reduces_each()) return {global % ranks, global / ranks};
  if (unequal.empty()) return {global / num_micro_batches, global % num_micro_batches};
  Holder holder{0, global};
  while (holder.micro_batch >= unequal.at(size_t(holder.rank))) holder.micro_batch -= unequal[size_t(holder.rank++)];
  return holder;
}

int64_t GradientOrder::most_nodes() const { return std::max(1, 2 * (tree_root(num_leaves()).level - 1)); }

int GradientOrder::num_buffers() const {
  if (!tree) return 1;
  if (shares_vary) return int(most_nodes()) + 1;  // those of the leaves so far, and the next leaf
  if (reduces_each()) return tree_buffers(num_leaves(), {0, num_leaves()});
  int most = 1;
  for (int64_t r = 0; r < ranks; ++r) most = std::max(most, tree_buffers(num_leaves(), run_of(r)));
  return most;
}

}  // namespace weft
