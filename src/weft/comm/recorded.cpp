#include "weft/comm/recorded.h"

#include <chrono>
#include <string_view>
#include <utility>

namespace weft {
namespace {

double steady_now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string RecordedCall::to_string() const {
  std::string_view file = site.file;
  if (const size_t at = file.rfind("weft/"); at != std::string_view::npos) file.remove_prefix(at + 5);
  return fmt::format("{} {} ({} bytes, {} of {}{}) at {}:{}", op, number, bytes, axis, size,
                     peer < 0 ? "" : fmt::format(", with its rank {}", peer), file, site.line);
}

int64_t FlightRecord::begin(RecordedCall call) {
  call.began_s = steady_now_s();
  const std::lock_guard lock(mutex_);
  call.number = next_++;
  calls_[size_t(call.number) % kCalls] = std::move(call);
  return next_ - 1;
}

// None where so many calls have come since that it is forgotten.
RecordedCall* FlightRecord::find(int64_t number) {
  RecordedCall& call = calls_[size_t(number) % kCalls];
  return call.number == number ? &call : nullptr;
}

void FlightRecord::waits(int64_t number) {
  const double now = steady_now_s();
  const std::lock_guard lock(mutex_);
  if (RecordedCall* call = find(number)) call->is = RecordedCall::Is::waited, call->waited_s = now;
}

void FlightRecord::ends(int64_t number) {
  const double now = steady_now_s();
  const std::lock_guard lock(mutex_);
  if (RecordedCall* call = find(number)) call->is = RecordedCall::Is::done, call->ended_s = now;
}

std::vector<RecordedCall> FlightRecord::last() const {
  const std::lock_guard lock(mutex_);
  std::vector<RecordedCall> calls;
  for (int64_t n = std::max<int64_t>(0, next_ - int64_t(kCalls)); n < next_; ++n)
    calls.push_back(calls_[size_t(n) % kCalls]);
  return calls;
}

namespace {

class RecordedWork final : public Work::Pending {
 public:
  RecordedWork(Work work, FlightRecord& record, int64_t number)
      : work_(std::move(work)), call_(work_.pending()), record_(record), number_(number) {}
  void wait() override {
    record_.waits(number_);
    work_.wait();
    record_.ends(number_);
  }
  bool is_stamped() const override { return call_->is_stamped(); }
  Span take_span() override { return call_->take_span(); }

 private:
  Work work_;
  std::shared_ptr<Work::Pending> call_;
  FlightRecord& record_;
  const int64_t number_;
};

class Recorded final : public Communicator {
 public:
  Recorded(std::shared_ptr<Communicator> inner, std::string axis, FlightRecord& record)
      : inner_(std::move(inner)), axis_(std::move(axis)), record_(record) {}
  int size() const override { return inner_->size(); }
  int rank() const override { return inner_->rank(); }
  bool is_dry() const override { return inner_->is_dry(); }
  bool is_ordered(const Tensor& x, int peer) const override { return inner_->is_ordered(x, peer); }
  Work all_reduce(Tensor x, Site site) override {
    return record("all-reduce", x, -1, site, [&] { return inner_->all_reduce(x, site); });
  }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    return record("all-gather", shard, -1, site, [&] { return inner_->all_gather(shard, full, site); });
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    return record("reduce-scatter", full, -1, site, [&] { return inner_->reduce_scatter(full, shard, site); });
  }
  Work send(Tensor x, int to, Site site) override {
    return record("send", x, to, site, [&] { return inner_->send(x, to, site); });
  }
  Work recv(Tensor x, int from, Site site) override {
    return record("receive", x, from, site, [&] { return inner_->recv(x, from, site); });
  }

 private:
  template <class F>
  Work record(const char* op, const Tensor& x, int peer, const Site& site, const F& call) {
    const int64_t number = record_.begin(
        {.op = op, .axis = axis_, .size = inner_->size(), .peer = peer, .bytes = x.bytes(), .site = site});
    Work work = call();
    if (work.pending() != nullptr) return Work(std::make_shared<RecordedWork>(std::move(work), record_, number));
    record_.ends(number);
    return work;
  }

  const std::shared_ptr<Communicator> inner_;
  const std::string axis_;
  FlightRecord& record_;
};

}  // namespace

ProcessMesh recorded(const ProcessMesh& mesh, FlightRecord& record) {
  ProcessMesh all = mesh;
  all.each([&](std::shared_ptr<Communicator>& ranks, const std::string& axis) {
    if (ranks->size() > 1) ranks = std::make_shared<Recorded>(ranks, axis, record);
  });
  return all;
}

}  // namespace weft
