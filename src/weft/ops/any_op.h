// An op of any type, and backends that treat all ops alike.
#pragma once
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/ops/backend.h"
#include "weft/ops/cost.h"

namespace weft {

// By reference: the op must outlive it. What differs from type to type is compiled once, in any_op.cpp, and not for
// each backend that asks.
class AnyOp {
 public:
  template <class Op>
  AnyOp(const Op& op) : op_(&op) {}  // NOLINT: ops convert
  std::string_view name() const;
  std::vector<Field> fields() const;             // its operands
  std::span<const AttentionSpan> spans() const;  // of attention; of others none
  void run(Backend& backend) const;
  OpCost cost() const;
  double flops() const;
  int64_t workspace_bytes(const WorkspaceModel& model) const;
  void check() const;  // rules::check

  // Null where it is an op of another type.
  template <class Op>
  const Op* as() const {
    const auto* op = std::get_if<const Op*>(&op_);
    return op != nullptr ? *op : nullptr;
  }
  // f(op), of its own type.
  template <class F>
  decltype(auto) visit(const F& f) const {
    return std::visit([&](const auto* op) -> decltype(auto) { return f(*op); }, op_);
  }

 private:
  AllOps::AnyRef op_;
};

namespace detail {
template <class Base, class... Ops>
class Alike : public Base {
 public:
  using Base::Base;

 protected:
  virtual void apply(const AnyOp& op) = 0;
};
// As EveryOp.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
template <class Base, class Op, class... Rest>
class Alike<Base, Op, Rest...> : public Alike<Base, Rest...> {
 public:
  using Alike<Base, Rest...>::Alike;
  void run(const Op& op) override { this->apply(op); }
};
#pragma GCC diagnostic pop
template <class Base, class List>
struct AlikeAll;
template <class Base, class... Ops>
struct AlikeAll<Base, OpList<Ops...>> {
  using type = Alike<Base, Ops...>;
};
}  // namespace detail

// Base of backends that treat all ops alike:
//   class Counted : public UniformBackend<> { void apply(const AnyOp& op) override; };
template <class Base = Backend>
class UniformBackend : public detail::AlikeAll<Base, AllOps>::type {
 public:
  using detail::AlikeAll<Base, AllOps>::type::type;
  using Base::run;
};

}  // namespace weft
