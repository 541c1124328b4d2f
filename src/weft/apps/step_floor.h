// The least time of a step on a machine that computes as fast as in large products and moves bytes as fast as memory.
#pragma once
#include <string>

#include "weft/apps/op_table.h"

namespace weft {

// Of the ops of one kind: what they take at the machine's rates, and what they took.
struct FloorPart {
  double floor_s = 0, step_s = 0;
};

// Every op of the step counts: products and attention by their FLOP at the rate of large products, all others by the
// bytes of their operands, each once, at the bandwidth.
struct StepFloor {
  FloorPart products, attention, others;
  double total() const { return products.floor_s + attention.floor_s + others.floor_s; }
};
StepFloor floor_of(const StepParts& parts, const MachineRates& rates);  // both rates > 0

// Lines of each part and the whole, floor beside step; `step_s` is the step's time without the trace.
std::string to_table(const StepFloor& floor, double step_s, const MachineRates& rates);

}  // namespace weft
