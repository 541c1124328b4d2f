// Which ops of a traced step each layer ran, and so what the layers of the whole model took.
#pragma once
#include <array>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/forecast/layer_trace.h"
#include "weft/ops/traced.h"
#include "weft/plan/run_plan.h"
#include "weft/step/instructions.h"

namespace weft {

// Of one rank. Hears of the instructions of a step that runs on `traced`; all of these must outlive it.
class LayerWatch {
 public:
  LayerWatch(const Model& model, const RunPlan& plan, const Traced& traced);
  void begins(const Action* action, const Instruction& instruction);
  void ends();

  // After a step of which `traced` has dropped nothing, and whose times are known: each layer's time is the median over
  // its micro-batches, from its first op to its last, on the slowest of the ranks that have it. Collective over the
  // ranks of the run; all have the result. Blocks.
  LayerTrace wait_gather(Communicator& world, const Recipe& recipe, const std::string& machine) const;

 private:
  struct Seen {
    size_t place = 0;                    // in the times of all layers
    int64_t first_op = 0, last_op = -1;  // of the trace
  };
  size_t place_of_layer(const Action& action, const Instruction& instruction) const;
  std::vector<double> medians() const;

  const Model& model_;
  const RunPlan& plan_;
  const Traced& traced_;
  std::vector<Seen> seen_ = {};
  bool watches_ = false;  // the instruction that runs
};

}  // namespace weft
