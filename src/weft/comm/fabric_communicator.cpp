#include "weft/comm/fabric_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "weft/base/threads.h"
#include "weft/comm/rank_sum.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kSpins = 2000;        // looks before the core is offered to others
constexpr int64_t kLooksPerCheck = 64;  // at the transport's health and at other ranks
constexpr double kSleepAfter_s = 5e-3;
constexpr auto kSleep = std::chrono::microseconds(50);
constexpr size_t kMostOrdered = 64;  // calls of a lane that its device may not have passed

double since_s(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

}  // namespace

std::shared_ptr<Lane> FabricHub::connect(const Fabric::End& end) {
  lanes_.push_back(std::make_shared<Lane>(Lane{.transport = fabric_->connect(end)}));
  return lanes_.back();
}

void FabricHub::wait(Transport& transport, int64_t mark, const CommCall& call) {
  const Clock::time_point began = Clock::now();
  for (int64_t looks = 1; !transport.queue().passed(mark); ++looks) {
    if (looks % kLooksPerCheck != 0 && looks > 1) continue;
    check_alive();
    if (const std::string why = transport.failure(); !why.empty())
      fail_unless_told(fmt::format("{} has failed in {}: {}", fabric_->description(), call.to_string(), why));
    if (poll_) poll_();
    if (looks < kSpins) continue;
    const double still_s = since_s(began);
    if (still_s > patience_.timeout_s)
      fail(
          fmt::format("{}: {} is not over after {:.0f} s, though {}; is a GPU or the link to it broken (nvidia-smi, "
                      "dmesg)?",
                      fabric_->description(), call.to_string(), still_s,
                      std::string_view(call.op) == "send" ? "the host of the other rank still answers"
                                                          : "its ranks have begun it"));
    if (still_s < kSleepAfter_s)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kSleep);
  }
}

void FabricHub::let_wait_for_device(Lane& lane) {
  if (!orders()) return;
  DeviceQueue& device = *issue_();
  lane.transport->queue().wait_for(device, device.mark());
}

void FabricHub::wait_in_order(Lane& lane, int64_t mark, const CommCall& call) {
  if (!orders()) return wait(*lane.transport, mark, call);
  issue_()->wait_for(lane.transport->queue(), mark);
  while (!lane.ordered.empty() && lane.transport->queue().passed(lane.ordered.front().mark)) lane.ordered.pop_front();
  lane.ordered.push_back({mark, call});
  if (lane.ordered.size() > kMostOrdered) settle();  // what a device is given waits for room where it has too much
}

// The first stamp of each sets its clock, while nothing is under way.
void FabricHub::stamp_calls(std::function<void()> settled) {
  for (const auto& lane : lanes_) lane->transport->stamp();
  settled_ = std::move(settled);
}

void FabricHub::settle() {
  check_alive();
  try {
    for (const auto& lane : lanes_) {
      for (; !lane->ordered.empty(); lane->ordered.pop_front())
        wait(*lane->transport, lane->ordered.front().mark, lane->ordered.front().call);
    }
  } catch (const std::exception& e) {  // also of the host's
    give_up(e.what());
    throw;
  }
  if (settled_) settled_();
}

// The device may notice first that a peer stopped; the peer tells why a moment later.
void FabricHub::fail_unless_told(const std::string& why) {
  const Clock::time_point began = Clock::now();
  for (; poll_ && since_s(began) < patience_.told_s; std::this_thread::sleep_for(kSleep)) poll_();
  fail(why);
}

void FabricHub::fail(const std::string& why) {
  give_up(why);
  throw CommError(failure_);
}

void FabricHub::give_up(const std::string& why) noexcept {
  if (!failure_.empty()) return;
  failure_ = why;
  Threads all;  // the end of one may wait for the device, which may wait for another
  std::vector<Transport*> without_thread;
  for (const auto& lane : lanes_) {
    try {
      all.start([&lane = *lane] { lane.transport->abort(); });
    } catch (const Error&) { without_thread.push_back(lane->transport.get()); }
  }
  for (Transport* transport : without_thread) transport->abort();
}

namespace {

// --- collectives on a transport ---
// They only queue work on it, the same on every rank; tensors are as for Communicator, with at least one element. Sums
// go in parts that fit into staging: every rank sends every other one its share of the part, and adds in rank order,
// whatever moves the bytes.

struct RankPlace {
  int size, rank;
};

constexpr int64_t kLine = 64;                 // elements: parts begin at whole cache lines, as tensors do
constexpr int64_t kSmall = int64_t{1} << 15;  // bytes that go whole to every rank: one exchange, not two

std::byte* at(const Tensor& x, int64_t element) { return static_cast<std::byte*>(x.data) + element * size_of(x.dtype); }

// Elements of a part: the staging holds one part of each other rank.
int64_t most_of_part(const Transport& transport, const RankPlace& me, DType dtype) {
  const auto others = std::max(1, me.size - 1);
  const int64_t most = int64_t(transport.staging().size()) / others / size_of(dtype) / kLine * kLine;
  WEFT_CHECK(most > 0, "{} bytes of staging for {} ranks", transport.staging().size(), me.size);
  return most;
}

// Where the part for rank r lies: parts for consecutive ranks are `apart` bytes apart; 0 if all get the same.
struct Parts {
  std::byte* first;
  int64_t apart;
  void* out;  // may be the own one
  std::byte* operator()(int r) const { return first + r * apart; }
};

// Sends n elements at part(r) to every other rank r, and adds the own ones at part(rank) and what came from the others.
void scatter_part(Transport& transport, const RankPlace& me, const Parts& part, DType dtype, int64_t n) {
  const int64_t bytes = n * size_of(dtype), room = (n + kLine - 1) / kLine * kLine * size_of(dtype);
  std::vector<Transport::Message> sent, received;
  std::vector<const void*> operands;
  std::byte* place = transport.staging().data();
  for (int r = 0; r < me.size; ++r) {
    if (r == me.rank) {
      operands.push_back(part(r));
      continue;
    }
    sent.push_back({part(r), bytes, r});
    received.push_back({place, bytes, r});
    operands.push_back(place);
    place += room;
  }
  transport.exchange(sent, received);
  transport.sum(operands, dtype, n, part.out);
}

// Each rank sends (size - 1) / size of `full`.
void reduce_scatter_on(Transport& transport, const RankPlace& me, const Tensor& full, const Tensor& shard) {
  const int64_t most = most_of_part(transport, me, full.dtype);
  for (int64_t done = 0; done < shard.elements(); done += most)
    scatter_part(transport, me, Parts{.first = at(full, done), .apart = shard.bytes(), .out = at(shard, done)},
                 full.dtype, std::min(most, shard.elements() - done));
}

// For each part, a reduce-scatter in place and an all-gather; a small tensor goes to every rank whole.
void all_reduce_on(Transport& transport, const RankPlace& me, const Tensor& x) {
  const int64_t most = most_of_part(transport, me, x.dtype), elements = x.elements();
  int64_t done = 0;
  const auto share = [&] { return std::min(most, (elements - done) / me.size / kLine * kLine); };
  for (int64_t n = share(); n > 0 && x.bytes() > kSmall; n = share()) {
    const int64_t bytes = n * size_of(x.dtype);
    std::byte* mine = at(x, done) + me.rank * bytes;
    scatter_part(transport, me, Parts{.first = at(x, done), .apart = bytes, .out = mine}, x.dtype, n);
    transport.all_gather(mine, at(x, done), bytes);
    done += n * me.size;
  }
  for (; done < elements; done += most)
    scatter_part(transport, me, Parts{.first = at(x, done), .apart = 0, .out = at(x, done)}, x.dtype,
                 std::min(most, elements - done));
}

// --- calls ---

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
    mark_ = lane_.transport->queue().mark();
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
  return begin(*lanes_.group, call("all-gather", shard, site),
               [&](Transport& t) { t.all_gather(shard.data, full.data, shard.bytes()); });
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
    const Transport::Message message{x.data, x.bytes(), 1};
    t.exchange({&message, 1}, {});
  });
}

Work FabricCommunicator::recv(Tensor x, int from, Site site) {
  const auto lane = lanes_.from.find(from);
  if (lane == lanes_.from.end() || !is_on_device(x)) return host_->recv(x, from, site);
  return begin(*lane->second, call("receive", x, site, from), [&](Transport& t) {
    const Transport::Message message{x.data, x.bytes(), 0};
    t.exchange({}, {&message, 1});
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
