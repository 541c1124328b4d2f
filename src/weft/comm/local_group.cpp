#include "weft/comm/local_group.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "weft/comm/rank_sum.h"

namespace weft {

struct LocalGroup::Shared {
  Shared(int size, std::shared_ptr<RankWatch> watch)
      : size(size), watch(std::move(watch)), world(size_t(size)), posted(size_t(size)), calls(size_t(size)) {
    std::iota(world.begin(), world.end(), 0);
  }

  // All ranks arrive before any leaves.
  void wait_barrier(int rank) {
    std::unique_lock lock(mutex);
    const int64_t mine = epoch;
    if (++arrived == size) {
      arrived = 0;
      ++epoch;
      changed.notify_all();
    }
    wait(lock, rank, calls[size_t(rank)], [&] { return epoch != mine; });
  }

  // Until `over`. Where no rank is left that could bring that about, every rank throws a CommError that says who waits
  // for what.
  template <class Over>
  void wait(std::unique_lock<std::mutex>& lock, int rank, const CommCall& call, Over over) {
    using namespace std::chrono_literals;
    constexpr int kStill = 4;  // seconds without a change on any rank
    const int me = world[size_t(rank)];
    if (over()) return;
    watch->waits(me, call);
    int64_t seen = watch->changes();
    for (int still = 0; !over() && !failed();) {
      if (changed.wait_for(lock, 1s) == std::cv_status::no_timeout) continue;
      still = watch->changes() == seen && !watch->stuck().empty() ? still + 1 : 0;
      seen = watch->changes();
      if (still == kStill && !over()) fail("the ranks wait for each other, and none can go on: " + watch->stuck());
    }
    watch->goes_on(me);
    if (!over()) throw CommError(failure);
  }

  bool failed() const { return !failure.empty(); }
  void fail(const std::string& why) {  // under the lock
    if (!failed()) failure = why;
    changed.notify_all();
  }

  const int size;
  const std::shared_ptr<RankWatch> watch;
  std::vector<int> world;  // world rank of each
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor> posted;
  std::vector<CommCall> calls;                              // the last of each rank
  std::map<std::pair<int, int>, std::vector<Tensor>> sent;  // (from, to), oldest first
  int arrived = 0;
  int64_t epoch = 0;
  std::string failure;  // empty: none
};

namespace {

// out = sum over ranks, in rank order, of their elements [first, first + n). `out` may be those of one of them.
void reduce(const std::vector<Tensor>& from, int64_t first, const Tensor& out) {
  std::vector<const void*> operands;
  for (const Tensor& x : from) operands.push_back(static_cast<std::byte*>(x.data) + first * size_of(x.dtype));
  sum_ranks(operands, out.dtype, out.elements(), out.data);
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup::Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}
  int size() const override { return shared_->size; }
  int rank() const override { return rank_; }

  Work all_reduce(Tensor x, Site site) override {
    const Tensor flat = x.reshape({x.elements()});
    share(flat, call("all-reduce", flat, site), [&] {  // each rank sums its share in place, then takes the others'
      const Tensor mine = share_of(flat, rank_);
      if (mine.elements() > 0) reduce(shared_->posted, first_of_share(flat, rank_), mine);
      shared_->wait_barrier(rank_);
      for (int r = 0; r < size(); ++r) {
        const Tensor to = share_of(flat, r), from = share_of(shared_->posted[size_t(r)], r);
        if (r != rank_ && to.elements() > 0) std::memcpy(to.data, from.data, size_t(to.bytes()));
      }
    });
    return {};
  }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    WEFT_CHECK(full.elements() == shard.elements() * size(), "all-gather of {} into {}", shard.to_string(),
               full.to_string());
    share(shard, call("all-gather", shard, site), [&] {
      auto* to = static_cast<std::byte*>(full.data);
      for (const Tensor& theirs : shared_->posted) {
        if (to != theirs.data) std::memcpy(to, theirs.data, size_t(shard.bytes()));  // a shard may lie in its place
        to += shard.bytes();
      }
    });
    return {};
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    WEFT_CHECK(full.elements() == shard.elements() * size(), "reduce-scatter of {} into {}", full.to_string(),
               shard.to_string());
    share(full, call("reduce-scatter", full, site), [&] { reduce(shared_->posted, rank_ * shard.elements(), shard); });
    return {};
  }
  // The receiver copies; the sender's tensor is free again when its Work has been waited on.
  Work send(Tensor x, int to, Site site) override {
    WEFT_CHECK(x.contiguous(), "a send of {} with gaps", x.to_string());
    std::lock_guard lock(shared_->mutex);
    shared_->sent[{rank_, to}].push_back(x);
    shared_->changed.notify_all();
    return Work(std::make_shared<Sent>(shared_, std::pair(rank_, to), x.data, call("send", x, site, to)));
  }
  Work recv(Tensor x, int from, Site site) override {
    std::unique_lock lock(shared_->mutex);
    auto& box = shared_->sent[{from, rank_}];
    const CommCall mine = call("receive", x, site, from);
    shared_->wait(lock, rank_, mine, [&] { return !box.empty(); });
    const Tensor theirs = box.front();
    if (theirs.dtype != x.dtype || theirs.elements() != x.elements()) {
      shared_->fail(fmt::format("rank {} sent {} {}, but rank {} expects it in {}", from, theirs.elements(),
                                name_of(theirs.dtype), rank_, mine.to_string()));
      throw CommError(shared_->failure);
    }
    std::memcpy(x.data, theirs.data, size_t(x.bytes()));
    box.erase(box.begin());
    shared_->changed.notify_all();
    return {};
  }

 private:
  class Sent final : public Work::Pending {
   public:
    Sent(std::shared_ptr<LocalGroup::Shared> shared, std::pair<int, int> box, void* data, const CommCall& call)
        : shared_(std::move(shared)), box_(box), data_(data), call_(call) {}
    void wait() override {
      std::unique_lock lock(shared_->mutex);
      shared_->wait(lock, box_.first, call_, [&] { return taken(); });
    }

   private:
    bool taken() const {
      for (const Tensor& t : shared_->sent[box_])
        if (t.data == data_) return false;
      return true;
    }
    std::shared_ptr<LocalGroup::Shared> shared_;
    std::pair<int, int> box_;
    void* data_;
    CommCall call_;
  };
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
  Tensor share_of(const Tensor& flat, int r) const {
    const int64_t first = first_of_share(flat, r);
    return flat.slice_rows(first, first_of_share(flat, r + 1) - first);
  }
  template <class Read>
  void share(const Tensor& mine, const CommCall& call, Read read) {
    WEFT_CHECK(mine.contiguous(), "a collective on {} with gaps", mine.to_string());
    shared_->posted[size_t(rank_)] = mine;
    shared_->calls[size_t(rank_)] = call;
    shared_->wait_barrier(rank_);
    check_same_calls();
    read();
    shared_->wait_barrier(rank_);
  }
  // Before anybody's memory is touched: every rank finds the same, and says it.
  void check_same_calls() const {
    for (int r = 1; r < size(); ++r) {
      const CommCall &first = shared_->calls[0], &other = shared_->calls[size_t(r)];
      if (!first.matches(other))
        throw CommError(fmt::format("the ranks do not agree: rank {} is in {}, rank {} in {}", shared_->world[0],
                                    first.to_string(), shared_->world[size_t(r)], other.to_string()));
    }
  }
  std::shared_ptr<LocalGroup::Shared> shared_;
  int rank_;
  int64_t collectives_ = 0, messages_ = 0;
};

}  // namespace

LocalGroup::LocalGroup(int size, std::shared_ptr<RankWatch> watch)
    : shared_(std::make_shared<Shared>(size, watch ? std::move(watch) : std::make_shared<RankWatch>(size))) {
  for (int r = 0; r < size; ++r) ranks_.push_back(std::make_unique<LocalCommunicator>(shared_, r));
}
LocalGroup::~LocalGroup() = default;

void LocalGroup::seat(int r, int world_rank) { shared_->world.at(size_t(r)) = world_rank; }

Communicator& LocalGroup::rank(int r) { return *ranks_.at(size_t(r)); }

void LocalGroup::abort(const std::string& why) {
  std::lock_guard lock(shared_->mutex);
  shared_->fail(why);
}

namespace {

// Runs body(r) on a thread for each rank and joins them; the first exception calls `abort` with its reason, and is
// rethrown.
void run_threads(RankWatch& watch, int size, const std::function<void(int)>& body,
                 const std::function<void(const std::string&)>& abort) {
  std::exception_ptr failure;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (const std::exception& e) {
        {
          std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
        }
        abort(fmt::format("rank {} has failed: {}", r, e.what()));
      }
      watch.ended(r);
    });
  }
  for (auto& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void run_local(int size, const std::function<void(Communicator&)>& body) {
  const auto watch = std::make_shared<RankWatch>(size);
  LocalGroup group(size, watch);
  run_threads(
      *watch, size, [&](int r) { body(group.rank(r)); }, [&](const std::string& why) { group.abort(why); });
}

void run_local(const MeshSizes& sizes, const std::function<void(const ProcessMesh&)>& body) {
  const auto watch = std::make_shared<RankWatch>(sizes.world());
  std::map<std::string, std::shared_ptr<LocalGroup>> groups;
  int joining = 0;
  const auto join = [&](const MeshGroup& g) {
    auto& group = groups[g.name];
    if (group == nullptr) group = std::make_shared<LocalGroup>(g.size, watch);
    group->seat(g.rank, joining);
    return std::shared_ptr<Communicator>(group, &group->rank(g.rank));
  };
  std::vector<ProcessMesh> meshes;
  for (; joining < sizes.world(); ++joining) meshes.push_back(make_mesh(sizes, joining, join));
  run_threads(
      *watch, sizes.world(), [&](int r) { body(meshes[size_t(r)]); },
      [&](const std::string& why) {
        for (auto& [name, group] : groups) group->abort(why);
      });
}

}  // namespace weft
