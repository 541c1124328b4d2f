// A backend around a backend that polls the mesh after each op, and, if asked, lends it before (CommProgress): this
// rank's communication makes progress while it computes.
#pragma once
#include <functional>

#include "weft/ops/backend_around.h"

namespace weft {

// The inner backend is borrowed.
class Polled final : public BackendAround {
 public:
  using Call = std::function<void()>;
  // `lend` may be none.
  Polled(Backend& inner, Call lend, Call poll);
  void run(const AnyOp& op) override;

 private:
  bool is_holding();
  void end_failed() const;

  Call lend_, poll_;
};

}  // namespace weft
