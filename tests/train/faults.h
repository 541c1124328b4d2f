// Faults for programs that must find them.
#pragma once
#include <memory>
#include <string>

#include "weft/comm/process_mesh.h"
#include "weft/ops/backend_around.h"
#include "weft/verify/trial.h"

namespace weft::testing {

// A communicator whose sums are wrong where they are asked for by a source file of this name: `doubled` twice, else not
// at all.
struct WrongSum {
  std::function<std::shared_ptr<Communicator>&(ProcessMesh&)> among;
  std::string file;
  bool doubled = false;
};

class WrongCommunicator final : public Communicator {
 public:
  WrongCommunicator(std::shared_ptr<Communicator> inner, WrongSum wrong)
      : inner_(std::move(inner)), wrong_(std::move(wrong)) {}
  int size() const override { return inner_->size(); }
  int rank() const override { return inner_->rank(); }
  Work all_reduce(Tensor x, Site site) override {
    if (size() == 1 || std::string(site.file).find(wrong_.file) == std::string::npos)
      return inner_->all_reduce(x, site);
    if (!wrong_.doubled) return {};
    inner_->all_reduce(x, site).wait();
    return inner_->all_reduce(x, site);
  }
  Work all_gather(Tensor shard, Tensor full, Site site) override { return inner_->all_gather(shard, full, site); }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    return inner_->reduce_scatter(full, shard, site);
  }
  Work send(Tensor x, int to, Site site) override { return inner_->send(x, to, site); }
  Work recv(Tensor x, int from, Site site) override { return inner_->recv(x, from, site); }

 private:
  std::shared_ptr<Communicator> inner_;
  WrongSum wrong_;
};

inline std::shared_ptr<Communicator>& tp_of(ProcessMesh& mesh) { return mesh.axes[size_t(Axis::tp)]; }
inline std::shared_ptr<Communicator>& replicas_of(ProcessMesh& mesh) { return mesh.dense.replicas; }

// Ranks as threads, with that fault.
inline RunRanks ranks_with(const WrongSum& wrong) {
  return [wrong](const MeshSizes& sizes, const Mover& mover, const std::function<void(const ProcessMesh&)>& body) {
    run_on_threads(sizes, mover, [&](const ProcessMesh& mesh) {
      ProcessMesh faulty = mesh;
      std::shared_ptr<Communicator>& ranks = wrong.among(faulty);
      ranks = std::make_shared<WrongCommunicator>(ranks, wrong);
      body(faulty);
    });
  };
}

// An operation whose result is wrong, in one region ("": outside of all) and in one type.
struct WrongOp {
  std::string region, op, field;
  DType dtype = DType::f64;
  int which = 0;  // of the operations of that name since the region was entered
  double factor = 1 + 1e-6;
  bool on_one_rank = false;  // also; else on the last of several ranks alone
  Spmd held = Spmd::None;    // on tp, that the field must be held so; None: any
};

class WrongBackend final : public BackendAround {
 public:
  WrongBackend(Backend& inner, WrongOp wrong) : BackendAround(inner), wrong_(std::move(wrong)) {}
  void enter(std::string_view region) override {
    BackendAround::enter(region);
    count_ = 0;
  }
  void run(const AnyOp& op) override {
    inner_.run(op);
    if (path_.text() != wrong_.region || op.name() != wrong_.op) return;
    if (const int which = wrong_.region.empty() ? 0 : count_++; which != wrong_.which) return;
    inner_.wait_all();
    for (const Field& f : op.fields())
      if (f.name == wrong_.field && f.tensor->dtype == wrong_.dtype && is_held(*f.tensor)) disturb(*f.tensor);
  }

 private:
  bool is_held(const Tensor& t) const { return wrong_.held == Spmd::None || t.place.tp() == wrong_.held; }
  // The first row; of a vector, the first element.
  void disturb(const Tensor& y) {
    for (int64_t i = 0; i < y.cols(); ++i) {
      if (y.dtype == DType::f64) y.as<double>()[i] *= wrong_.factor;
      if (y.dtype == DType::f32) y.as<float>()[i] *= float(wrong_.factor);
    }
  }
  const WrongOp wrong_;
  int count_ = 0;
};

inline DecorateBackend with(const WrongOp& wrong) {
  return [wrong](Backend& inner, const ProcessMesh& mesh) -> std::unique_ptr<Backend> {
    const bool last = mesh.world->size() > 1 && mesh.world->rank() == mesh.world->size() - 1;
    if (!last && !wrong.on_one_rank) return nullptr;
    return std::make_unique<WrongBackend>(inner, wrong);
  };
}
inline DecorateBackend wrong_swiglu(const std::string& region, DType dtype) {
  return with({.region = region,
               .op = "gated_unit",
               .field = "a",
               .dtype = dtype,
               .factor = dtype == DType::f64 ? 1 + 1e-6 : 1.1});
}

}  // namespace weft::testing
