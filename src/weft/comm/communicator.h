// Collectives among the ranks of one mesh axis.
#pragma once
#include <memory>
#include <utility>

#include "weft/tensor/tensor.h"

namespace weft {

// A collective that has been issued. Its tensors belong to the communicator until it is waited on. If it is destroyed
// before (its rank failed), it keeps its tensors until nobody uses them; the other ranks' calls fail.
class Work {
 public:
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual void wait() = 0;  // throws CommError
    // When its device ran it (nanoseconds of std::chrono::steady_clock), if the mesh records that
    // (CommProgress::stamp_calls). Call once, after waiting for it and settling its mesh.
    struct Span {
      int64_t began_ns, ended_ns;
    };
    virtual bool is_stamped() const { return false; }
    virtual Span take_span() { return {}; }
  };
  Work() = default;  // already finished
  explicit Work(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}
  std::shared_ptr<Pending> pending() const { return pending_; }  // none: it has been waited for
  // Blocks until the collective has finished here. For ordered calls (Communicator::is_ordered) it only waits until all
  // ranks are known to make the same call; for an ordered send, not even that.
  void wait() {
    if (auto pending = std::exchange(pending_, nullptr)) pending->wait();
  }

 private:
  std::shared_ptr<Pending> pending_;
};

// The place of a call, named in errors when ranks disagree. (Stands in for std::source_location, which clang 14 lacks.)
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// The ranks of one axis. All of them issue the same collectives in the same order. Issued calls make progress while
// their rank is in a call of any communicator, or polls its mesh (comm/process_mesh.h). Reductions add in rank order,
// in the tensors' dtype (16-bit floats: in f32), so results repeat bit for bit and are equal on every rank. Tensors are
// contiguous, of the same dtype and shape and in the same kind of memory (a device's own, or any other) on every rank.
// After a CommError the communicator is dead.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;
  // Whether there are no other ranks in truth (dry_mesh): nothing is sent, and what they would send is left as it was.
  virtual bool is_dry() const { return false; }
  // Whether calls on this tensor (messages: with that rank) are ordered on its device: they run after earlier work of
  // the device and before what it is given after the wait, and no host waits. The host sees their results once it has
  // waited for the device.
  virtual bool is_ordered(const Tensor& /*x*/, int /*peer*/ = -1) const { return false; }
  // In place, sum.
  [[nodiscard]] virtual Work all_reduce(Tensor x, Site site = Site::current()) = 0;
  // Along dim 0. `shard` may lie in its place in `full`.
  [[nodiscard]] virtual Work all_gather(Tensor shard, Tensor full, Site site = Site::current()) = 0;
  // Along dim 0, sum.
  [[nodiscard]] virtual Work reduce_scatter(Tensor full, Tensor shard, Site site = Site::current()) = 0;
  [[nodiscard]] virtual Work send(Tensor x, int to, Site site = Site::current()) = 0;
  [[nodiscard]] virtual Work recv(Tensor x, int from, Site site = Site::current()) = 0;
};

// Returns when every rank has called it. Throws CommError.
inline void barrier(Communicator& ranks, Site site = Site::current()) {
  double nothing = 0;
  ranks.all_reduce({&nothing, DType::f64, {1}}, site).wait();
}

}  // namespace weft
