#include "weft/comm/through_host.h"

#include <memory>
#include <utility>

namespace weft {
namespace {

// A tensor's elements, where they are and on the host.
class Copy {
 public:
  Copy(const Mover& mover, const Tensor& there)
      : mover_(mover),
        there_(there),
        bytes_(std::make_unique_for_overwrite<std::byte[]>(size_t(there.bytes()))),
        here_(bytes_.get(), there.dtype, there.shape) {
    WEFT_CHECK(there.contiguous(), "{} in a collective", there.to_string());
  }
  const Tensor& here() const { return here_; }
  void bring() const { mover_.copy(here_.data, there_.data, there_.bytes()); }
  void take_back() const { mover_.copy(there_.data, here_.data, there_.bytes()); }

 private:
  const Mover& mover_;
  Tensor there_;
  std::unique_ptr<std::byte[]> bytes_;
  Tensor here_;
};

// Keeps the tensors of the inner communicator's work alive until that work has ended.
class Returning final : public Work::Pending {
 public:
  Returning(std::shared_ptr<Copy> read, std::shared_ptr<Copy> written, Work work)
      : read_(std::move(read)), written_(std::move(written)), work_(std::move(work)) {}
  void wait() override {
    work_.wait();
    if (written_) written_->take_back();
  }

 private:
  std::shared_ptr<Copy> read_, written_;
  Work work_;
};

class ThroughHost final : public Communicator {
 public:
  ThroughHost(std::shared_ptr<Communicator> inner, const Mover& mover) : inner_(std::move(inner)), mover_(mover) {}
  int size() const override { return inner_->size(); }
  int rank() const override { return inner_->rank(); }
  bool is_dry() const override { return inner_->is_dry(); }
  Work all_reduce(Tensor x, Site site) override {
    if (stays(x)) return inner_->all_reduce(x, site);
    const auto copy = brought(x);
    return returning(nullptr, copy, inner_->all_reduce(copy->here(), site));
  }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    if (stays(full)) return inner_->all_gather(shard, full, site);
    const auto from = brought(shard), to = empty(full);
    return returning(from, to, inner_->all_gather(from->here(), to->here(), site));
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    if (stays(full)) return inner_->reduce_scatter(full, shard, site);
    const auto from = brought(full), to = empty(shard);
    return returning(from, to, inner_->reduce_scatter(from->here(), to->here(), site));
  }
  Work send(Tensor x, int to, Site site) override {
    if (stays(x)) return inner_->send(x, to, site);
    const auto copy = brought(x);
    return returning(copy, nullptr, inner_->send(copy->here(), to, site));
  }
  Work recv(Tensor x, int from, Site site) override {
    if (stays(x)) return inner_->recv(x, from, site);
    const auto copy = empty(x);
    return returning(nullptr, copy, inner_->recv(copy->here(), from, site));
  }

 private:
  bool stays(const Tensor& x) const { return x.bytes() == 0 || mover_.host_reaches(x.data); }
  std::shared_ptr<Copy> empty(const Tensor& x) const { return std::make_shared<Copy>(mover_, x); }
  std::shared_ptr<Copy> brought(const Tensor& x) const {
    auto copy = empty(x);
    copy->bring();
    return copy;
  }
  static Work returning(std::shared_ptr<Copy> read, std::shared_ptr<Copy> written, Work work) {
    return Work(std::make_shared<Returning>(std::move(read), std::move(written), std::move(work)));
  }

  std::shared_ptr<Communicator> inner_;
  const Mover& mover_;
};

class After final : public Communicator {
 public:
  After(std::shared_ptr<Communicator> inner, const std::function<void()>& finish)
      : inner_(std::move(inner)), finish_(finish) {}
  int size() const override { return inner_->size(); }
  int rank() const override { return inner_->rank(); }
  bool is_dry() const override { return inner_->is_dry(); }
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

template <class Wrapped, class What>
ProcessMesh each_as(ProcessMesh mesh, const What& what) {
  mesh.each([&](std::shared_ptr<Communicator>& ranks, const std::string&) {
    ranks = std::make_shared<Wrapped>(ranks, what);
  });
  return mesh;
}

}  // namespace

ProcessMesh through_host(const ProcessMesh& mesh, const Mover& mover) { return each_as<ThroughHost>(mesh, mover); }

ProcessMesh after(const ProcessMesh& mesh, const std::function<void()>& finish) { return each_as<After>(mesh, finish); }

}  // namespace weft
