// A training step of a rank as data: what each instruction computes, sends and waits for.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/comm/traffic.h"
#include "weft/ops/any_op.h"
#include "weft/ops/cost.h"
#include "weft/plan/run_plan.h"
#include "weft/step/instructions.h"

namespace weft {

struct StepOp {
  struct Operand {
    std::string field;  // "out"
    Role role;
    DType dtype;
    Shape shape;  // on this rank
    bool operator==(const Operand&) const = default;
  };
  std::string region, name;  // "blocks.3/attn", "matmul"
  std::vector<Operand> operands;
  double flops = 0, bytes = 0;  // computed; read and written (ops/cost.h)
  ProductShape product = {};    // of a matrix product
  bool operator==(const StepOp&) const = default;
};
StepOp step_op_of(const AnyOp& op, std::string_view region);

// An instruction as it was run. Its transfers are what it begins: a fetch waits for its own, or for what the prefetch
// of its unit has begun; gradients may be reduced until the end of the step.
struct StepPart {
  Instruction what;
  std::string of;          // name of its layer or unit: "blocks.3"
  std::vector<int> after;  // instructions of the same action that it needs done, by their place in it
  std::vector<StepOp> ops;
  Traffic::Counts transfers;
  bool operator==(const StepPart&) const = default;
};

// Actions that are alike: the same chunk, the same instructions, the same ops and transfers.
struct StepAction {
  Do what;
  int chunk = 0;
  int64_t times = 0;  // in a step
  std::vector<StepPart> parts;
};

struct StepData {
  // What a micro-batch has before the step, forward only: scores of an objective by the model and by frozen ones, a
  // teacher's pass, the count of experts. Its transfers are those of all micro-batches, with the sums over them.
  StepPart before;
  std::vector<StepAction> actions;  // in the order of their first time
  StepPart end;                     // behind the last action: sums that are missing, norm, update
};

// A pass of a model that only runs forward, on one rank.
struct PassData {
  int64_t rows = 0;  // tokens
  std::vector<StepOp> ops = {};
  Traffic::Counts transfers = {};  // but for messages between stages
};

// The data of the rank whose step it is. Throws what planning throws.
StepData step_data_of(const RunPlan& run, const WorkspaceModel& workspace);
StepData step_data_of(const ModelSpec& model, const StepSpec& step, const Optimizer& optimizer,
                      const WorkspaceModel& workspace);

// What each instruction needs: the layers' order, values that were fetched, tensors that were received.
std::vector<std::vector<int>> needs_of(const Instructions& list, const std::vector<ModelLayer>& layers);

// "F of chunk 0, 8 times: load, fetch embed.tokens, ..."; first "before it, forward only: 212 ops a micro-batch", if
// so.
std::string to_string(const StepData& data);
// The same of what moves between ranks and memories alone: "F of chunk 0, 8 times: receive, fetch blocks.2, send"; and
// what the end sends: "the end, sums and update: dp reduce-scatter".
std::string moves_of(const StepData& data);
nlohmann::json to_json(const StepData& data);

}  // namespace weft
