// A copy of any op, with the host data it points to, to be compared with others and issued again.
#pragma once
#include <variant>
#include <vector>

#include "weft/ops/backend.h"

namespace weft {

class KeptOp {
 public:
  template <class Op>
  explicit KeptOp(const Op& op) : op_(without_spans(op)) {
    if constexpr (requires { op.spans; }) {
      spans_.assign(op.spans.begin(), op.spans.end());
      if (op.dropout.p == 0)
        for (AttentionSpan& span : spans_) span.sample = 0;  // which nothing depends on
    }
  }
  // Whether running the one is running the other.
  template <class Op>
  bool is(const Op& op) const {
    const Op* mine = std::get_if<Op>(&op_);
    if (mine == nullptr) return false;
    if constexpr (requires { op.spans; }) {
      if (!(*mine == without_spans(op))) return false;
      const bool by_sample = op.dropout.p != 0;
      return std::equal(spans_.begin(), spans_.end(), op.spans.begin(), op.spans.end(),
                        [&](const AttentionSpan& a, AttentionSpan b) {
                          if (!by_sample) b.sample = 0;
                          return a == b;
                        });
    } else {
      return *mine == op;
    }
  }
  // f(op), of its own type.
  template <class F>
  decltype(auto) visit(const F& f) const {
    return std::visit(
        [&](auto op) -> decltype(auto) {
          if constexpr (requires { op.spans; }) op.spans = spans_;
          return f(op);
        },
        op_);
  }
  bool operator==(const KeptOp&) const = default;
  void run(Backend& backend) const {
    visit([&](const auto& op) { backend.run(op); });
  }

 private:
  template <class Op>
  static Op without_spans(Op op) {
    if constexpr (requires { op.spans; }) op.spans = {};
    return op;
  }
  AllOps::Any op_;
  std::vector<AttentionSpan> spans_;
};

// A hash of the op's kind and its tensors' addresses; equal for equal ops.
template <class Op>
size_t place_of(const Op& op) {
  size_t place = std::hash<std::string_view>()(Op::kName);
  const auto mix = [&](uint64_t x) { place = (place ^ size_t(x)) * 0x9e3779b97f4a7c15u + (place >> 29); };
  for (const Field& f : op.fields()) {
    mix(reinterpret_cast<uintptr_t>(f.tensor->data));
    mix(uint64_t(f.tensor->elements()) << 2 | uint64_t(f.role));
  }
  return place;
}

}  // namespace weft
