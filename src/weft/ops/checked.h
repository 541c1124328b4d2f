// A backend around a backend that checks what goes in and what comes out: for finding out where a run went wrong.
#pragma once
#include <string>

#include "weft/device/memory.h"
#include "weft/ops/backend_around.h"

namespace weft {

// Where the first value of a tensor is that is not finite, as "[row, column] is nan"; empty when all are. Integers are
// always finite. The tensor lies in `memory`, and nothing may be writing it. Blocks.
std::string find_nonfinite(const Memory& memory, const Tensor& t);

// Judges every op by the rules before it runs (PlacementError, CheckFailure) and, if asked, every value that it wrote.
// The inner backend is borrowed.
class Checked final : public BackendAround {
 public:
  struct Options {
    bool finite = false;  // throw NumericsError "blocks.3.mlp: gated_unit.a [4, 17] is nan" at the first bad value
    const Memory& memory = *host_memory();  // where the operands lie
  };
  Checked(Backend& inner, Options options) : BackendAround(inner), options_(options) {}
  void run(const AnyOp& op) override;

 private:
  void wait_check_finite(const AnyOp& op);

  Options options_;
};

}  // namespace weft
