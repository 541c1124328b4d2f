#include "weft/comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "weft/comm/rank_sum.h"

namespace weft {
namespace {

using Payloads = std::span<const void* const>;

class Begun final : public Work::Pending {
 public:
  Begun(std::shared_ptr<MpiHub> hub, std::shared_ptr<Operation> operation)
      : hub_(std::move(hub)), operation_(std::move(operation)) {}
  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;
  ~Begun() override {
    if (!operation_->finished) hub_->abandon(*operation_);
  }
  void wait() override { hub_->wait(*operation_); }

 private:
  std::shared_ptr<MpiHub> hub_;
  std::shared_ptr<Operation> operation_;
};

std::byte* data_of(const Tensor& x) { return static_cast<std::byte*>(x.data); }
std::span<std::byte> bytes_of(const Tensor& x) { return {data_of(x), size_t(x.bytes())}; }

}  // namespace

Work MpiCommunicator::all_reduce(Tensor x, Site site) {
  check_has_sum(x.dtype);
  const CommCall call = collective("all-reduce", x, site);
  if (SmallCollective::fits(x.bytes(), group_))
    return begin(std::make_shared<SmallCollective>(
        group_, call,
        SmallCollective::Spec{.part = [x](int) { return bytes_of(x); },
                              .finish = [x](Payloads all) { sum_ranks(all, x.dtype, x.elements(), x.data); }}));
  std::vector<int64_t> first = line_shares(x.elements());
  std::byte* own = data_of(x) + first[size_t(rank())] * size_of(x.dtype);
  return begin(std::make_shared<MpiExchange>(
      group_, call,
      MpiExchange::Spec{.scatters = true, .gathers = true, .base = data_of(x), .first = std::move(first), .own = own}));
}

Work MpiCommunicator::all_gather(Tensor shard, Tensor full, Site site) {
  WEFT_CHECK(full.elements() == shard.elements() * size() && full.dtype == shard.dtype && full.contiguous(),
             "all-gather of {} into {}", shard.to_string(), full.to_string());
  const CommCall call = collective("all-gather", shard, site);
  if (SmallCollective::fits(shard.bytes(), group_))
    return begin(
        std::make_shared<SmallCollective>(group_, call,
                                          SmallCollective::Spec{.part = [shard](int) { return bytes_of(shard); },
                                                                .finish =
                                                                    [shard, full](Payloads all) {
                                                                      std::byte* to = data_of(full);
                                                                      for (const void* from : all) {
                                                                        if (to != from)
                                                                          std::memcpy(to, from, size_t(shard.bytes()));
                                                                        to += shard.bytes();
                                                                      }
                                                                    }}));
  return begin(std::make_shared<MpiExchange>(group_, call,
                                             MpiExchange::Spec{.scatters = false,
                                                               .gathers = true,
                                                               .base = data_of(full),
                                                               .first = equal_shares(shard.elements()),
                                                               .own = data_of(shard)}));
}

Work MpiCommunicator::reduce_scatter(Tensor full, Tensor shard, Site site) {
  WEFT_CHECK(full.elements() == shard.elements() * size() && full.dtype == shard.dtype && shard.contiguous(),
             "reduce-scatter of {} into {}", full.to_string(), shard.to_string());
  check_has_sum(full.dtype);
  const CommCall call = collective("reduce-scatter", full, site);
  if (SmallCollective::fits(shard.bytes(), group_)) {
    const auto part = [full, bytes = size_t(shard.bytes())](int r) {
      return bytes_of(full).subspan(size_t(r) * bytes, bytes);
    };
    return begin(std::make_shared<SmallCollective>(
        group_, call, SmallCollective::Spec{.part = part, .finish = [shard](Payloads all) {
                                              sum_ranks(all, shard.dtype, shard.elements(), shard.data);
                                            }}));
  }
  return begin(std::make_shared<MpiExchange>(group_, call,
                                             MpiExchange::Spec{.scatters = true,
                                                               .gathers = false,
                                                               .base = data_of(full),
                                                               .first = equal_shares(shard.elements()),
                                                               .own = data_of(shard)}));
}

Work MpiCommunicator::send(Tensor x, int to, Site site) {
  const CommCall call = message("send", x, to, group_.sent, site);
  return begin(std::make_shared<SendOperation>(group_, to, call, bytes_of(x)));
}

Work MpiCommunicator::recv(Tensor x, int from, Site site) {
  const CommCall call = message("receive", x, from, group_.received, site);
  return begin(std::make_shared<ReceiveOperation>(group_, from, call, bytes_of(x)));
}

CommCall MpiCommunicator::collective(const char* op, const Tensor& x, const Site& site) {
  WEFT_CHECK(x.contiguous(), "a collective on {} with gaps", x.to_string());
  return {.op = op, .number = group_.collectives++, .dtype = x.dtype, .elements = x.elements(), .site = site};
}

CommCall MpiCommunicator::message(const char* op, const Tensor& x, int peer, std::vector<int64_t>& numbers,
                                  const Site& site) {
  WEFT_CHECK(x.contiguous(), "a {} of {} with gaps", op, x.to_string());
  WEFT_CHECK(peer >= 0 && peer < size() && peer != rank(), "rank {} of {}: {} with rank {}", rank(), size(), op, peer);
  return {.op = op,
          .number = numbers[size_t(peer)]++,
          .dtype = x.dtype,
          .elements = x.elements(),
          .peer = group_.members[size_t(peer)],
          .site = site};
}

Work MpiCommunicator::begin(std::shared_ptr<Operation> operation) {
  hub_->begin(operation, group_.index);
  return operation->finished ? Work() : Work(std::make_shared<Begun>(hub_, std::move(operation)));
}

std::vector<int64_t> MpiCommunicator::equal_shares(int64_t each) const {
  std::vector<int64_t> first;
  for (int64_t r = 0; r <= size(); ++r) first.push_back(r * each);
  return first;
}

// Shares of whole cache lines, so that no two ranks write to the same line.
std::vector<int64_t> MpiCommunicator::line_shares(int64_t elements) const {
  constexpr int64_t kLine = 64;
  std::vector<int64_t> first = equal_shares(((elements + size() - 1) / size() + kLine - 1) / kLine * kLine);
  for (int64_t& f : first) f = std::min(f, elements);
  return first;
}

namespace {

constexpr auto kPause = std::chrono::microseconds(100);  // at 10 Gbit/s, 0.1 MB: sockets hold more

}  // namespace

MpiBeside::MpiBeside(std::shared_ptr<MpiHub> hub) : hub_(std::move(hub)), thread_([this] { run(); }) {}

MpiBeside::~MpiBeside() {
  take_back();  // so that the thread can no longer find that nothing is wanted
  ends_ = true;
  wanted_ = true;
  wanted_.notify_one();
  thread_.join();
}

void MpiBeside::lend() {
  if (hub_->idle()) {
    wanted_ = false;
    return;
  }
  own_.unlock();
  if (!wanted_.exchange(true)) wanted_.notify_one();
}

void MpiBeside::take_back() {
  if (!own_.owns_lock()) own_.lock();
}

// The rank's thread never waits for more than one look.
void MpiBeside::run() {
  for (wanted_.wait(false); !ends_; wanted_.wait(false)) {
    std::this_thread::sleep_for(kPause);
    const std::unique_lock turn(hub_mutex_, std::try_to_lock);
    if (!turn) continue;
    try {
      hub_->poll_between();
    } catch (const std::exception&) {  // the rank's next call finds the same, and tells
      return;
    }
    if (hub_->idle()) wanted_ = false;
  }
}

}  // namespace weft
