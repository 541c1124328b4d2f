// How an optimizer keeps its state: a value that the memory of a run, its checkpoints and its updates read.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/ops/ops.h"
#include "weft/sharding/param.h"

namespace weft {

// One tensor of state, beside a part of a weight (a matrix of its own: q of a fused qkv, one expert).
struct StateFormat {
  std::string name;  // "exp_avg"
  // What codes in 8 bits stand for, with a number for each code block of the whole part; none: the state is numbers of
  // the dtype of statistics. All tensors of state of a part are the one or the other.
  std::optional<Levels> levels = {};
  bool operator==(const StateFormat&) const = default;
};

// The tensors of state of a weight's part of so many elements, in order.
using StateFormats = std::function<std::vector<StateFormat>(const ParamSpec& weight, int64_t elements)>;

// A part of a weight as it lies in the whole weight, and the code blocks of a run of what a rank holds of it.
inline int64_t width_of(const ParamSpec& weight) { return weight.shape.elements() / weight.shape[0]; }
inline int64_t elements_of_part(const ParamSpec& weight, const HeldPart& part) {
  return part.part_rows.count * width_of(weight);
}
inline CodeBlocks code_blocks(const ParamSpec& weight, const HeldPart& part) {
  const int64_t width = width_of(weight);
  return {.origin = (part.rows.first - part.part_rows.first) * width + part.cols.first,
          .cols = part.cols.count,
          .stride = width};
}

// A run of states in codes, beside the tensors of codes themselves.
struct StateBlocks {
  Levels levels;
  CodeBlocks at;  // of the run
  Tensor absmax;  // [blocks] stat: of each block that the run touches
  // The elements [first, first + count) of n.
  StateBlocks part(Run run) const {
    const CodeBlocks there = at.from(run.first);
    return {levels, there, absmax.slice_rows(there.first_block() - at.first_block(), there.num_blocks(run.count))};
  }
};

}  // namespace weft
