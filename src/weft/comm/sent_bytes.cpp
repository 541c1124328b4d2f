#include "weft/comm/sent_bytes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

class Counted final : public Communicator {
 public:
  Counted(std::shared_ptr<Communicator> inner, std::shared_ptr<SentBytes::Count> count)
      : inner_(std::move(inner)), count_(std::move(count)) {}
  int size() const override { return inner_->size(); }
  int rank() const override { return inner_->rank(); }
  bool is_dry() const override { return inner_->is_dry(); }
  bool is_ordered(const Tensor& x, int peer) const override { return inner_->is_ordered(x, peer); }
  Work all_reduce(Tensor x, Site site) override {
    count_collective(2 * x.bytes() * (size() - 1) / size());
    return inner_->all_reduce(x, site);
  }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    count_collective(shard.bytes() * (size() - 1));
    return inner_->all_gather(shard, full, site);
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    count_collective(shard.bytes() * (size() - 1));
    return inner_->reduce_scatter(full, shard, site);
  }
  Work send(Tensor x, int to, Site site) override {
    ++count_->calls;
    count_->messages.at(size_t(to)) += x.bytes();
    return inner_->send(x, to, site);
  }
  Work recv(Tensor x, int from, Site site) override { return inner_->recv(x, from, site); }

 private:
  void count_collective(int64_t bytes) const {
    ++count_->calls;
    count_->collectives += bytes;
  }
  const std::shared_ptr<Communicator> inner_;
  const std::shared_ptr<SentBytes::Count> count_;
};

}  // namespace

ProcessMesh SentBytes::counted(const ProcessMesh& mesh) {
  sizes_ = mesh.sizes;
  counts_.clear();
  ProcessMesh all = mesh;
  all.each([&](std::shared_ptr<Communicator>& ranks, const std::string&) {
    counts_.push_back(std::make_shared<Count>(Count{.size = ranks->size()}));
    if (ranks->size() == 1) return;
    counts_.back()->messages.resize(size_t(ranks->size()));
    ranks = std::make_shared<Counted>(ranks, counts_.back());
  });
  return all;
}

void SentBytes::clear() {
  for (const auto& c : counts_) *c = {.size = c->size, .messages = std::vector<int64_t>(c->messages.size())};
}

nlohmann::json SentBytes::wait_gather(Communicator& world) const {
  // Of each communicator of several ranks: calls, bytes of collectives, bytes of messages to each of them. Whole
  // numbers below 2^53.
  std::vector<double> mine;
  for (const auto& c : counts_) {
    if (c->size == 1) continue;
    mine.insert(mine.end(), {double(c->calls), double(c->collectives)});
    mine.insert(mine.end(), c->messages.begin(), c->messages.end());
  }
  const auto length = int64_t(mine.size());
  std::vector<double> all(mine.size() * size_t(world.size()));
  world.all_gather({mine.data(), DType::f64, {length}}, {all.data(), DType::f64, {length * world.size()}}).wait();
  if (world.rank() != 0) return {};
  nlohmann::json out{{"world", world.size()}, {"axes", nlohmann::json::array()}};
  const MeshGroups groups = groups_of(sizes_);
  size_t at = 0;
  for (size_t a = 0; a < counts_.size(); ++a) {
    const auto size = size_t(counts_[a]->size);
    if (size == 1) continue;
    nlohmann::json calls, collectives, messages = nlohmann::json::array();
    for (int r = 0; r < world.size(); ++r) {
      const double* row = &all[size_t(r) * mine.size() + at];
      calls.push_back(int64_t(row[0]));
      collectives.push_back(int64_t(row[1]));
    }
    for (const std::vector<int>& group : groups.axes.at(a).groups)
      for (const int from : group)
        for (size_t to = 0; to < size; ++to)
          if (const double bytes = all[size_t(from) * mine.size() + at + 2 + to]; bytes > 0)
            messages.push_back({from, group[to], int64_t(bytes)});
    at += 2 + size;
    if (std::any_of(calls.begin(), calls.end(), [](const nlohmann::json& n) { return n != 0; }))
      out["axes"].push_back({{"axis", groups.axes[a].name},
                             {"groups", groups.axes[a].groups},
                             {"calls", calls},
                             {"collectives", collectives},
                             {"messages", messages}});
  }
  return out;
}

std::vector<int64_t> parts_for_others(int64_t bytes, int others) {
  std::vector<int64_t> parts(size_t(others), bytes / others);
  for (size_t i = 0; i < size_t(bytes % others); ++i) ++parts[i];
  return parts;
}

}  // namespace weft
