#include "weft/comm/mpi/mpi_hub.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <thread>

#include "weft/base/threads.h"

namespace weft {

HostPeers::HostPeers(MPI_Comm ranks) : cores_(usable_cores()) {
  int size = 0;
  MPI_Comm_rank(ranks, &rank_);
  MPI_Comm_size(ranks, &size);
  Card mine;
  ::gethostname(mine.host, sizeof mine.host - 1);
  mine.pid = ::getpid();
  struct stat table = {};
  if (::stat("/proc/self/ns/pid", &table) == 0) mine.processes = uint64_t(table.st_ino);
  cards_.resize(size_t(size));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, cards_.data(), sizeof mine, MPI_BYTE, ranks),
            "tell the ranks of each other");
  for (int r = 0; r < size; ++r)
    if (std::strcmp(cards_[size_t(r)].host, mine.host) == 0) here_.push_back(r);
}

bool HostPeers::on_one_host(const std::vector<int>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](int r) {
    return std::strcmp(cards_[size_t(r)].host, cards_[size_t(ranks.front())].host) == 0;
  });
}

bool HostPeers::sees(const Card& other) const {
  const Card& mine = cards_[size_t(rank_)];
  return std::strcmp(other.host, mine.host) == 0 && other.processes == mine.processes && mine.processes != 0;
}

HostPeers::Is HostPeers::state(int rank) const {
  const Card& card = cards_[size_t(rank)];
  if (!sees(card)) return Is::unknown;
  std::ifstream file(fmt::format("/proc/{}/stat", card.pid));
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(") ");  // proc(5): "123 (name) S ..."
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return Is::gone;
  const char state = text[name_end + 2];
  if (state == 'T') return Is::stopped;
  return state == 'Z' || state == 'X' ? Is::gone : Is::running;
}

std::string HostPeers::name(int rank) const {
  const Card& card = cards_[size_t(rank)];
  return fmt::format("process {} on host {}", card.pid, card.host);
}

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kKinds = 3;           // of letters that are kept until they are taken
constexpr double kTellAfter_s = 1;  // without an event: others learn that this rank waits
constexpr double kSleepAfter_s = 5e-3;
constexpr int64_t kSpins = 5000;  // polls, of 0.2 us each, before the core is offered to others
constexpr auto kSleep = std::chrono::microseconds(50);
constexpr double kGone_s = 3;                 // the launcher ends the others itself, and sooner
constexpr double kArrive_s = 2;               // for what is on its way to a rank that fails
constexpr double kArriveAmongFailed_s = 0.2;  // where the others have failed too: they may be gone
constexpr double kLinger_s = 1;               // for letters that say why this rank fails

double since_s(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

}  // namespace

MpiHub::MpiHub(MPI_Comm control, HostPeers peers, const Patience& patience)
    : post_(control),
      peers_(std::move(peers)),
      patience_(patience),
      crowded_(peers_.here() > peers_.cores()),
      status_(size_t(post_.size())) {}

int MpiHub::add_group() {
  group(num_groups_);
  return num_groups_++;
}

// A rank makes its groups in the order of the others, but its first letters may come before this rank is there.
MpiHub::Group& MpiHub::group(int index) {
  while (int(groups_.size()) <= index) groups_.emplace_back().letters.resize(size_t(kKinds * size()));
  return groups_[size_t(index)];
}

LetterPtr MpiHub::take(NoteKind kind, int group, int from) {
  auto& box = groups_[size_t(group)].letters[size_t(int(kind) * size() + from)];
  if (box.empty()) return nullptr;
  LetterPtr letter = std::move(box.front());
  box.erase(box.begin());
  return letter;
}

void MpiHub::begin(std::shared_ptr<Operation> operation, int group) {
  Group& g = groups_[size_t(group)];
  if (operation->call.peer < 0)
    g.collectives.push_back(std::move(operation));
  else
    g.messages.push_back(std::move(operation));
  poll();
}

void MpiHub::poll() {
  check_alive();
  if (post_.poll([this](int from, LetterPtr letter) { arrived(from, std::move(letter)); })) ++events_;
  check_alive();
  move_all();
}

// Open MPI moves a little of its sockets' data at each poll.
void MpiHub::poll_between() {
  constexpr int kLooks = 16;
  poll();
  for (int i = 1; i < kLooks && !idle(); ++i) poll();
}

bool MpiHub::idle() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const Group& g) { return g.collectives.empty() && g.messages.empty(); });
}

void MpiHub::move_all() {
  const auto ends = [this](const std::shared_ptr<Operation>& operation) {
    operation->finished = operation->advance(events_);
    events_ += operation->finished;
    return operation->finished;
  };
  for (Group& g : groups_) {
    while (!g.collectives.empty() && ends(g.collectives.front())) g.collectives.pop_front();
    if (!g.messages.empty()) std::erase_if(g.messages, ends);
  }
}

void MpiHub::arrived(int from, LetterPtr letter) {
  const Note& note = letter->note;
  if (int(note.kind) < kKinds) {
    group(note.group).letters[size_t(int(note.kind) * size() + from)].push_back(std::move(letter));
    return;
  }
  if (note.kind == NoteKind::failed) {
    if (failure_.empty()) {
      failure_.assign(reinterpret_cast<const char*>(letter->payload), size_t(note.payload_bytes));
      failed_as_ = note.still ? Failure::hang : Failure::other;
    }
  } else {
    status_[size_t(from)] = note;
  }
  post_.recycle(std::move(letter));
}

void MpiHub::wait(const Operation& operation) {
  int64_t polls = 0, seen = -1;
  double looked_s = 0;
  Clock::time_point still_since;
  for (poll(); !operation.finished; poll()) {
    if (events_ != seen) {
      seen = events_;
      polls = 0;
      looked_s = 0;
      continue;
    }
    if (polls++ == 0) still_since = Clock::now();
    if (polls < kSpins && !crowded_) continue;
    const double still_s = since_s(still_since);
    rest(still_s);
    if (still_s < looked_s + kTellAfter_s) continue;
    looked_s = still_s;
    look_around(operation, still_s);
  }
}

void MpiHub::abandon(const Operation& operation) noexcept {
  try {
    const Clock::time_point began = Clock::now();
    const double limit_s = failure_.empty() ? kArrive_s : kArriveAmongFailed_s;
    while (operation.under_way() && !operation.finished && since_s(began) < limit_s) {
      post_.poll([this](int from, LetterPtr letter) { arrived(from, std::move(letter)); });
      move_all();
    }
  } catch (const std::exception&) {}  // of another operation: all ranks fail already
  const auto is_it = [&](const std::shared_ptr<Operation>& o) { return o.get() == &operation; };
  for (Group& g : groups_) {
    std::erase_if(g.collectives, is_it);
    std::erase_if(g.messages, is_it);
  }
}

void MpiHub::rest(double still_s) {
  if (still_s < kSleepAfter_s)
    sched_yield();
  else
    std::this_thread::sleep_for(kSleep);
}

void MpiHub::look_around(const Operation& operation, double still_s) {
  tell_status(NoteKind::waiting, operation.call);
  if (const std::string text = stuck(); !text.empty())
    fail("the ranks wait for each other, and none can go on: " + text);
  check_peers(operation, still_s);
}

// Tells all ranks, if it has changed.
void MpiHub::tell_status(NoteKind kind, const CommCall& call) {
  Note note = Note::of(kind, 0, call);
  note.still = true;
  for (const Group& g : groups_) {
    for (const auto& o : g.collectives) note.still = note.still && !o->under_way();
    for (const auto& o : g.messages) note.still = note.still && !o->under_way();
  }
  note.sent = post_.sent_marks();
  note.received = post_.received_marks();
  Note& last = status_[size_t(rank())];
  if (std::memcmp(&last, &note, sizeof note) == 0) return;
  last = note;
  for (int r = 0; r < size(); ++r)
    if (r != rank()) post_.send(r, note);
}

// The statuses are from different times, but only a letter or a transfer under way wakes a rank. So if every rank waits
// or has ended, nothing is under way, and all letters sent were received, no rank has woken since, nor will one.
std::string MpiHub::stuck() const {
  uint64_t sent = 0, received = 0;
  RankWatch watch(size());
  bool any_waits = false;
  for (int r = 0; r < size(); ++r) {
    const Note& s = status_[size_t(r)];
    if (s.kind == NoteKind::waiting && s.still)
      watch.waits(r, s.call());
    else if (s.kind == NoteKind::ended)
      watch.ended(r);
    else
      return "";
    any_waits = any_waits || s.kind == NoteKind::waiting;
    sent += s.sent;
    received += s.received;
  }
  return sent == received && any_waits ? watch.stuck() : "";
}

void MpiHub::check_peers(const Operation& operation, double still_s) {
  const std::vector<int> missing = operation.missing();
  const std::string me = fmt::format("rank {} waits in {}", rank(), operation.call.to_string());
  for (const int r : missing) {
    const HostPeers::Is is = peers_.state(r);
    if (is == HostPeers::Is::gone && still_s > kGone_s)
      fail(fmt::format("rank {} ({}) is gone, and {}", r, peers_.name(r), me));
    if (is == HostPeers::Is::stopped && still_s > patience_.stopped_s)
      fail(fmt::format("rank {} ({}) has been stopped by a signal for {:.0f} s or more, and {}", r, peers_.name(r),
                       patience_.stopped_s, me),
           Failure::hang);
  }
  if (still_s < patience_.timeout_s || missing.empty()) return;
  std::string waited_for;
  for (const int r : missing)
    waited_for += fmt::format("{}rank {} ({})", waited_for.empty() ? "" : ", ", r, peers_.name(r));
  fail(fmt::format("{} since {:.0f} s, for {}", me, still_s, waited_for), Failure::hang);
}

void MpiHub::tell_failure(const std::string& why, Failure kind) {
  if (failure_.empty()) {
    failure_ = why;
    failed_as_ = kind;
    const auto text = std::as_bytes(std::span(why)).first(std::min(why.size(), Letter::kPayload));
    for (int r = 0; r < size(); ++r)
      if (r != rank()) post_.send(r, {.kind = NoteKind::failed, .still = kind == Failure::hang}, text);
  }
  const Clock::time_point began = Clock::now();
  while (!post_.all_sent() && since_s(began) < kLinger_s) std::this_thread::sleep_for(kSleep);
}

void MpiHub::fail(const std::string& why, Failure kind) {
  tell_failure(why, kind);
  throw_failure();
}

bool MpiHub::all_ended() const {
  return std::all_of(status_.begin(), status_.end(), [](const Note& s) { return s.kind == NoteKind::ended; });
}

void MpiHub::finish() {
  const Clock::time_point began = Clock::now();
  tell_status(NoteKind::ended, {});
  double told_s = 0;
  for (poll(); !all_ended() || !post_.all_sent(); poll()) {
    rest(since_s(began));
    if (since_s(began) < told_s + kTellAfter_s) continue;
    told_s = since_s(began);
    tell_status(NoteKind::ended, {});  // so that what came meanwhile counts as received
  }
}

}  // namespace weft
