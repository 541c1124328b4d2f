#include "weft/ops/kept_op.h"

#include <algorithm>

namespace weft {
namespace {

template <class Op>
Op without_spans(Op op) {
  if constexpr (requires { op.spans; }) op.spans = {};
  return op;
}

// Which sample a span is of, dropout alone depends on.
bool is_by_sample(const AnyOp& op) {
  return op.visit([](const auto& o) {
    if constexpr (requires { o.dropout; }) return o.dropout.p != 0;
    return false;
  });
}

}  // namespace

KeptOp::KeptOp(const AnyOp& op)
    : op_(op.visit([]<class Op>(const Op& o) { return AllOps::Any(std::in_place_type<Op>, without_spans(o)); })),
      spans_(op.spans().begin(), op.spans().end()) {
  if (is_by_sample(op)) return;
  for (AttentionSpan& span : spans_) span.sample = 0;
}

bool KeptOp::is(const AnyOp& op) const {
  const bool same = op.visit([&]<class Op>(const Op& o) {
    const Op* mine = std::get_if<Op>(&op_);
    return mine != nullptr && *mine == without_spans(o);
  });
  if (!same) return false;
  const bool by_sample = is_by_sample(op);
  const auto spans = op.spans();
  return std::equal(spans_.begin(), spans_.end(), spans.begin(), spans.end(),
                    [&](const AttentionSpan& a, AttentionSpan b) {
                      if (!by_sample) b.sample = 0;
                      return a == b;
                    });
}

void KeptOp::run(Backend& backend) const {
  std::visit(
      [&](auto op) {
        if constexpr (requires { op.spans; }) op.spans = spans_;
        backend.run(op);
      },
      op_);
}

size_t KeptOp::place() const {
  return std::visit([](const auto& op) { return place_of(op); }, op_);
}

size_t place_of(const AnyOp& op) {
  size_t place = std::hash<std::string_view>()(op.name());
  const auto mix = [&](uint64_t x) { place = (place ^ size_t(x)) * 0x9e3779b97f4a7c15u + (place >> 29); };
  for (const Field& f : op.fields()) {
    mix(reinterpret_cast<uintptr_t>(f.tensor->data));
    mix(uint64_t(f.tensor->elements()) << 2 | uint64_t(f.role));
  }
  return place;
}

}  // namespace weft
