// What codes of optimizer state stand for: for looking at runs, not for running them.
#pragma once
#include <vector>

#include "weft/device/tensor_values.h"
#include "weft/sharding/state_format.h"

namespace weft {

// The number of each block, which lies in `memory`. Blocks.
std::vector<double> values_of_blocks(const Memory& memory, const StateBlocks& blocks);

// Calls f(row, column, value) for every element of a tensor of codes, which lies in `memory`. Blocks.
template <class F>
void for_each_value(const Memory& memory, const Tensor& codes, const StateBlocks& blocks, const F& f) {
  const std::vector<double> absmax = values_of_blocks(memory, blocks);
  read_parts(memory, codes, [&](const Tensor& part, int64_t first_row) {
    for (int64_t i = 0; i < part.rows(); ++i) {
      const uint8_t* row = part.as<uint8_t>() + i * part.row_stride;
      for (int64_t j = 0; j < part.cols(); ++j) {
        const int64_t block = blocks.at.index((first_row + i) * part.cols() + j) / kCodeBlock;
        f(first_row + i, j, levels_of(blocks.levels)[row[j]] * absmax[size_t(block - blocks.at.first_block())]);
      }
    }
  });
}

}  // namespace weft
