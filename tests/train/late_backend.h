// A device that starts nothing before it must: every op waits for `wait_all`. Whoever reads or writes a tensor on the
// host without that call sees other numbers than with a backend that runs its ops at once.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "guarded_memory.h"
#include "weft/ops/backend.h"
#include "weft/train/machine.h"

namespace weft::testing {

class LateBackend final : public UniformBackend<LateBackend> {
 public:
  explicit LateBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  ~LateBackend() override = default;  // what was not waited for does not run

  template <class Op>
  void apply(const Op& op) {
    if constexpr (requires { op.spans; })  // those a device copies as it is given the op
      waiting_.push_back([this, op, spans = std::vector(op.spans.begin(), op.spans.end())] {
        Op now = op;
        now.spans = spans;
        inner_->run(now);
      });
    else
      waiting_.push_back([this, op] { inner_->run(op); });
  }
  void wait_all() override {
    const Opened opened;
    for (const auto& run : std::exchange(waiting_, {})) run();
    inner_->wait_all();
  }

 private:
  std::unique_ptr<Backend> inner_;
  std::vector<std::function<void()>> waiting_;
};

inline Machine late(Machine machine) {
  machine.late = true;
  machine.make_backend = [make = machine.make_backend](Arena& workspace) {
    return std::make_unique<LateBackend>(make(workspace));
  };
  return machine;
}

// The same with memory of its own: who touches a tensor on the host, crashes. Each of its ops takes longer.
inline Machine apart(Machine machine) {
  machine.memory = std::make_shared<GuardedMemory>();
  machine.mover = std::make_shared<GuardedMover>();
  return late(std::move(machine));
}

}  // namespace weft::testing
