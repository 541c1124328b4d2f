#include "weft/comm/local_group.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "weft/base/threads.h"
#include "weft/comm/local_hub.h"
#include "weft/comm/rank_sum.h"  // check_has_sum

namespace weft {
namespace {

// A collective of a group: each rank comes with its tensor; when all are there, each does its part.
struct Meeting {
  explicit Meeting(size_t size) : tensors(size), calls(size) {}
  std::vector<Tensor> tensors;
  std::vector<CommCall> calls;
  int come = 0, done = 0, gone = 0;  // ranks
};

// What one rank of a group has sent another.
struct Message {
  Tensor tensor;
  bool taken = false;
};
struct Box {
  std::deque<std::shared_ptr<Message>> messages;  // not taken yet, oldest first
  int64_t received = 0;
};

struct Group {
  Group(LocalHub& hub, const Mover& mover, int size) : hub(hub), mover(mover), world(size_t(size)) {}
  Meeting& meeting(int64_t number) { return meetings.try_emplace(number, world.size()).first->second; }
  void wake_all() const {
    for (const int r : world) hub.wake(r);
  }

  LocalHub& hub;
  const Mover& mover;
  std::vector<int> world;  // world rank of each
  std::map<int64_t, Meeting> meetings;
  std::map<std::pair<int, int>, Box> boxes;  // (from, to)
};

// Reads and writes tensors of all ranks.
using Part = std::function<void(const std::vector<Tensor>&)>;

class Collective final : public LocalHub::Operation {
 public:
  Collective(Group& group, int rank, const CommCall& call, const Tensor& mine, Part part)
      : Operation(call), group_(group), rank_(rank), mine_(mine), part_(std::move(part)) {}

  bool advance(LocalHub::Lock& lock) override {
    Meeting& all = group_.meeting(call.number);
    switch (is_) {
      case Is::away:
        return come(all);
      case Is::there:
        if (all.come < size()) return false;
        check_same_calls(all);
        group_.hub.move(lock, [&] { part_(all.tensors); });
        if (++all.done == size()) group_.wake_all();
        is_ = Is::done;
        return true;
      case Is::done:
        return all.done == size() && leave(all);
    }
    return false;
  }

 private:
  int size() const { return int(group_.world.size()); }
  bool come(Meeting& all) {
    all.tensors[size_t(rank_)] = mine_;
    all.calls[size_t(rank_)] = call;
    if (++all.come == size()) group_.wake_all();
    is_ = Is::there;
    return true;
  }
  bool leave(Meeting& all) {
    if (++all.gone == size()) group_.meetings.erase(call.number);
    return finished = true;
  }
  // Before anybody's memory is touched.
  void check_same_calls(const Meeting& all) const {
    for (size_t r = 1; r < all.calls.size(); ++r)
      if (!all.calls[0].matches(all.calls[r]))
        group_.hub.fail(fmt::format("the ranks do not agree: rank {} is in {}, rank {} in {}", group_.world[0],
                                    all.calls[0].to_string(), group_.world[r], all.calls[r].to_string()));
  }

  Group& group_;
  const int rank_;
  const Tensor mine_;
  const Part part_;
  enum class Is : uint8_t { away, there, done } is_ = Is::away;
};

class Send final : public LocalHub::Operation {
 public:
  Send(Group& group, int rank, const CommCall& call, const Tensor& x)
      : Operation(call), group_(group), rank_(rank), message_(std::make_shared<Message>(Message{x})) {}

  bool advance(LocalHub::Lock&) override {
    if (!std::exchange(sent_, true)) {
      group_.boxes[{rank_, call.peer}].messages.push_back(message_);
      group_.hub.wake(group_.world[size_t(call.peer)]);
      return true;
    }
    return finished = message_->taken;
  }

 private:
  Group& group_;
  const int rank_;
  const std::shared_ptr<Message> message_;
  bool sent_ = false;
};

// The receiver copies; the sender's tensor is free again when its Work has been waited on.
class Receive final : public LocalHub::Operation {
 public:
  // `turn`: of this rank's receives from that peer.
  Receive(Group& group, int rank, const CommCall& call, const Tensor& x, int64_t turn)
      : Operation(call), group_(group), rank_(rank), x_(x), turn_(turn) {}

  bool advance(LocalHub::Lock& lock) override {
    Box& box = group_.boxes[{call.peer, rank_}];
    if (box.received != turn_ || box.messages.empty()) return false;
    const std::shared_ptr<Message> message = box.messages.front();
    const Tensor& theirs = message->tensor;
    if (theirs.dtype != x_.dtype || theirs.elements() != x_.elements())
      group_.hub.fail(fmt::format("rank {} sent {} {}, but rank {} expects it in {}", world(call.peer),
                                  theirs.elements(), name_of(theirs.dtype), world(rank_), call.to_string()));
    group_.hub.move(lock, [&] { group_.mover.copy(x_.data, theirs.data, x_.bytes()); });
    box.messages.pop_front();
    ++box.received;
    message->taken = true;
    group_.hub.wake(world(call.peer));
    return finished = true;
  }

 private:
  int world(int rank) const { return group_.world[size_t(rank)]; }
  Group& group_;
  const int rank_;
  const Tensor x_;
  const int64_t turn_;
};

class Begun final : public Work::Pending {
 public:
  Begun(LocalHub& hub, int rank, std::shared_ptr<LocalHub::Operation> operation)
      : hub_(hub), rank_(rank), operation_(std::move(operation)) {
    hub_.begin(rank_, operation_);
  }
  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;
  ~Begun() override {
    if (!operation_->finished) hub_.abandon(rank_, *operation_);
  }
  void wait() override { hub_.wait(rank_, *operation_); }

 private:
  LocalHub& hub_;
  const int rank_;
  const std::shared_ptr<LocalHub::Operation> operation_;
};

// Where each rank's elements from `first` on lie.
template <class Pointer>
std::vector<Pointer> elements_from(const std::vector<Tensor>& ranks, int64_t first) {
  std::vector<Pointer> all;
  for (const Tensor& x : ranks) all.push_back(static_cast<std::byte*>(x.data) + first * size_of(x.dtype));
  return all;
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  int size() const override { return int(group_->world.size()); }
  int rank() const override { return rank_; }

  Work all_reduce(Tensor x, Site site) override {
    check_has_sum(x.dtype);
    const Tensor flat = x.reshape({x.elements()});
    // Each rank sums its share, in all ranks' memory.
    const Part sum_share = [this, flat](const std::vector<Tensor>& all) {
      const int64_t first = first_of_share(flat, rank_);
      group_->mover.sum_in_place(elements_from<void*>(all, first), rank_, flat.dtype,
                                 first_of_share(flat, rank_ + 1) - first);
    };
    return meet(flat, call("all-reduce", flat, site), sum_share);
  }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    WEFT_CHECK(full.elements() == shard.elements() * size(), "all-gather of {} into {}", shard.to_string(),
               full.to_string());
    const Part take_all = [this, shard, full](const std::vector<Tensor>& all) {
      auto* to = static_cast<std::byte*>(full.data);
      for (const Tensor& theirs : all) {
        if (to != theirs.data) group_->mover.copy(to, theirs.data, shard.bytes());  // a shard may lie in its place
        to += shard.bytes();
      }
    };
    return meet(shard, call("all-gather", shard, site), take_all);
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    WEFT_CHECK(full.elements() == shard.elements() * size(), "reduce-scatter of {} into {}", full.to_string(),
               shard.to_string());
    check_has_sum(full.dtype);
    const Part sum_share = [this, shard, first = rank_ * shard.elements()](const std::vector<Tensor>& all) {
      group_->mover.sum(elements_from<const void*>(all, first), shard.dtype, shard.elements(), shard.data);
    };
    return meet(full, call("reduce-scatter", full, site), sum_share);
  }
  Work send(Tensor x, int to, Site site) override {
    WEFT_CHECK(x.contiguous(), "a send of {} with gaps", x.to_string());
    return begin(std::make_shared<Send>(*group_, rank_, call("send", x, site, to), x));
  }
  Work recv(Tensor x, int from, Site site) override {
    WEFT_CHECK(x.contiguous(), "a receive into {} with gaps", x.to_string());
    return begin(std::make_shared<Receive>(*group_, rank_, call("receive", x, site, from), x, receives_[from]++));
  }

 private:
  CommCall call(const char* op, const Tensor& x, const Site& site, int peer = -1) {
    int64_t& number = peer < 0 ? collectives_ : messages_;
    return {.op = op, .number = number++, .dtype = x.dtype, .elements = x.elements(), .peer = peer, .site = site};
  }
  // Rank r's share of an all-reduce: whole cache lines.
  int64_t first_of_share(const Tensor& flat, int r) const {
    constexpr int64_t kLine = 64;
    const int64_t each = ((flat.elements() + size() - 1) / size() + kLine - 1) / kLine * kLine;
    return std::min(flat.elements(), r * each);
  }
  Work meet(const Tensor& mine, const CommCall& call, const Part& part) {
    WEFT_CHECK(mine.contiguous(), "a collective on {} with gaps", mine.to_string());
    return begin(std::make_shared<Collective>(*group_, rank_, call, mine, part));
  }
  Work begin(std::shared_ptr<LocalHub::Operation> operation) {
    return Work(std::make_shared<Begun>(group_->hub, group_->world[size_t(rank_)], std::move(operation)));
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  int64_t collectives_ = 0, messages_ = 0;
  std::map<int, int64_t> receives_;  // from each rank, so far
};

// The first exception of any rank; of one that only says that another has failed, if there is no other.
class Failure {
 public:
  void add(const std::exception_ptr& failure, bool is_consequence) {
    std::lock_guard lock(mutex_);
    std::exception_ptr& first = is_consequence ? consequence_ : cause_;
    if (!first) first = failure;
  }
  void rethrow() const {
    if (cause_) std::rethrow_exception(cause_);
    if (consequence_) std::rethrow_exception(consequence_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr cause_, consequence_;
};

// Runs body(r) on a thread for each rank and joins them.
void run_threads(LocalHub& hub, int size, const std::function<void(int)>& body) {
  Failure failure;
  const auto run = [&](int r) {
    try {
      body(r);
    } catch (const std::exception& e) {
      failure.add(std::current_exception(), dynamic_cast<const CommError*>(&e) != nullptr);
      hub.abort(fmt::format("rank {} has failed: {}", r, e.what()));
    }
    hub.ended(r);
  };
  Threads threads;
  try {
    for (int r = 0; r < size; ++r) threads.start([&run, r] { run(r); });
  } catch (const Error& e) {
    const std::string why = fmt::format("not all of {} ranks could be started as threads: {}", size, e.what());
    failure.add(std::make_exception_ptr(CommError(why)), false);
    hub.abort(why);
  }
  threads.wait_all();
  failure.rethrow();
}

}  // namespace

void run_local(int size, const std::function<void(Communicator&)>& body) {
  LocalHub hub(size);
  const auto group = std::make_shared<Group>(hub, *host_mover(), size);
  std::iota(group->world.begin(), group->world.end(), 0);
  run_threads(hub, size, [&](int r) {
    LocalCommunicator ranks(group, r);
    body(ranks);
  });
}

namespace {

class LocalProgress final : public CommProgress {
 public:
  LocalProgress(LocalHub& hub, int rank) : hub_(hub), rank_(rank) {}
  void poll() override { hub_.poll(rank_); }

 private:
  LocalHub& hub_;
  int rank_;
};

}  // namespace

void run_local(const MeshSizes& sizes, const std::function<void(const ProcessMesh&)>& body, const Mover& mover) {
  LocalHub hub(sizes.world());
  std::map<std::string, std::shared_ptr<Group>> groups;
  std::vector<ProcessMesh> meshes;
  for (int rank = 0; rank < sizes.world(); ++rank) {
    meshes.push_back(make_mesh(sizes, rank, [&](const MeshGroup& g) {
      auto& group = groups[g.name];
      if (group == nullptr) group = std::make_shared<Group>(hub, mover, g.size);
      group->world[size_t(g.rank)] = rank;
      return std::make_shared<LocalCommunicator>(group, g.rank);
    }));
    meshes.back().progress = std::make_shared<LocalProgress>(hub, rank);
  }
  run_threads(hub, sizes.world(), [&](int r) { body(meshes[size_t(r)]); });
}

}  // namespace weft
