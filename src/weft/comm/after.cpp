#include "weft/comm/after.h"

#include <utility>

namespace weft {
namespace {

class After final : public Communicator {
 public:
  After(std::shared_ptr<Communicator> inner, const std::function<void()>& finish)
      : inner_(std::move(inner)), finish_(finish) {}
  int size() const override { return inner_->size(); }
  int rank() const override { return inner_->rank(); }
  Work all_reduce(Tensor x, Site site) override { return finished().all_reduce(x, site); }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    return finished(shard.data != full.data).all_gather(shard, full, site);
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    return finished(shard.data != full.data).reduce_scatter(full, shard, site);
  }
  Work send(Tensor x, int to, Site site) override { return finished().send(x, to, site); }
  Work recv(Tensor x, int from, Site site) override { return finished().recv(x, from, site); }

 private:
  // `copies`: whether one rank alone has something to do.
  Communicator& finished(bool copies = false) {
    if (size() > 1 || copies) finish_();
    return *inner_;
  }
  std::shared_ptr<Communicator> inner_;
  const std::function<void()>& finish_;
};

}  // namespace

ProcessMesh after(const ProcessMesh& mesh, const std::function<void()>& finish) {
  ProcessMesh all = mesh;
  all.each([&](std::shared_ptr<Communicator>& ranks) { ranks = std::make_shared<After>(ranks, finish); });
  return all;
}

}  // namespace weft
