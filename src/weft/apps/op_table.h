// Where the time of a step went, by kind of op.
#pragma once
#include <string>
#include <vector>

#include "weft/ops/traced.h"

namespace weft {

struct OpTotals {
  std::string op;
  ProductShape product = {};  // of matrix products, which are told apart by it
  int64_t count = 0;
  double s = 0;
  OpCost cost = {};
};

struct StepParts {
  std::vector<OpTotals> ops;      // the dearest first
  double step_s = 0, idle_s = 0;  // idle: of the step, in which no op ran
};
// From the events of a step that began and ended at these times. Idle is the time that no event covers: ops may run
// side by side.
StepParts parts_of_step(const std::vector<TraceEvent>& events, int64_t began_ns, int64_t ended_ns);

// What the machine was measured to reach; 0: nothing to compare with.
struct MachineRates {
  double flops = 0, bytes = 0;  // a second
};
// A line for each kind: products and attention beside the rate of products, all others beside the bandwidth.
std::string to_table(const StepParts& parts, const MachineRates& rates);

}  // namespace weft
