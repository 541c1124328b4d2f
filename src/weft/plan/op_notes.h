// A backend that writes down the ops that it passes on to another one.
#pragma once
#include <utility>
#include <vector>

#include "weft/ops/backend_around.h"
#include "weft/plan/step_data.h"

namespace weft {

class OpNotes final : public BackendAround {
 public:
  explicit OpNotes(Backend& inner) : BackendAround(inner) {}
  std::vector<StepOp> take() { return std::exchange(ops_, {}); }
  void run(const AnyOp& op) override {
    inner_.run(op);
    ops_.push_back(step_op_of(op, path_.text()));
  }

 private:
  std::vector<StepOp> ops_;
};

}  // namespace weft
