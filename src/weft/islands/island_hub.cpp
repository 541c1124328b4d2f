#include "weft/islands/island_hub.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <sstream>

#include "weft/checkpoint/word_sum.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

constexpr double kLook_s = 0.1;          // between two looks at what others have done
constexpr double kMostHandshake_s = 10;  // a stranger may hold a connection for so long
constexpr int64_t kMostStrangers = 64;   // connections of those who have not shown yet that they know the secret

std::vector<float> floats_of(std::span<const std::byte> bytes, OuterSpec::Wire wire) {
  std::vector<float> numbers(bytes.size() / (wire == OuterSpec::Wire::f32 ? 4 : 2));
  if (wire == OuterSpec::Wire::f32) {
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    bf16 narrow;
    std::memcpy(&narrow.bits, bytes.data() + 2 * i, 2);
    numbers[i] = float(narrow);
  }
  return numbers;
}

// The first line that differs, as "islands.count = 2 there, islands.count = 4 here".
std::string difference_of(const std::string& there, const std::string& here) {
  std::istringstream a(there), b(here);
  for (std::string x, y;;) {
    const bool more_a = bool(std::getline(a, x)), more_b = bool(std::getline(b, y));
    if (!more_a && !more_b) return "";
    if (x != y || more_a != more_b)
      return fmt::format("{} there, {} at the hub", more_a ? x : "nothing", more_b ? y : "nothing");
  }
}

}  // namespace

std::string state_text(uint64_t sum) { return fmt::format("{:016x}", sum); }

IslandHub::IslandHub(Spec spec)
    : spec_(std::move(spec)), listener_(listen_on(spec_.address)), islands_(size_t(spec_.count)) {}

IslandHub::~IslandHub() {
  ends_ = true;
  for (Session& session : sessions_) session.cut();
  news_.notify_all();
  reap(true);
}

int64_t IslandHub::rounds() const {
  const std::lock_guard lock(mutex_);
  return age_.rounds;
}

void IslandHub::Session::cut() {
  is_cut = true;
  ::shutdown(socket, SHUT_RDWR);
}

bool IslandHub::all_done() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(islands_.begin(), islands_.end(), [](const Island& i) { return i.is_done; });
}

void IslandHub::tell(const std::string& text) {
  const std::lock_guard lock(telling_);
  spec_.tell(text);
}

void IslandHub::reap(bool all) {
  for (auto s = sessions_.begin(); s != sessions_.end();) {
    if (!all && !s->is_over) {
      ++s;
      continue;
    }
    s->thread.join();
    s = sessions_.erase(s);
  }
}

bool IslandHub::serve(const std::atomic<bool>& stop) {
  while (!stop && !all_done()) {
    Descriptor socket = accept_within(listener_, kLook_s);
    reap(false);
    if (socket < 0) continue;
    make_room();
    Session& session = sessions_.emplace_back();
    session.socket = Descriptor(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
    session.thread = std::thread([this, &session, fd = std::make_shared<Descriptor>(std::move(socket))] {
      serve_connection(std::move(*fd), session);
      ::shutdown(session.socket, SHUT_RDWR);  // the other end is to know now, not when the session is reaped
      session.is_over = true;
    });
  }
  return all_done();
}

// Of strangers, for one more connection.
void IslandHub::make_room() {
  const auto is_strange = [](const Session& s) { return !s.is_cut && !s.is_proven && !s.is_over; };
  if (std::count_if(sessions_.begin(), sessions_.end(), is_strange) < kMostStrangers) return;
  const auto oldest = std::find_if(sessions_.begin(), sessions_.end(), is_strange);
  if (oldest != sessions_.end()) oldest->cut();
}

void IslandHub::serve_connection(Descriptor socket, Session& session) {
  const std::string who = peer_of(socket);
  const double until = now_s() + kMostHandshake_s;
  try {
    IslandChannel channel = IslandChannel::accept(std::move(socket), spec_.secret, kMostHandshake_s);
    session.is_proven = true;
    channel.finish_within(until - now_s());
    serve_island(channel);
  } catch (const StrangerError& e) {
    tell(fmt::format("refused: {}", e.what()));
  } catch (const std::exception& e) {  // a connection that ends does not end the hub
    if (!ends_) tell(fmt::format("the connection of {} is over: {}", who, e.what()));
  }
}

void IslandHub::serve_island(IslandChannel& channel) {
  const Hello hello = hear_hello(channel);
  channel.have_time();
  channel.be_patient_for(spec_.timeout_s);
  try {
    require_alike(hello);
  } catch (const RefusedIsland& e) {
    tell(fmt::format("refused: {}: {}", channel.peer(), e.what()));
    return say_refusal(channel, e.what());
  }
  Island& island = islands_[size_t(hello.number)];
  {
    const std::lock_guard lock(mutex_);
    if (island.channel != nullptr) island.channel->cut();  // its link has vanished, and it has come back
    island.channel = &channel;
    island.is_present = true;
    island.is_done = false;
    take_back(island);
  }
  tell(fmt::format("island {} is here, from {}, after {} rounds", hello.number, channel.peer(), hello.age.rounds));
  const auto leave = [&] {
    const std::lock_guard lock(mutex_);
    if (island.channel == &channel) island.channel = nullptr;
  };
  try {
    meet(channel, hello);
    serve_rounds(channel, hello.number);
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

void IslandHub::require_alike(const Hello& hello) {
  if (hello.number >= spec_.count)
    throw RefusedIsland(fmt::format("islands.number = {}: the hub knows {}", hello.number, spec_.count));
  if (const std::string what = difference_of(hello.settings, spec_.settings); !what.empty())
    throw RefusedIsland(
        fmt::format("island {} is of another recipe: {}; islands and hub need the same", hello.number, what));
  if (hello.model != spec_.model)
    throw RefusedIsland(fmt::format(
        "island {} trains another model than the hub's recipe names, or other weights of it", hello.number));
  const std::lock_guard lock(mutex_);
  if (data_.empty()) data_ = hello.data;
  if (hello.data != data_)
    throw RefusedIsland(fmt::format(
        "island {} reads other training data than the island that came first, or in another order: samples would be "
        "trained twice, and others never",
        hello.number));
}

void IslandHub::meet(IslandChannel& channel, const Hello& hello) {
  Welcome welcome;
  State state;
  {
    std::unique_lock lock(mutex_);
    while (!news_.wait_for(lock, std::chrono::duration<double>(spec_.timeout_s / 4),
                           [&] { return !is_taking_ || ends_; })) {
      lock.unlock();
      say_wait(channel);
      lock.lock();
    }
    if (ends_) return;
    if (age_.rounds >= 0) welcome.age = age_;
    welcome.counted = islands_[size_t(hello.number)].counted;
    if (hello.age.rounds > age_.rounds) {
      welcome.what = Welcome::Do::give;
      is_taking_ = true;
    } else if (hello.age.rounds < age_.rounds || hello.state != state_hash()) {
      welcome.what = Welcome::Do::take;
      state = state_;
    }
  }
  if (welcome.what != Welcome::Do::give) {
    say(channel, welcome);
    return give_to(channel, state, welcome.age.rounds > 0);
  }
  try {
    say(channel, welcome);
    take_from(channel, hello);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    is_taking_ = false;
    news_.notify_all();
    throw;
  }
}

// What an island has that is ahead: after the start of the hub, or where it was away with the hub's last round.
void IslandHub::take_from(IslandChannel& channel, const Hello& hello) {
  State state;
  const auto receive = [&](int64_t size) {
    std::vector<float> numbers;
    for (int64_t at = 0; at < size; at += kChunkWeights) {
      const auto bytes = channel.receive_numbers(size_t(std::min(kChunkWeights, size - at)) * sizeof(float));
      const std::vector<float> chunk = floats_of(bytes, OuterSpec::Wire::f32);
      numbers.insert(numbers.end(), chunk.begin(), chunk.end());
    }
    return numbers;
  };
  for (const int64_t size : spec_.sizes) {
    auto fragment = std::make_shared<Fragment>();
    fragment->outer = receive(size);
    if (spec_.outer.momentum > 0)
      fragment->momentum = hello.age.rounds > 0 ? receive(size) : std::vector<float>(size_t(size));
    state.push_back(std::move(fragment));
  }
  tell(fmt::format("the outer weights are those of island {}, after {} rounds", hello.number, hello.age.rounds));
  const std::lock_guard lock(mutex_);
  state_ = std::move(state);
  age_ = hello.age;
  is_taking_ = false;
  for (Island& island : islands_) take_back(island);  // it was for a round that is over
  news_.notify_all();
}

// Nothing where the state has no fragments.
void IslandHub::give_to(IslandChannel& channel, const State& state, bool with_momentum) const {
  const auto send = [&](const std::vector<float>& numbers) {
    for (size_t at = 0; at < numbers.size(); at += size_t(kChunkWeights))
      channel.send(IslandChannel::Kind::numbers,
                   std::as_bytes(std::span(numbers).subspan(at, std::min(size_t(kChunkWeights), numbers.size() - at))));
  };
  for (const auto& fragment : state) {
    send(fragment->outer);
    if (with_momentum) send(fragment->momentum);
  }
}

void IslandHub::serve_rounds(IslandChannel& channel, int64_t number) {
  for (;;) {
    while (!channel.is_readable(kLook_s))  // it trains, for as long as it takes
      if (ends_) return;
    const RoundOffer offer = hear_offer(channel);
    if (offer.round == 0) {
      tell(fmt::format("island {} has done all its steps", number));
      const std::lock_guard lock(mutex_);
      islands_[size_t(number)].is_present = false;
      islands_[size_t(number)].is_done = true;
      news_.notify_all();
      return;
    }
    if (!serve_round(channel, number, offer)) return;
  }
}

// False: the hub ends, or has refused what it sends.
bool IslandHub::serve_round(IslandChannel& channel, int64_t number, const RoundOffer& offer) {
  const int64_t round = offer.round;
  Reply reply;
  State state;
  {
    const std::lock_guard lock(mutex_);
    Island& island = islands_[size_t(number)];
    if (island.channel != &channel) throw ChannelError(fmt::format("{} has another connection now", channel.peer()));
    reply = {.is_late = round != age_.rounds + 1, .age = age_, .counted = island.counted};
    if (reply.is_late) state = state_;
    island.is_present = true;
  }
  say(channel, reply);
  if (reply.is_late) {
    give_to(channel, state, reply.age.rounds > 0);
    return true;
  }
  const int64_t size = spec_.sizes[size_t((round - 1) % int64_t(spec_.sizes.size()))];
  std::vector<float> sent = receive_sent(channel, size);
  if (!std::all_of(sent.begin(), sent.end(), [](float x) { return std::isfinite(x); })) {
    const std::string why = fmt::format("island {} sends numbers that are not finite", number);
    tell(fmt::format("refused: {}", why));
    say_refusal(channel, why);
    return false;
  }
  std::shared_ptr<const std::vector<float>> mean;
  Mean told{.round = round};
  {
    std::unique_lock lock(mutex_);
    Island& island = islands_[size_t(number)];
    if (age_.rounds + 1 == round && island.channel == &channel) {
      island.sent = std::move(sent);
      island.step = offer.step;
      island.has_sent = true;
      last_news_s_ = now_s();
      if (first_sent_s_ == 0) first_sent_s_ = last_news_s_;
      news_.notify_all();
      wait_end_of(lock, round, channel, island);
    }
    if (ends_) return false;
    // Too late, or another state has come: the island says hello again, and hears of it.
    if (island.counted != round || age_.rounds != round)
      throw ChannelError(fmt::format("round {} has ended without island {}", round, number));
    mean = mean_;
    told.islands = in_mean_;
    told.step = age_.step;
  }
  say(channel, told);
  const bool is_narrow = spec_.outer.wire == OuterSpec::Wire::bf16;
  for (size_t at = 0; at < mean->size(); at += size_t(kChunkWeights)) {
    const auto chunk = std::span(*mean).subspan(at, std::min(size_t(kChunkWeights), mean->size() - at));
    if (is_narrow) {
      std::vector<bf16> narrow(chunk.size());
      std::transform(chunk.begin(), chunk.end(), narrow.begin(), [](float x) { return bf16(x); });
      channel.send(IslandChannel::Kind::numbers, std::as_bytes(std::span(narrow)));
    } else {
      channel.send(IslandChannel::Kind::numbers, std::as_bytes(chunk));
    }
  }
  return true;
}

std::vector<float> IslandHub::receive_sent(IslandChannel& channel, int64_t size) {
  std::vector<float> sent;
  sent.reserve(size_t(size));
  for (int64_t at = 0; at < size; at += kChunkWeights) {
    const int64_t count = std::min(kChunkWeights, size - at);
    const auto bytes = channel.receive_numbers(size_t(count * spec_.outer.bytes_per_weight()));
    const std::vector<float> chunk = floats_of(bytes, spec_.outer.wire);
    sent.insert(sent.end(), chunk.begin(), chunk.end());
    const std::lock_guard lock(mutex_);
    last_news_s_ = now_s();
  }
  return sent;
}

// Whoever sees that the round is over ends it. An island whose connection breaks meanwhile still counts.
void IslandHub::wait_end_of(std::unique_lock<std::mutex>& lock, int64_t round, IslandChannel& channel,
                            const Island& island) {
  double said_s = now_s();
  while (!ends_ && age_.rounds + 1 == round && island.channel == &channel) {
    if (is_round_over()) return end_round();
    news_.wait_for(lock, std::chrono::duration<double>(std::min(kLook_s, spec_.timeout_s / 4)));
    if (now_s() - said_s < spec_.timeout_s / 4) continue;
    said_s = now_s();
    lock.unlock();
    say_wait(channel);
    lock.lock();
  }
}

bool IslandHub::is_round_over() const {
  if (is_taking_ || first_sent_s_ == 0) return false;
  const bool all =
      std::all_of(islands_.begin(), islands_.end(), [](const Island& i) { return i.has_sent || !i.is_present; });
  return all || now_s() - std::max(first_sent_s_, last_news_s_) > spec_.timeout_s;
}

// What an island has sent for the open round does not count: it is to send it again.
void IslandHub::take_back(Island& island) {
  island.has_sent = false;
  island.sent = {};
  if (std::none_of(islands_.begin(), islands_.end(), [](const Island& i) { return i.has_sent; })) first_sent_s_ = 0;
}

void IslandHub::end_round() {
  const int64_t round = age_.rounds + 1;
  int64_t furthest = 0;
  auto& place = state_[size_t((round - 1) % int64_t(state_.size()))];
  auto next = std::make_shared<Fragment>(*place);
  auto mean = std::make_shared<std::vector<float>>(next->outer.size());
  std::vector<const std::vector<float>*> all;
  for (size_t k = 0; k < islands_.size(); ++k) {
    Island& island = islands_[k];
    if (island.has_sent) {
      all.push_back(&island.sent);
      island.counted = round;
      furthest = std::max(furthest, island.step);
    } else if (std::exchange(island.is_present, false) && !island.is_done) {
      tell(fmt::format("round {}: island {} is absent, and left out until it comes back", round, k));
    }
  }
  for (size_t i = 0; i < mean->size(); ++i) {
    double sum = double((*all[0])[i]);
    for (size_t k = 1; k < all.size(); ++k) sum += double((*all[k])[i]);
    const float average = float(sum / double(all.size()));
    (*mean)[i] = spec_.outer.wire == OuterSpec::Wire::bf16 ? float(bf16(average)) : average;
    float none = 0;
    outer_step(spec_.outer, (*mean)[i], next->outer[i], next->momentum.empty() ? none : next->momentum[i]);
  }
  in_mean_ = int64_t(all.size());
  for (Island& island : islands_) take_back(island);
  place = std::move(next);
  mean_ = std::move(mean);
  age_.add_round(furthest);
  news_.notify_all();
}

std::string IslandHub::state_hash() const {
  int64_t all = 0, begin = 0;
  for (const int64_t size : spec_.sizes) all += size;
  uint64_t sum = 0;
  for (const auto& fragment : state_) {
    sum += word_sum(std::as_bytes(std::span(fragment->outer)), begin);
    sum += word_sum(std::as_bytes(std::span(fragment->momentum)), begin + all);
    begin += int64_t(fragment->outer.size());
  }
  return state_text(sum);
}

}  // namespace weft
