#include "weft/sharding/gradient_order.h"

#include <algorithm>

namespace weft {

int GradientOrder::num_buffers() const {
  if (!tree) return 1;
  if (reduces_each()) return tree_buffers(num_leaves(), {0, num_leaves()});
  int most = 1;
  for (int64_t r = 0; r < ranks; ++r) most = std::max(most, tree_buffers(num_leaves(), run_of(r)));
  return most;
}

}  // namespace weft
