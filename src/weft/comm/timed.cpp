#include "weft/comm/timed.h"

namespace weft {
namespace {

struct Meter {
  void add(const CommEvent& event) const {
    time.under_way_s += event.ended_s - event.began_s;
    if (options.events != nullptr) options.events->push_back(event);
  }
  CommTime& time;
  std::string axis;
  TimedOptions options;
};

// Calls whose times a device tells when they are settled.
struct Ledger {
  struct Entry {
    Meter meter;
    CommEvent event;
    std::shared_ptr<Work::Pending> call;
  };
  void settle() {
    for (Entry& e : std::exchange(entries, {})) {
      const auto span = e.call->take_span();
      e.event.began_s = double(span.began_ns) * 1e-9;
      e.event.waited_s = e.event.ended_s = double(span.ended_ns) * 1e-9;
      e.meter.add(e.event);
    }
  }
  std::vector<Entry> entries;
};

class TimedWork final : public Work::Pending {
 public:
  TimedWork(Work work, const Meter& meter, std::shared_ptr<Ledger> ledger, CommEvent event)
      : work_(std::move(work)), meter_(meter), ledger_(std::move(ledger)), event_(std::move(event)) {}
  void wait() override {
    const auto call = work_.pending();
    event_.waited_s = meter_.options.now_s();
    work_.wait();
    event_.ended_s = meter_.options.now_s();
    meter_.time.blocked_s += event_.ended_s - event_.waited_s;
    if (call != nullptr && call->is_stamped())
      ledger_->entries.push_back({meter_, event_, call});
    else
      meter_.add(event_);
  }

 private:
  Work work_;
  const Meter& meter_;
  std::shared_ptr<Ledger> ledger_;
  CommEvent event_;
};

class Timed final : public Communicator {
 public:
  Timed(std::shared_ptr<Communicator> inner, Meter meter, std::shared_ptr<Ledger> ledger)
      : inner_(std::move(inner)), meter_(std::move(meter)), ledger_(std::move(ledger)) {}
  int size() const override { return inner_->size(); }
  int rank() const override { return inner_->rank(); }
  bool is_dry() const override { return inner_->is_dry(); }
  bool is_ordered(const Tensor& x, int peer) const override { return inner_->is_ordered(x, peer); }
  Work all_reduce(Tensor x, Site site) override {
    return collective("all-reduce", x, [&] { return inner_->all_reduce(x, site); });
  }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    return collective("all-gather", shard, [&] { return inner_->all_gather(shard, full, site); });
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    return collective("reduce-scatter", full, [&] { return inner_->reduce_scatter(full, shard, site); });
  }
  Work send(Tensor x, int to, Site site) override {
    return measure("send", x, [&] { return inner_->send(x, to, site); });
  }
  Work recv(Tensor x, int from, Site site) override {
    return measure("receive", x, [&] { return inner_->recv(x, from, site); });
  }

 private:
  template <class F>
  Work collective(const char* op, const Tensor& x, const F& call) {
    Work work = measure(op, x, call);
    if (meter_.options.at_once) work.wait();
    return work;
  }
  // The time in the call itself and in its Work's wait counts as exposed.
  template <class F>
  Work measure(const char* op, const Tensor& x, const F& call) {
    if (size() == 1) return call();
    const double began = meter_.options.now_s();
    Work work = call();
    meter_.time.blocked_s += meter_.options.now_s() - began;
    ++meter_.time.calls;
    meter_.time.bytes += x.bytes();
    return Work(std::make_shared<TimedWork>(std::move(work), meter_, ledger_,
                                            CommEvent{meter_.axis, op, x.bytes(), began, began, began}));
  }
  std::shared_ptr<Communicator> inner_;
  Meter meter_;
  std::shared_ptr<Ledger> ledger_;
};

}  // namespace

std::vector<std::pair<std::string, double>> blocked_by_axis(const CommTimes& times) {
  std::vector<std::pair<std::string, double>> all;
  for (const auto& [axis, time] : times)
    if (time.calls > 0) all.emplace_back(axis, time.blocked_s);
  return all;
}

ProcessMesh timed(const ProcessMesh& mesh, CommTimes& times, const TimedOptions& options) {
  ProcessMesh all = mesh;
  const auto ledger = std::make_shared<Ledger>();
  all.each([&](std::shared_ptr<Communicator>& ranks, const std::string& axis) {
    ranks = std::make_shared<Timed>(ranks, Meter{times[axis], axis, options}, ledger);
  });
  if (mesh.progress)
    mesh.progress->stamp_calls([weak = std::weak_ptr(ledger)] {
      if (const auto calls = weak.lock()) calls->settle();
    });
  return all;
}

}  // namespace weft
