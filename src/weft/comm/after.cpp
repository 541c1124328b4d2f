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
  Work all_reduce(Tensor x, Site site) override { return behind(size() > 1, x).all_reduce(x, site); }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    return behind(size() > 1 || shard.data != full.data, shard).all_gather(shard, full, site);
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    return behind(size() > 1 || shard.data != full.data, shard).reduce_scatter(full, shard, site);
  }
  Work send(Tensor x, int to, Site site) override { return behind(true, x, to).send(x, to, site); }
  Work recv(Tensor x, int from, Site site) override { return behind(true, x, from).recv(x, from, site); }

 private:
  Communicator& behind(bool moves, const Tensor& x, int peer = -1) {
    if (moves && !inner_->is_ordered(x, peer)) finish_();
    return *inner_;
  }
  std::shared_ptr<Communicator> inner_;
  const std::function<void()>& finish_;
};

}  // namespace

ProcessMesh after(const ProcessMesh& mesh, const std::function<void()>& finish) {
  ProcessMesh all = mesh;
  all.each([&](std::shared_ptr<Communicator>& ranks, const std::string&) {
    ranks = std::make_shared<After>(ranks, finish);
  });
  return all;
}

}  // namespace weft
