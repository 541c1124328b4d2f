// One step as it ran on every rank: the actions of the schedule, their instructions, the ops of these.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/ops/traced.h"
#include "weft/train/training_step.h"

namespace weft {

// Of one rank, which must outlive it. Takes memory of its own, and time for each op: for diagnosis.
class StepTrace {
 public:
  explicit StepTrace(RankRun& rank);

  // Before the step: it hears of all that `watch` will be told of; what that is told already stays. Collective: all
  // ranks begin together, and their times count from there.
  void wait_begin(TrainingStep::Watch& watch);
  void end();  // behind the step
  // The trace of all ranks, which Perfetto reads, with an event a line (docs/watch.md): at most
  // `most_events`, of which ops are left out, the shortest first. Only rank 0 has it. Collective. Blocks.
  std::string wait_gather(int64_t step, int64_t most_events = 150'000) const;

 private:
  struct Seen {
    std::optional<Action> action;  // none: behind the last one
    Instruction instruction;
    int64_t first_op = 0;  // of the trace
    int64_t began_ns = 0, ended_ns = 0;
  };
  struct Slice {
    int track;
    std::string name, kind;
    int64_t began_ns, ended_ns, micro_batch;  // -1: of none
  };
  std::vector<Slice> slices(size_t most) const;
  std::vector<Slice> ops() const;
  std::string name_of_instruction(const Seen& seen) const;
  int64_t wait_common_moment() const;

  RankRun& rank_;
  Traced traced_;
  std::vector<Seen> seen_;
  int64_t origin_ns_ = 0, ended_ns_ = 0;
};

}  // namespace weft
