#include "weft/islands/island_member.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "weft/checkpoint/checkpoint_check.h"
#include "weft/comm/agree.h"
#include "weft/islands/island_hub.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr int kMostTries = 4;            // of an exchange, by connections that break
constexpr double kBetweenTries_s = 0.2;  // to connect
constexpr double kMoment_s = 2;          // for a hub that was away

}  // namespace

IslandMember::IslandMember(Spec spec, OuterState& state, int64_t rounds)
    : spec_(std::move(spec)), state_(state), rounds_(rounds) {}

int64_t IslandMember::rounds_of_all() const {
  return spec_.last_step / spec_.steps_of_round + state_.layout().num_fragments() - 1;
}

int64_t IslandMember::step_of_round(int64_t round) const {
  return std::min(spec_.last_step, round * spec_.steps_of_round);
}

// What the first rank says, on all of them.
double IslandMember::told(double by_first) const {
  double number = leads() ? by_first : 0;
  spec_.world.all_reduce({&number, DType::f64, {1}}).wait();
  return number;
}

void IslandMember::share_refusal() {
  if (const std::string why = first_text(spec_.world, refusal_); !why.empty()) throw ConfigError(why);
}

void IslandMember::hang_up() {
  if (!channel_) return;
  sent_bytes_ += channel_->sent_bytes();
  received_bytes_ += channel_->received_bytes();
  channel_.reset();
}

// Calls f on the first rank. False on all: the connection is lost.
bool IslandMember::attempt(const std::function<void()>& f) {
  bool good = true;
  if (leads()) {
    try {
      if (!channel_) throw ChannelError("there is no connection");
      f();
    } catch (const ChannelError& e) {
      spec_.tell(fmt::format("the connection to the hub is lost: {}", e.what()));
      hang_up();
      good = false;
    } catch (const RefusedIsland& e) { refusal_ = e.what(); }
  }
  good = told(good ? 1 : 0) > 0;
  share_refusal();
  return good;
}

int64_t IslandMember::begin(int64_t step, bool must) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    const Next next = meet();
    if (next == Next::alone && must)
      throw ConfigError(
          fmt::format("no hub answers at islands.address = \"{}\" within {} s; start it: weft islands "
                      "RECIPE",
                      spec_.address, spec_.timeout_s));
    if (next == Next::alone || next == Next::go) return step;
    const bool came = next == Next::give ? give() : take(step);
    if (came) return next == Next::take && step >= spec_.last_step ? exchange(step) : step;
  }
  return step;
}

// Connects, for as long as the hub may be silent, and hears what there is to do; a refusal ends the run.
IslandMember::Next IslandMember::meet() {
  std::vector<uint64_t> sum{state_.sum()};
  sum_over(spec_.world, sum);
  Next next = Next::alone;
  if (leads()) {
    hub_ = {};
    const double until = now_s() + (is_alone_ ? std::min(kMoment_s, spec_.timeout_s) : spec_.timeout_s);
    std::string why;
    do {
      try {
        Hello hello = spec_.hello;
        hello.rounds = rounds_;
        hello.state = state_text(sum[0]);
        hang_up();
        channel_ = IslandChannel::connect(spec_.address, spec_.secret, std::max(0.1, until - now_s()));
        channel_->be_patient_for(spec_.timeout_s);
        say(*channel_, hello);
        hub_ = hear_welcome(*channel_);
        has_met_ = true;
        next = hub_.what == Welcome::Do::give ? Next::give : hub_.what == Welcome::Do::take ? Next::take : Next::go;
        break;
      } catch (const StrangerError& e) {  // later, its link may have vanished just then
        why = e.what();
        if (!has_met_) refusal_ = why;
        if (!has_met_) break;
      } catch (const RefusedIsland& e) {
        refusal_ = fmt::format("the hub refuses this island: {}", e.what());
        break;
      } catch (const ConfigError& e) {
        refusal_ = e.what();
        break;
      } catch (const ChannelError& e) { why = e.what(); }
      hang_up();
      std::this_thread::sleep_for(std::chrono::duration<double>(kBetweenTries_s));
    } while (now_s() < until);
    if (next == Next::alone && refusal_.empty() && !is_alone_)
      spec_.tell(fmt::format("WARNING: {}: this island trains on alone, and asks again at each exchange", why));
    if (next != Next::alone && is_alone_) spec_.tell("the hub is back");
  }
  share_refusal();
  next = Next(int(told(double(next))));
  is_alone_ = next == Next::alone;
  hub_.rounds = int64_t(told(double(hub_.rounds)));
  hub_.counted = int64_t(told(double(hub_.counted)));
  return next;
}

int64_t IslandMember::exchange(int64_t step) {
  bool is_last = step >= spec_.last_step;
  for (int64_t left = is_last ? state_.layout().num_fragments() : 1; left > 0; --left) {
    if (is_last && rounds_ >= rounds_of_all()) return step;  // nothing is left to exchange
    const Exchanged how = exchange_one(step);
    if (how == Exchanged::no) return step;  // alone
    if (how == Exchanged::yes) continue;
    if (step < spec_.last_step) return step;  // and trains on from there
    is_last = true;
    left = rounds_of_all() - rounds_ + 1;
  }
  return step;
}

IslandMember::Exchanged IslandMember::exchange_one(int64_t& step) {
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (told(channel_ ? 1 : 0) == 0) {
      const Next next = meet();
      if (next == Next::alone) return Exchanged::no;
      if (next == Next::take) {
        if (take(step)) return Exchanged::took;
        continue;
      }
      if (next == Next::give && !give()) continue;
    }
    if (const Exchanged how = offer(step); how != Exchanged::no) return how;
  }
  return Exchanged::no;
}

IslandMember::Exchanged IslandMember::offer(int64_t& step) {
  const int64_t round = rounds_ + 1, fragment = state_.layout().fragment_of(round);
  bool is_late = false;
  const bool heard = attempt([&] {
    say_offer(*channel_, round);
    const Reply reply = hear_reply(*channel_);
    is_late = reply.is_late;
    hub_.rounds = reply.rounds;
    hub_.counted = reply.counted;
  });
  if (!heard) return Exchanged::no;
  is_late = told(is_late ? 1 : 0) > 0;
  hub_.rounds = int64_t(told(double(hub_.rounds)));
  hub_.counted = int64_t(told(double(hub_.counted)));
  if (is_late) return take(step) ? Exchanged::took : Exchanged::no;
  spec_.begin_to_write();
  if (!send_fragment(fragment, OuterState::What::sent)) return Exchanged::no;
  const bool ended = attempt([&] {
    if (const Mean mean = hear_mean(*channel_); mean.round != round)
      throw ChannelError(fmt::format("the hub has ended round {}, not {}", mean.round, round));
  });
  if (!ended || !receive_fragment(fragment, OuterState::What::sent)) return Exchanged::no;
  state_.step(fragment);
  rounds_ = round;
  spec_.has_written();
  return Exchanged::yes;
}

bool IslandMember::give() {
  for (int64_t f = 0; f < state_.layout().num_fragments(); ++f) {
    if (!send_fragment(f, OuterState::What::outer)) return false;
    if (state_.spec().momentum > 0 && !send_fragment(f, OuterState::What::momentum)) return false;
  }
  return true;
}

// What the hub has counted of this island is in its weights; of rounds that it missed, what was learnt stays beside
// them, if they are few.
bool IslandMember::take(int64_t& step) {
  const int64_t missed = hub_.rounds - rounds_, counted_round = hub_.counted == rounds_ + 1 ? rounds_ + 1 : 0;
  const bool is_fresh = missed > 0 && missed - (counted_round > 0 ? 1 : 0) <= spec_.max_staleness;
  spec_.begin_to_write();
  for (int64_t f = 0; f < state_.layout().num_fragments(); ++f) {
    if (!receive_fragment(f, OuterState::What::outer) ||
        (state_.spec().momentum > 0 && !receive_fragment(f, OuterState::What::momentum))) {
      spec_.has_written();  // the fragments before: each is whole, and comes once more
      return false;
    }
    const bool is_counted = counted_round > 0 && state_.layout().fragment_of(counted_round) == f;
    state_.take(f, is_fresh && !is_counted ? OuterState::Moved::stays : OuterState::Moved::goes);
  }
  const int64_t there = step_of_round(hub_.rounds);
  if (leads())
    spec_.tell(
        fmt::format("takes the outer weights of {} rounds, in place of those of {}: what it has learnt beside "
                    "them {}{}",
                    hub_.rounds, rounds_, is_fresh ? "stays" : "is dropped",
                    there > step ? fmt::format("; goes on at step {}, where the others were", there) : ""));
  rounds_ = hub_.rounds;
  step = std::max(step, there);
  spec_.has_written();
  return true;
}

// Ranks put each chunk together, and the first sends it. One that cannot be sent is the last.
bool IslandMember::send_fragment(int64_t fragment, OuterState::What what) {
  const int64_t size = state_.layout().sizes()[size_t(fragment)];
  const bool is_narrow = what == OuterState::What::sent && state_.spec().wire == OuterSpec::Wire::bf16;
  std::vector<float> chunk;
  std::vector<bf16> narrow;
  for (int64_t at = 0; at < size; at += kChunkWeights) {
    const Run run{at, std::min(kChunkWeights, size - at)};
    chunk.resize(size_t(run.count));
    state_.put(what, fragment, run, chunk);
    spec_.world.all_reduce({chunk.data(), DType::f32, {run.count}}).wait();
    const bool sent = attempt([&] {
      if (!is_narrow) return channel_->send(IslandChannel::Kind::numbers, std::as_bytes(std::span(chunk)));
      narrow.resize(chunk.size());
      std::transform(chunk.begin(), chunk.end(), narrow.begin(), [](float x) { return bf16(x); });
      channel_->send(IslandChannel::Kind::numbers, std::as_bytes(std::span(narrow)));
    });
    if (!sent) return false;
  }
  return true;
}

bool IslandMember::receive_fragment(int64_t fragment, OuterState::What what) {
  const int64_t size = state_.layout().sizes()[size_t(fragment)];
  const bool is_narrow = what == OuterState::What::sent && state_.spec().wire == OuterSpec::Wire::bf16;
  std::vector<float> chunk;
  for (int64_t at = 0; at < size; at += kChunkWeights) {
    const Run run{at, std::min(kChunkWeights, size - at)};
    chunk.assign(size_t(run.count), -0.0f);  // which adds nothing to what the first rank has
    const bool received = attempt([&] {
      const auto bytes = channel_->receive_numbers(size_t(run.count) * (is_narrow ? 2 : 4));
      if (!is_narrow) {
        std::memcpy(chunk.data(), bytes.data(), bytes.size());
        return;
      }
      for (size_t i = 0; i < chunk.size(); ++i) {
        bf16 x;
        std::memcpy(&x.bits, bytes.data() + 2 * i, 2);
        chunk[i] = float(x);
      }
    });
    if (!received) return false;
    spec_.world.all_reduce({chunk.data(), DType::f32, {run.count}}).wait();
    state_.keep(what, fragment, run, chunk);
  }
  return true;
}

void IslandMember::end() {
  if (!leads() || !channel_) return;
  try {
    say_farewell(*channel_);
  } catch (const ChannelError& e) {
    spec_.tell(fmt::format("the hub does not hear that all steps are done: {}", e.what()));
  }
  hang_up();
}

}  // namespace weft
