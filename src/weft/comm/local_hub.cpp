#include "weft/comm/local_hub.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "weft/base/threads.h"

namespace weft {
namespace {

// So long a rank looks for news before it sleeps: some wake-ups, of 11 us each where its gain was measured
// (docs/benchmarks.md, "Text on two ranks").
constexpr auto kLook = std::chrono::microseconds(100);

}  // namespace

LocalHub::LocalHub(int ranks) : seats_(size_t(ranks)), crowded_(ranks > usable_cores()), watch_(ranks) {}

void LocalHub::begin(int rank, std::shared_ptr<Operation> operation) {
  Lock lock(mutex_);
  check_alive();
  Seat& seat = seats_[size_t(rank)];
  seat.under_way.push_back(std::move(operation));
  advance_all(lock, seat);
}

void LocalHub::poll(int rank) {
  Seat& seat = seats_[size_t(rank)];
  if (seat.events == seat.seen) return;
  Lock lock(mutex_);
  check_alive();
  while (advance_all(lock, seat)) {}
}

void LocalHub::wait(int rank, const Operation& operation) {
  Lock lock(mutex_);
  Seat& seat = seats_[size_t(rank)];
  while (!operation.finished) {
    check_alive();
    if (!advance_all(lock, seat)) sleep(lock, rank, operation.call);
  }
}

bool LocalHub::advance_all(Lock& lock, Seat& seat) {
  bool any = false;
  seat.seen = seat.events;
  for (size_t i = 0; i < seat.under_way.size() && failure_.empty(); ++i) any |= seat.under_way[i]->advance(lock);
  std::erase_if(seat.under_way, [](const auto& operation) { return operation->finished; });
  return any;
}

// Sleeps until one of this rank's calls has made progress. If no rank is left that could cause that, every rank throws
// a CommError that says who waits for what.
void LocalHub::sleep(Lock& lock, int rank, const CommCall& call) {
  using namespace std::chrono_literals;
  constexpr int kStill = 4;  // seconds without a change on any rank
  Seat& seat = seats_[size_t(rank)];
  const auto over = [&] { return seat.events != seat.seen || !failure_.empty(); };
  if (over()) return;
  watch_.waits(rank, call);
  if (!crowded_) {
    lock.unlock();
    const bool goes_on = has_news_soon(seat);
    lock.lock();
    if (goes_on) return watch_.goes_on(rank);
  }
  int64_t seen = watch_.changes();
  for (int still = 0; !over();) {
    if (seat.news.wait_for(lock, 1s) == std::cv_status::no_timeout) continue;
    still = watch_.changes() == seen && !has_news() && !watch_.stuck().empty() ? still + 1 : 0;
    seen = watch_.changes();
    if (still == kStill && !over()) set_failure("the ranks wait for each other, and none can go on: " + watch_.stuck());
  }
  watch_.goes_on(rank);
}

// Whoever else wants the core meanwhile gets it.
bool LocalHub::has_news_soon(const Seat& seat) const {
  using Clock = std::chrono::steady_clock;
  for (const Clock::time_point until = Clock::now() + kLook; Clock::now() < until; std::this_thread::yield())
    if (seat.events != seat.seen) return true;
  return false;
}

// For a rank that has not woken up yet.
bool LocalHub::has_news() const {
  return std::any_of(seats_.begin(), seats_.end(), [](const Seat& s) { return s.events != s.seen; });
}

void LocalHub::wake(int rank) {
  Seat& seat = seats_[size_t(rank)];
  ++seat.events;
  seat.news.notify_one();
}

void LocalHub::set_failure(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  for (size_t r = 0; r < seats_.size(); ++r) wake(int(r));
}

void LocalHub::fail(const std::string& why) {
  set_failure(why);
  throw CommError(failure_);
}

void LocalHub::abort(const std::string& why) {
  Lock lock(mutex_);
  set_failure(why);
}

void LocalHub::abandon(int rank, const Operation& operation) noexcept {
  Lock lock(mutex_);
  set_failure(fmt::format("rank {} has given up before the end of {}", rank, operation.call.to_string()));
  std::erase_if(seats_[size_t(rank)].under_way, [&](const auto& o) { return o.get() == &operation; });
  still_.wait(lock, [this] { return moving_ == 0; });
}

}  // namespace weft
