#include "weft/comm/local_group.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

namespace weft {

struct LocalGroup::Shared {
  explicit Shared(int size) : size(size), posted(size_t(size)) {}
  // All ranks arrive before any leaves.
  void wait_barrier() {
    std::unique_lock lock(mutex);
    const int64_t mine = epoch;
    if (++arrived == size) {
      arrived = 0;
      ++epoch;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return epoch != mine || aborted; });
    if (epoch == mine) throw CommError("a rank of this group has failed; the reason is in its own message");
  }

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Tensor> posted;
  std::map<std::pair<int, int>, std::vector<Tensor>> sent;  // (from, to), oldest first
  int arrived = 0;
  int64_t epoch = 0;
  bool aborted = false;
};

namespace {

// In pieces that stay in the first-level cache, so that every rank's memory is read once, in long runs.
template <class T, class Sum = T>
void add_ranks(const std::vector<Tensor>& from, int64_t first, const Tensor& out) {
  constexpr int64_t kPiece = 1024;
  Sum sum[kPiece];
  for (int64_t at = 0; at < out.elements(); at += kPiece) {
    const int64_t n = std::min(kPiece, out.elements() - at);
    for (size_t r = 0; r < from.size(); ++r) {
      const T* x = from[r].as<T>() + first + at;
      for (int64_t i = 0; i < n; ++i) sum[i] = r == 0 ? Sum(x[i]) : sum[i] + Sum(x[i]);
    }
    for (int64_t i = 0; i < n; ++i) out.as<T>()[at + i] = T(sum[i]);
  }
}

// out = sum over ranks, in rank order, of their elements [first, first + n). `out` may be those of one of them.
void reduce(const std::vector<Tensor>& from, int64_t first, const Tensor& out) {
  switch (out.dtype) {
    case DType::f64:
      return add_ranks<double>(from, first, out);
    case DType::f32:
      return add_ranks<float>(from, first, out);
    case DType::bf16:
      return add_ranks<bf16, float>(from, first, out);
    default:
      WEFT_CHECK(false, "no sum of {}", name_of(out.dtype));
  }
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup::Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}
  int size() const override { return shared_->size; }
  int rank() const override { return rank_; }

  Work all_reduce(Tensor x) override {
    const Tensor flat = x.reshape({x.elements()});
    share(flat, [&] {  // each rank sums its share in place, then takes the others'
      const Tensor mine = share_of(flat, rank_);
      if (mine.elements() > 0) reduce(shared_->posted, first_of_share(flat, rank_), mine);
      shared_->wait_barrier();
      for (int r = 0; r < size(); ++r) {
        const Tensor to = share_of(flat, r), from = share_of(shared_->posted[size_t(r)], r);
        if (r != rank_ && to.elements() > 0) std::memcpy(to.data, from.data, size_t(to.bytes()));
      }
    });
    return {};
  }
  Work all_gather(Tensor shard, Tensor full) override {
    WEFT_CHECK(full.elements() == shard.elements() * size(), "all-gather of {} into {}", shard.to_string(),
               full.to_string());
    share(shard, [&] {
      auto* to = static_cast<std::byte*>(full.data);
      for (const Tensor& theirs : shared_->posted) {
        if (to != theirs.data) std::memcpy(to, theirs.data, size_t(shard.bytes()));  // a shard may lie in its place
        to += shard.bytes();
      }
    });
    return {};
  }
  Work reduce_scatter(Tensor full, Tensor shard) override {
    WEFT_CHECK(full.elements() == shard.elements() * size(), "reduce-scatter of {} into {}", full.to_string(),
               shard.to_string());
    share(full, [&] { reduce(shared_->posted, rank_ * shard.elements(), shard); });
    return {};
  }
  // The receiver copies; the sender's tensor is free again when its Work has been waited on.
  Work send(Tensor x, int to) override {
    std::lock_guard lock(shared_->mutex);
    shared_->sent[{rank_, to}].push_back(x);
    shared_->changed.notify_all();
    return Work(std::make_shared<Sent>(shared_, std::pair(rank_, to), x.data));
  }
  Work recv(Tensor x, int from) override {
    std::unique_lock lock(shared_->mutex);
    auto& box = shared_->sent[{from, rank_}];
    shared_->changed.wait(lock, [&] { return !box.empty() || shared_->aborted; });
    if (box.empty()) throw CommError(fmt::format("rank {} failed before it sent to rank {}", from, rank_));
    WEFT_CHECK(box.front().bytes() == x.bytes(), "rank {} sent {}, {} expected", from, box.front().to_string(),
               x.to_string());
    std::memcpy(x.data, box.front().data, size_t(x.bytes()));
    box.erase(box.begin());
    shared_->changed.notify_all();
    return {};
  }

 private:
  class Sent final : public Work::Pending {
   public:
    Sent(std::shared_ptr<LocalGroup::Shared> shared, std::pair<int, int> box, void* data)
        : shared_(std::move(shared)), box_(box), data_(data) {}
    void wait() override {
      std::unique_lock lock(shared_->mutex);
      shared_->changed.wait(lock, [&] { return taken() || shared_->aborted; });
      if (!taken()) throw CommError(fmt::format("rank {} failed before it received", box_.second));
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
  };
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
  void share(const Tensor& mine, Read read) {
    WEFT_CHECK(mine.contiguous(), "a collective on {} with gaps", mine.to_string());
    shared_->posted[size_t(rank_)] = mine;
    shared_->wait_barrier();
    read();
    shared_->wait_barrier();
  }
  std::shared_ptr<LocalGroup::Shared> shared_;
  int rank_;
};

}  // namespace

LocalGroup::LocalGroup(int size) : shared_(std::make_shared<Shared>(size)) {
  for (int r = 0; r < size; ++r) ranks_.push_back(std::make_unique<LocalCommunicator>(shared_, r));
}
LocalGroup::~LocalGroup() = default;

Communicator& LocalGroup::rank(int r) { return *ranks_.at(size_t(r)); }

void LocalGroup::abort() {
  std::lock_guard lock(shared_->mutex);
  shared_->aborted = true;
  shared_->changed.notify_all();
}

namespace {

// Runs body(r) on a thread for each rank and joins them; the first exception calls `abort` and is rethrown.
void run_threads(int size, const std::function<void(int)>& body, const std::function<void()>& abort) {
  std::exception_ptr failure;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (...) {
        {
          std::lock_guard lock(mutex);
          if (!failure) failure = std::current_exception();
        }
        abort();
      }
    });
  }
  for (auto& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void run_local(int size, const std::function<void(Communicator&)>& body) {
  LocalGroup group(size);
  run_threads(
      size, [&](int r) { body(group.rank(r)); }, [&] { group.abort(); });
}

void run_local(const MeshSizes& sizes, const std::function<void(const ProcessMesh&)>& body) {
  std::map<std::string, std::shared_ptr<LocalGroup>> groups;
  const auto join = [&](const MeshGroup& g) {
    auto& group = groups[g.name];
    if (group == nullptr) group = std::make_shared<LocalGroup>(g.size);
    return std::shared_ptr<Communicator>(group, &group->rank(g.rank));
  };
  std::vector<ProcessMesh> meshes;
  for (int r = 0; r < sizes.world(); ++r) meshes.push_back(make_mesh(sizes, r, join));
  run_threads(
      sizes.world(), [&](int r) { body(meshes[size_t(r)]); },
      [&] {
        for (auto& [name, group] : groups) group->abort();
      });
}

}  // namespace weft
