// The one interface between layers and machines: every op once. A backend that lacks one does not compile.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <variant>

#include "weft/base/error.h"
#include "weft/device/stream.h"
#include "weft/ops/ops.h"

namespace weft {

// `run` of each op. A chain, not a base for each op: a backend then has one table of virtual functions, and compiles in
// a fraction of the time.
template <class Op, class... Rest>
class BackendOf : public BackendOf<Rest...> {
 public:
  using BackendOf<Rest...>::run;
  virtual void run(const Op&) = 0;
};
template <class Op>
class BackendOf<Op> {
 public:
  virtual ~BackendOf() = default;
  virtual void run(const Op&) = 0;
};

template <class... Ops>
struct OpList {
  using Interface = BackendOf<Ops...>;
  using Any = std::variant<Ops...>;
  using AnyRef = std::variant<const Ops*...>;
};
using AllOps =
    OpList<Matmul, BiasGrad, Embed, EmbedBackward, Norm, NormApply, NormBackward, HeadNorm, HeadNormBackward, RowDots,
           Rope, LatentKeys, LatentKeysBackward, Attention, AttentionBackward, AttentionMerge, AttentionSink,
           AttentionSinkBackward, GatedUnit, GatedUnitBackward, Gelu, GeluBackward, SoftCap, SoftCapBackward, Dropout,
           CrossEntropy, CrossEntropyPart, CrossEntropyJoin, Add, Axpby, AddRow, Copy, Zero, Ones, Sum, SumSquares,
           CountNonfinite, AdamW, Sgd, Route, RouteBackward, RouterSums, ExpertLoad, GroupRows, GatherRows, SumRows,
           ScaleRows, ScaleRowsBackward, GroupedMatmul, GroupedWeightGrad>;

// The ops that a backend has issued and its device has not run. Belongs to the backend's rank; not thread-safe.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Whether the last ops are held back before they go to the device (ops/replayed.h).
  virtual bool is_holding() const { return false; }
  // Issues held ops, and returns the device's stream, to order other streams with it.
  virtual Stream* issue_all() = 0;
  // From now on, `call` runs before the host waits for the device, also within an op, and now and then: the device may
  // wait for another rank that has failed (CommProgress::settle).
  virtual void call_before_waits(std::function<void()> call) = 0;
  // The place behind all ops so far: its time is known later, and nothing waits for it.
  virtual Stamp stamp() = 0;
  // After `Backend::wait_all`, once for each stamp, in any order: when the device passed it, in nanoseconds of
  // std::chrono::steady_clock.
  virtual int64_t take_time_ns(Stamp stamp) = 0;
};

// Issues ops on the one stream it was made with, in order; a second stream is a second backend. Asynchronous where the
// device is: tensors must stay alive and unchanged until `wait_all`. Belongs to one rank; not thread-safe.
// Operands are taken as valid: the dry run has checked shapes, dtypes and placements of every op before (ops/rules.h).
class Backend : public AllOps::Interface {
 public:
  // The part of the model whose ops follow ("blocks.3.attn"), for traces and error messages. Regions nest.
  virtual void enter(std::string_view /*region*/) {}
  virtual void leave() {}
  // Blocks until everything issued has finished.
  virtual void wait_all() {}
  // The device's queue, which the backend owns; null if the backend runs its ops at once.
  virtual DeviceQueue* queue() { return nullptr; }
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

namespace detail {
// Each link hides the other ops' `run`, which TypedBackend names once: naming them in every link is slow to compile.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
template <class Self, class Base, class... Ops>
class EveryOp : public Base {
 public:
  using Base::Base;
};
template <class Self, class Base, class Op, class... Rest>
class EveryOp<Self, Base, Op, Rest...> : public EveryOp<Self, Base, Rest...> {
 public:
  using EveryOp<Self, Base, Rest...>::EveryOp;
  void run(const Op& op) override { static_cast<Self*>(this)->apply(op); }
};
#pragma GCC diagnostic pop
template <class Self, class Base, class List>
struct ForwardAll;
template <class Self, class Base, class... Ops>
struct ForwardAll<Self, Base, OpList<Ops...>> {
  using type = EveryOp<Self, Base, Ops...>;
};
}  // namespace detail

// Base of backends with a kernel for each type of op: class Ref : public TypedBackend<Ref> { template <class Op> void
// apply(const Op&); }; compiled for all of them where it is made. Where the type does not matter: ops/any_op.h.
template <class Self, class Base = Backend>
class TypedBackend : public detail::ForwardAll<Self, Base, AllOps>::type {
 public:
  using detail::ForwardAll<Self, Base, AllOps>::type::type;
  using Base::run;
};

}  // namespace weft
