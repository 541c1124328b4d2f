// Faults for programs that must find them.
#pragma once
#include <memory>
#include <string>

#include "weft/comm/process_mesh.h"
#include "weft/ops/backend.h"
#include "weft/ops/region_path.h"
#include "weft/train/trial.h"

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
inline std::shared_ptr<Communicator>& replicas_of(ProcessMesh& mesh) { return mesh.replicas; }

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

// A backend whose SwiGLU is off by a part in a million: in one region, on the last of several ranks.
class WrongSwiglu final : public UniformBackend<WrongSwiglu> {
 public:
  WrongSwiglu(Backend& inner, std::string region, DType dtype)
      : inner_(inner), region_(std::move(region)), dtype_(dtype) {}
  template <class Op>
  void apply(const Op& op) {
    inner_.run(op);
    if constexpr (std::is_same_v<Op, Swiglu>) {
      if (path_.text() == region_ && op.a.dtype == dtype_) disturb(op.a);
    }
  }
  void enter(std::string_view region) override {
    path_.enter(region);
    inner_.enter(region);
  }
  void leave() override {
    path_.leave();
    inner_.leave();
  }
  void wait_all() override { inner_.wait_all(); }
  bool is_holding() const override { return inner_.is_holding(); }
  Stream* issue_all() override { return inner_.issue_all(); }
  Stamp stamp() override { return inner_.stamp(); }
  int64_t take_time_ns(Stamp stamp) override { return inner_.take_time_ns(stamp); }

 private:
  void disturb(const Tensor& y) {
    inner_.wait_all();
    if (y.dtype == DType::f64)
      for (int64_t i = 0; i < y.cols(); ++i) y.as<double>()[i] *= 1 + 1e-6;
    else if (y.dtype == DType::f32)
      for (int64_t i = 0; i < y.cols(); ++i) y.as<float>()[i] *= 1.1f;
  }
  Backend& inner_;
  const std::string region_;
  const DType dtype_;
  RegionPath path_;
};

inline DecorateBackend wrong_swiglu(const std::string& region, DType dtype) {
  return [region, dtype](Backend& inner, const ProcessMesh& mesh) -> std::unique_ptr<Backend> {
    const bool last = mesh.world->size() > 1 && mesh.world->rank() == mesh.world->size() - 1;
    if (!last) return nullptr;
    return std::make_unique<WrongSwiglu>(inner, region, dtype);
  };
}

}  // namespace weft::testing
