#include "weft/sharding/state_values.h"

namespace weft {

std::vector<double> values_of_blocks(const Memory& memory, const StateBlocks& blocks) {
  std::vector<double> all(size_t(blocks.absmax.elements()));
  if (!all.empty()) for_each_value(memory, blocks.absmax, [&](int64_t i, int64_t, double x) { all[size_t(i)] = x; });
  return all;
}

}  // namespace weft
