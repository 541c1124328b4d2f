// A copy of any op, with the host data it points to, to be compared with others and issued again.
#pragma once
#include <variant>
#include <vector>

#include "weft/ops/backend.h"

namespace weft {

class KeptOp {
 public:
  explicit KeptOp(const AnyOp& op);
  // Whether running the one is running the other.
  bool is(const AnyOp& op) const;
  bool operator==(const KeptOp&) const = default;
  void run(Backend& backend) const;
  size_t place() const;  // place_of the op

 private:
  AllOps::Any op_;
  std::vector<AttentionSpan> spans_;
};

// A hash of the op's kind and its tensors' addresses; equal for equal ops.
size_t place_of(const AnyOp& op);

}  // namespace weft
