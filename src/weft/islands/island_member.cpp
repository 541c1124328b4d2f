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

IslandMember::IslandMember(Spec spec, OuterState& state, const OuterAge& age)
    : spec_(std::move(spec)), state_(state), age_(age) {}

// Whether nothing is left to exchange: of the rounds after the last step there is one for each fragment.
bool IslandMember::is_at_end(int64_t step) const {
  return step >= spec_.last_step && age_.step >= spec_.last_step &&
         age_.rounds >= age_.since + state_.layout().num_fragments() - 1;
}

// Whether a round of a fragment is to follow what was taken.
bool IslandMember::is_open(int64_t fragment, int64_t step) const {
  if (step < spec_.last_step) return true;
  if (hub_.age.step < spec_.last_step) return false;  // this island is done
  for (int64_t round = hub_.age.rounds + 1; round < hub_.age.since + state_.layout().num_fragments(); ++round)
    if (state_.layout().fragment_of(round) == fragment) return true;
  return false;
}

// What the first rank says, on all of them.
double IslandMember::told(double by_first) const {
  double number = leads() ? by_first : 0;
  spec_.world.all_reduce({&number, DType::f64, {1}}).wait();
  return number;
}

void IslandMember::tell_all(OuterAge& age) const {
  for (int64_t* number : {&age.rounds, &age.step, &age.since}) *number = int64_t(told(double(*number)));
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

// Calls f on the first rank. False on all: the connection is lost, or the run is to stop.
bool IslandMember::attempt(const std::function<void()>& f) {
  bool good = true, stops = false;
  if (leads()) {
    try {
      if (!channel_) throw ChannelError("there is no connection");
      f();
    } catch (const StoppedWaiting&) { stops = true; } catch (const ChannelError& e) {
      spec_.tell(fmt::format("the connection to the hub is lost: {}", e.what()));
      hang_up();
      good = false;
    } catch (const RefusedIsland& e) { refusal_ = e.what(); }
  }
  const double how = told(stops ? 2 : good ? 1 : 0);
  share_refusal();
  if (how > 1) heed_stop();
  return how == 1;
}

void IslandMember::heed_stop() {
  if (leads() && !is_stopped_) spec_.tell("the run is asked to stop: it does not wait for this exchange");
  is_stopped_ = true;
  hang_up();
}

int64_t IslandMember::begin(int64_t step, bool must) {
  has_changed_ = false;
  step = catch_up(step, must);
  if (!is_alone_ && !is_stopped_ && step >= spec_.last_step) step = exchange_due(step);
  sent_to_begin_ = sent_bytes();
  return step;
}

int64_t IslandMember::catch_up(int64_t step, bool must) {
  for (int tries = 0; tries < kMostTries && !is_stopped_; ++tries) {
    const Next next = meet();
    if (next == Next::alone && must && !is_stopped_)
      throw ConfigError(
          fmt::format("no hub answers at islands.address = \"{}\" within {} s; start it: weft islands "
                      "RECIPE",
                      spec_.address, spec_.timeout_s));
    if (next == Next::alone || next == Next::go) return step;
    if (next == Next::give ? give() : take(step)) return step;
  }
  return step;
}

// Connects, for as long as the hub may be silent, and hears what there is to do; a refusal ends the run.
IslandMember::Next IslandMember::meet() {
  std::vector<uint64_t> sum{state_.sum()};
  sum_over(spec_.world, sum);
  Next next = Next::alone;
  bool stops = false;
  if (leads()) {
    hub_ = {};
    const double until = now_s() + (is_alone_ ? std::min(kMoment_s, spec_.timeout_s) : spec_.timeout_s);
    std::string why;
    do {
      stops = spec_.stopped();
      if (stops) break;
      try {
        Hello hello = spec_.hello;
        hello.age = age_;
        hello.state = state_text(sum[0]);
        hang_up();
        channel_ = IslandChannel::connect(spec_.address, spec_.secret, std::max(0.1, until - now_s()), spec_.stopped);
        channel_->be_patient_for(spec_.timeout_s);
        say(*channel_, hello);
        next = hear_next();
        has_met_ = true;
        break;
      } catch (const StoppedWaiting&) {
        stops = true;
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
    if (next == Next::alone && refusal_.empty() && !is_alone_ && !stops)
      spec_.tell(fmt::format("WARNING: {}: this island trains on alone, and asks again at each exchange", why));
    if (next != Next::alone && is_alone_) spec_.tell("the hub is back");
  }
  share_refusal();
  if (told(stops ? 1 : 0) > 0) heed_stop();
  next = Next(int(told(double(next))));
  while (next == Next::wait) {  // another island gives: ranks hear of each other meanwhile
    if (!attempt([&] { next = hear_next(); })) {
      if (!is_stopped_) return meet();
      next = Next::alone;
    }
    next = Next(int(told(double(next))));
  }
  is_alone_ = next == Next::alone;
  tell_all(hub_.age);
  hub_.counted = int64_t(told(double(hub_.counted)));
  return next;
}

IslandMember::Next IslandMember::hear_next() {
  const std::optional<Welcome> heard = hear_welcome(*channel_);
  if (!heard) return Next::wait;
  hub_ = *heard;
  return hub_.what == Welcome::Do::give ? Next::give : hub_.what == Welcome::Do::take ? Next::take : Next::go;
}

int64_t IslandMember::exchange(int64_t step) {
  has_changed_ = false;
  return exchange_due(step);
}

int64_t IslandMember::exchange_due(int64_t step) {
  while (!is_at_end(step)) {
    const Exchanged how = exchange_one(step);
    if (how == Exchanged::no) return step;         // alone
    if (step < spec_.last_step) return step;       // and trains on from there
    if (age_.step < spec_.last_step) return step;  // done; the others are not there yet
  }
  return step;
}

IslandMember::Exchanged IslandMember::exchange_one(int64_t& step) {
  for (int tries = 0; tries < kMostTries && !is_stopped_; ++tries) {
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
  const int64_t round = age_.rounds + 1, fragment = state_.layout().fragment_of(round);
  bool is_late = false;
  const bool heard = attempt([&] {
    say(*channel_, RoundOffer{.round = round, .step = step});
    const Reply reply = hear_reply(*channel_);
    is_late = reply.is_late;
    hub_.age = reply.age;
    hub_.counted = reply.counted;
  });
  if (!heard) return Exchanged::no;
  is_late = told(is_late ? 1 : 0) > 0;
  tell_all(hub_.age);
  hub_.counted = int64_t(told(double(hub_.counted)));
  if (is_late) return take(step) ? Exchanged::took : Exchanged::no;
  spec_.begin_to_write();
  if (!send_fragment(fragment, OuterState::What::sent)) return Exchanged::no;
  Mean mean;
  bool good = true;
  for (bool over = false; good && !over;) {  // a word at a time, so that ranks hear of each other meanwhile
    good = attempt([&] {
      mean = hear_mean(*channel_);
      if (mean.round > 0 && mean.round != round)
        throw ChannelError(fmt::format("the hub has ended round {}, not {}", mean.round, round));
    });
    over = told(double(mean.round)) > 0;
  }
  if (!good || !receive_fragment(fragment, OuterState::What::sent)) {
    state_.keep_sent(fragment);  // it may have counted
    return Exchanged::no;
  }
  state_.step(fragment);
  age_.add_round(int64_t(told(double(mean.step))));
  step = std::max(step, std::min(age_.step, spec_.last_step));
  spec_.has_written();
  has_changed_ = true;
  return Exchanged::yes;
}

bool IslandMember::give() {
  for (int64_t f = 0; f < state_.layout().num_fragments(); ++f) {
    if (!send_fragment(f, OuterState::What::outer)) return false;
    if (age_.rounds > 0 && state_.spec().momentum > 0 && !send_fragment(f, OuterState::What::momentum)) return false;
  }
  return true;
}

// What the hub has counted of this island is in its weights; of rounds that it missed, what was learnt stays beside
// them, if they are few, and a round is to follow in which it counts.
bool IslandMember::take(int64_t& step) {
  const int64_t missed = hub_.age.rounds - age_.rounds;
  const int64_t counted_round = hub_.counted == age_.rounds + 1 ? hub_.counted : 0;
  const bool is_fresh = missed > 0 && missed - (counted_round > 0 ? 1 : 0) <= spec_.max_staleness;
  const int64_t there = std::max(step, std::min(hub_.age.step, spec_.last_step));
  bool stays = false;
  spec_.begin_to_write();
  has_changed_ = true;
  for (int64_t f = 0; f < state_.layout().num_fragments(); ++f) {
    if (!receive_fragment(f, OuterState::What::outer) ||
        (hub_.age.rounds > 0 && state_.spec().momentum > 0 && !receive_fragment(f, OuterState::What::momentum))) {
      spec_.has_written();  // the fragments before: each is whole, and comes once more
      return false;
    }
    const bool is_counted = counted_round > 0 && state_.layout().fragment_of(counted_round) == f;
    const auto beside = is_counted ? OuterState::Moved::since_sent : OuterState::Moved::stays;
    const bool is_kept = is_fresh && is_open(f, there);
    stays = stays || is_kept;
    state_.take(f, is_kept ? beside : OuterState::Moved::goes);
  }
  if (leads())
    spec_.tell(
        fmt::format("takes the outer weights of {} rounds, in place of those of {}: what it has learnt beside "
                    "them {}{}",
                    hub_.age.rounds, age_.rounds, stays ? "stays" : "is dropped",
                    there > step ? fmt::format("; goes on at step {}, where the others were", there)
                    : step >= spec_.last_step && hub_.age.step < spec_.last_step
                        ? fmt::format("; has done all its steps, the others {}", hub_.age.step)
                        : ""));
  age_ = hub_.age;
  step = there;
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
