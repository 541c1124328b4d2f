#include "weft/ops/any_op.h"

#include "weft/ops/backend.h"
#include "weft/ops/cost.h"
#include "weft/ops/rules.h"

namespace weft {

std::string_view AnyOp::name() const {
  return visit([]<class Op>(const Op&) { return Op::kName; });
}

std::vector<Field> AnyOp::fields() const {
  return visit([](const auto& op) {
    const auto all = op.fields();
    return std::vector<Field>(all.begin(), all.end());
  });
}

std::span<const AttentionSpan> AnyOp::spans() const {
  return visit([](const auto& op) -> std::span<const AttentionSpan> {
    if constexpr (requires { op.spans; }) return op.spans;
    return {};
  });
}

OpCost AnyOp::cost() const {
  return visit([](const auto& op) { return cost_of(op); });
}

double AnyOp::flops() const {
  return visit([](const auto& op) { return flops_of(op); });
}

int64_t AnyOp::workspace_bytes(const WorkspaceModel& model) const {
  return visit([&](const auto& op) { return model.of(op); });
}

void AnyOp::check() const {
  visit([](const auto& op) { rules::check(op); });
}

}  // namespace weft
