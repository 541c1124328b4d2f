#include "weft/comm/timed.h"

namespace weft {
namespace {

using Clock = std::function<double()>;

class TimedWork final : public Work::Pending {
 public:
  TimedWork(Work work, CommTime& time, const Clock& now, double began)
      : work_(std::move(work)), time_(time), now_(now), began_(began) {}
  void wait() override {
    const double waits = now_();
    work_.wait();
    const double over = now_();
    time_.blocked_s += over - waits;
    time_.under_way_s += over - began_;
  }

 private:
  Work work_;
  CommTime& time_;
  const Clock& now_;
  double began_;
};

class Timed final : public Communicator {
 public:
  Timed(std::shared_ptr<Communicator> inner, CommTime& time, Clock now)
      : inner_(std::move(inner)), time_(time), now_(std::move(now)) {}
  int size() const override { return inner_->size(); }
  int rank() const override { return inner_->rank(); }
  Work all_reduce(Tensor x, Site site) override {
    return measure(x, [&] { return inner_->all_reduce(x, site); });
  }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    return measure(shard, [&] { return inner_->all_gather(shard, full, site); });
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    return measure(full, [&] { return inner_->reduce_scatter(full, shard, site); });
  }
  Work send(Tensor x, int to, Site site) override {
    return measure(x, [&] { return inner_->send(x, to, site); });
  }
  Work recv(Tensor x, int from, Site site) override {
    return measure(x, [&] { return inner_->recv(x, from, site); });
  }

 private:
  // What the call itself takes is exposed, and what its Work waits.
  template <class F>
  Work measure(const Tensor& x, const F& call) {
    if (size() == 1) return call();
    const double began = now_();
    Work work = call();
    time_.blocked_s += now_() - began;
    ++time_.calls;
    time_.bytes += x.bytes();
    return Work(std::make_shared<TimedWork>(std::move(work), time_, now_, began));
  }
  std::shared_ptr<Communicator> inner_;
  CommTime& time_;
  Clock now_;
};

}  // namespace

ProcessMesh timed(const ProcessMesh& mesh, CommTimes& times, std::function<double()> now_s) {
  ProcessMesh all = mesh;
  const auto wrap = [&](std::shared_ptr<Communicator>& ranks, const std::string& axis) {
    ranks = std::make_shared<Timed>(ranks, times[axis], now_s);
  };
  for (size_t a = 0; a < kAxes; ++a) wrap(all.axes[a], std::string(name_of(Axis(a))));
  wrap(all.pp, "pp");
  wrap(all.pp_gradients, "pp");
  wrap(all.world, "world");
  wrap(all.shards, "shards");
  wrap(all.replicas, "replicas");
  return all;
}

}  // namespace weft
