// A backend around a backend that checks what goes in and what comes out: for finding out where a run went wrong.
#pragma once
#include <string>

#include "weft/device/memory.h"
#include "weft/ops/backend_around.h"
#include "weft/ops/rules.h"

namespace weft {

// Where the first value of a tensor is that is not finite, as "[row, column] is nan"; empty when all are. Integers are
// always finite. The tensor lies in `memory`, and nothing may be writing it. Blocks.
std::string find_nonfinite(const Memory& memory, const Tensor& t);

// Judges every op by the rules before it runs (PlacementError, CheckFailure) and, if asked, every value that it wrote.
// The inner backend is borrowed.
class Checked final : public UniformAround<Checked> {
 public:
  struct Options {
    bool finite = false;  // throw NumericsError "blocks.3.mlp: gated_unit.a [4, 17] is nan" at the first bad value
    const Memory& memory = *host_memory();  // where the operands lie
  };
  Checked(Backend& inner, Options options) : UniformAround<Checked>(inner), options_(options) {}

  template <class Op>
  void apply(const Op& op) {
    try {
      rules::check(op);
    } catch (const PlacementError& e) { throw PlacementError(path_.prefix() + e.what()); }
    inner_.run(op);
    if (options_.finite) wait_check_finite(Op::kName, op.fields());
  }

 private:
  template <class Fields>
  void wait_check_finite(std::string_view op, const Fields& fields) {
    inner_.wait_all();
    for (const Field& f : fields) {
      if (f.role == Role::in || !*f.tensor) continue;
      const std::string bad = find_nonfinite(options_.memory, *f.tensor);
      if (!bad.empty()) throw NumericsError(fmt::format("{}{}.{} {}", path_.prefix(), op, f.name, bad));
    }
  }

  Options options_;
};

}  // namespace weft
