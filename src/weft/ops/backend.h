// The one interface between layers and machines.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

#include "weft/base/error.h"
#include "weft/device/device_queue.h"
#include "weft/ops/any_op.h"

namespace weft {

// The ops that a backend has issued and its device has not run. Belongs to the backend's rank; not thread-safe.
class IssuedOps {
 public:
  virtual ~IssuedOps() = default;
  // Whether the last ops are held back before they go to the device (ops/replayed.h).
  virtual bool is_holding() const { return false; }
  // Issues held ops, and returns the device's queue, to order other queues with it.
  virtual DeviceQueue* issue_all() = 0;
  // From now on, `call` runs before the host waits for the device, also within an op, and now and then: the device may
  // wait for another rank that has failed (CommProgress::settle).
  virtual void call_before_waits(std::function<void()> call) = 0;
  // The place behind all ops so far: its time is known later, and nothing waits for it.
  virtual Stamp stamp() = 0;
  // After `Backend::wait_all`, once for each stamp, in any order: when the device passed it, in nanoseconds of
  // std::chrono::steady_clock.
  virtual int64_t take_time_ns(Stamp stamp) = 0;
};

// Issues ops on the one queue it was made with, in order; a second queue is a second backend. Asynchronous where the
// device is: tensors must stay alive and unchanged until `wait_all`. Belongs to one rank; not thread-safe.
// Operands are taken as valid: the dry run has checked shapes, dtypes and placements of every op before (ops/rules.h).
//
// A backend that treats all ops alike asks the op what it needs to know. One with a kernel for each type of op visits
// it, and does not compile where it lacks one:
//   void CpuBackend::run(const AnyOp& op) { op.visit([&](const auto& o) { apply(o); }); }
class Backend {
 public:
  virtual ~Backend() = default;
  virtual void run(const AnyOp& op) = 0;  // run(Matmul{.a = x, .b = w, .out = y})
  // The part of the model whose ops follow ("blocks.3.attn"), for traces and error messages. Regions nest.
  virtual void enter(std::string_view /*region*/) {}
  virtual void leave() {}
  // Blocks until everything issued has finished.
  virtual void wait_all() {}
  // The ops that it has issued, which the backend owns; null if it runs its ops at once.
  virtual IssuedOps* issued() { return nullptr; }
};

// Names the region of a scope.
class Region {
 public:
  Region(Backend& backend, std::string_view name) : backend_(backend) { backend_.enter(name); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { backend_.leave(); }

 private:
  Backend& backend_;
};

// Temporary memory that a backend's kernels need beside their operands, in bytes, so that a dry run can plan it.
// A backend takes it from its own workspace arena, whose planned capacity is the largest of these. Thread-safe.
class WorkspaceModel {
 public:
  virtual ~WorkspaceModel() = default;
  virtual int64_t bytes(const Matmul&) const { return 0; }
  virtual int64_t bytes(const BiasGrad&) const { return 0; }
  virtual int64_t bytes(const EmbedBackward&) const { return 0; }
  virtual int64_t bytes(const NormBackward&) const { return 0; }
  virtual int64_t bytes(const HeadNormBackward&) const { return 0; }
  virtual int64_t bytes(const Attention&) const { return 0; }
  virtual int64_t bytes(const AttentionBackward&) const { return 0; }
  virtual int64_t bytes(const AttentionSinkBackward&) const { return 0; }
  virtual int64_t bytes(const CrossEntropy&) const { return 0; }
  virtual int64_t bytes(const Sum&) const { return 0; }
  virtual int64_t bytes(const SumSquares&) const { return 0; }
  virtual int64_t bytes(const CountNonfinite&) const { return 0; }
  virtual int64_t bytes(const RouterSums&) const { return 0; }
  virtual int64_t bytes(const GroupRows&) const { return 0; }
  virtual int64_t bytes(const GroupedMatmul&) const { return 0; }
  virtual int64_t bytes(const GroupedWeightGrad&) const { return 0; }
  template <class Op>
  int64_t of(const Op& op) const {  // every op; those not listed above need none
    if constexpr (requires { bytes(op); })
      return bytes(op);
    else
      return 0;
  }
};

}  // namespace weft
