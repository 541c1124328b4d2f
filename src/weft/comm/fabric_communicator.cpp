#include "weft/comm/fabric_communicator.h"

#include <algorithm>
#include <cstring>

#include "weft/comm/chunked.h"
#include "weft/comm/rank_sum.h"

namespace weft {
namespace {

// A description of a call, for the other ranks. Sent as raw memory.
struct Card {
  int64_t turn = 0, elements = 0;  // among all calls of the lane
  int32_t dtype = 0, line = 0;
  char op[16] = "", file[64] = "";  // its end

  static Card of(const CommCall& call, int64_t turn) {
    Card c{.turn = turn, .elements = call.elements, .dtype = int32_t(call.dtype), .line = call.site.line};
    const std::string_view op = call.op, file = call.site.file;
    op.copy(c.op, std::min(op.size(), sizeof c.op - 1));
    const size_t length = std::min(file.size(), sizeof c.file - 1);
    file.copy(c.file, length, file.size() - length);
    return c;
  }
  bool agrees(const Card& other) const {
    return turn == other.turn && elements == other.elements && dtype == other.dtype && std::strcmp(op, other.op) == 0;
  }
  std::string to_string() const {
    const CommCall call{
        .op = op, .number = turn, .dtype = DType(dtype), .elements = elements, .site = {.file = file, .line = line}};
    return call.to_string();
  }
};
Tensor tensor_of(std::vector<Card>& cards) { return {cards.data(), DType::u8, {int64_t(cards.size() * sizeof(Card))}}; }

}  // namespace

class FabricCommunicator::Begun final : public Work::Pending {
 public:
  Begun(FabricCommunicator& ranks, Lane& lane, const CommCall& call)
      : hub_(ranks.hub_), lane_(lane), call_(call), mine_{Card::of(call, lane.calls++)} {}
  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;
  ~Begun() override {
    if (!finished_) hub_->give_up(fmt::format("this rank has given up before the end of {}", call_.to_string()));
  }
  template <class Give>
  void give(const Give& give) {
    hub_->let_wait_for_device(lane_);
    if (hub_->stamps_calls()) began_ = lane_.transport->stamp();
    give(*lane_.transport);
    if (hub_->stamps_calls()) ended_ = lane_.transport->stamp();
    mark_ = lane_.transport->stream().mark();
  }
  // A sender goes on without the receiver's card: neither direction between two ranks waits for the other.
  void tell(Communicator& host) {
    first_ = call_.peer < 0 ? 0 : call_.peer;
    if (std::string_view(call_.op) == "send") {
      agreement_ = host.send(tensor_of(mine_), call_.peer, call_.site);
    } else if (call_.peer >= 0) {
      all_.resize(1);
      agreement_ = host.recv(tensor_of(all_), call_.peer, call_.site);
    } else {
      all_.resize(size_t(host.size()));
      agreement_ = host.all_gather(tensor_of(mine_), tensor_of(all_), call_.site);
    }
    rank_ = host.rank();
  }

  void wait() override {
    try {
      hub_->check_alive();
      agreement_.wait();
      check_same_calls();
      hub_->wait_in_order(lane_, mark_, call_);
    } catch (const std::exception& e) {
      hub_->give_up(e.what());
      throw;
    }
    finished_ = true;
  }

  bool is_stamped() const override { return ended_ != Stamp::none; }
  Span take_span() override {
    return {.began_ns = lane_.transport->take_time_ns(began_), .ended_ns = lane_.transport->take_time_ns(ended_)};
  }

 private:
  void check_same_calls() const {
    for (size_t i = 0; i < all_.size(); ++i) {
      Card theirs = all_[i];
      if (call_.peer >= 0) std::memcpy(theirs.op, mine_[0].op, sizeof theirs.op);  // it sends, this one receives
      if (theirs.agrees(mine_[0])) continue;
      throw CommError(fmt::format("the ranks do not agree: of the ranks of this axis, {} is in {}, {} in {}", rank_,
                                  mine_[0].to_string(), first_ + int(i), all_[i].to_string()));
    }
  }

  std::shared_ptr<FabricHub> hub_;
  Lane& lane_;  // the hub's
  CommCall call_;
  std::vector<Card> mine_, all_;
  Work agreement_;  // ends before what it reads and writes
  int64_t mark_ = 0;
  Stamp began_ = Stamp::none, ended_ = Stamp::none;
  int rank_ = 0, first_ = 0;
  bool finished_ = false;
};

bool FabricCommunicator::is_ordered(const Tensor& x, int peer) const {
  if (!hub_->orders()) return false;
  if (x.elements() == 0) return true;  // nothing moves
  const bool has_lane = peer < 0 ? lanes_.group != nullptr : lanes_.to.contains(peer) || lanes_.from.contains(peer);
  return has_lane && is_on_device(x);
}

Work FabricCommunicator::all_reduce(Tensor x, Site site) {
  check_has_sum(x.dtype);
  if (!goes_by_group(x, x)) return host_->all_reduce(x, site);
  return begin(*lanes_.group, call("all-reduce", x, site),
               [&](Transport& t) { all_reduce_on(t, {.size = size(), .rank = rank()}, x); });
}

Work FabricCommunicator::all_gather(Tensor shard, Tensor full, Site site) {
  if (!goes_by_group(shard, full)) return host_->all_gather(shard, full, site);
  WEFT_CHECK(full.elements() == shard.elements() * size() && full.dtype == shard.dtype && full.contiguous(),
             "all-gather of {} into {}", shard.to_string(), full.to_string());
  return begin(*lanes_.group, call("all-gather", shard, site), [&](Transport& t) { all_gather_on(t, shard, full); });
}

Work FabricCommunicator::reduce_scatter(Tensor full, Tensor shard, Site site) {
  check_has_sum(full.dtype);
  if (!goes_by_group(full, shard)) return host_->reduce_scatter(full, shard, site);
  WEFT_CHECK(full.elements() == shard.elements() * size() && full.dtype == shard.dtype && shard.contiguous(),
             "reduce-scatter of {} into {}", full.to_string(), shard.to_string());
  return begin(*lanes_.group, call("reduce-scatter", full, site),
               [&](Transport& t) { reduce_scatter_on(t, {.size = size(), .rank = rank()}, full, shard); });
}

Work FabricCommunicator::send(Tensor x, int to, Site site) {
  const auto lane = lanes_.to.find(to);
  if (lane == lanes_.to.end() || !is_on_device(x)) return host_->send(x, to, site);
  return begin(*lane->second, call("send", x, site, to), [&](Transport& t) {
    const Transport::Piece piece{x.data, x.bytes(), 1};
    t.exchange({&piece, 1}, {});
  });
}

Work FabricCommunicator::recv(Tensor x, int from, Site site) {
  const auto lane = lanes_.from.find(from);
  if (lane == lanes_.from.end() || !is_on_device(x)) return host_->recv(x, from, site);
  return begin(*lane->second, call("receive", x, site, from), [&](Transport& t) {
    const Transport::Piece piece{x.data, x.bytes(), 0};
    t.exchange({}, {&piece, 1});
  });
}

bool FabricCommunicator::is_on_device(const Tensor& x) const {
  return x.elements() > 0 && hub_->fabric().holds(x.data);
}

bool FabricCommunicator::goes_by_group(const Tensor& x, const Tensor& y) const {
  if (lanes_.group == nullptr) return false;
  const bool goes = is_on_device(x);
  WEFT_CHECK(is_on_device(y) == goes, "one of {} and {} lies in the device's memory, the other does not", x.to_string(),
             y.to_string());
  return goes;
}

template <class Give>
Work FabricCommunicator::begin(Lane& lane, const CommCall& call, const Give& give) {
  hub_->check_alive();
  const auto begun = std::make_shared<Begun>(*this, lane, call);
  begun->give(give);
  begun->tell(*host_);
  return Work(begun);
}

CommCall FabricCommunicator::call(const char* op, const Tensor& x, const Site& site, int peer) {
  WEFT_CHECK(x.contiguous(), "a {} of {} with gaps", op, x.to_string());
  return {.op = op,
          .number = peer < 0 ? collectives_++ : messages_++,
          .dtype = x.dtype,
          .elements = x.elements(),
          .peer = peer,
          .site = site};
}

}  // namespace weft
