// The hub of islands: takes from each what it has made of the outer weights, gives all the mean, and keeps the outer
// weights and their momentum for those that come late.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "weft/islands/island_words.h"
#include "weft/islands/outer_step.h"

namespace weft {

// Keeps nothing on a disk: each island has the outer weights and momentum, and a hub that begins anew takes them from
// the island whose are of most rounds. Rounds follow each other, each of one fragment. A round ends when all islands
// that are present have sent their numbers, or when, after the first has, nothing more has come for timeout_s: who has
// not sent is then absent, and is not waited for until it comes back. Who has not shown yet that it knows the secret
// does not keep islands out: of too many such connections the oldest is ended, and each has 10 s to say hello. Memory:
// 8 bytes for each weight (4 without momentum), and 4 for each weight of a fragment and island.
class IslandHub {
 public:
  struct Spec {
    std::string address, secret;
    int64_t count = 0;
    std::string settings, model;  // as every island must say them (Hello)
    OuterSpec outer;
    std::vector<int64_t> sizes;  // of the fragments
    double timeout_s = 60;
    std::function<void(const std::string&)> tell = [](const std::string&) {};  // who comes and goes; one at a time
  };
  // Listens. Throws ConfigError.
  explicit IslandHub(Spec spec);
  ~IslandHub();
  IslandHub(const IslandHub&) = delete;
  IslandHub& operator=(const IslandHub&) = delete;
  int port() const { return listener_.port; }

  // Serves until every island has said farewell (true), or until `stop` is set (false).
  bool serve(const std::atomic<bool>& stop);
  int64_t rounds() const;

 private:
  struct Fragment {
    std::vector<float> outer, momentum;
  };
  using State = std::vector<std::shared_ptr<const Fragment>>;  // each fragment is replaced, never changed
  struct Island {
    bool is_present = true, is_done = false, has_sent = false;
    int64_t counted = 0;               // the last round that had its numbers
    int64_t step = 0;                  // that it was after when it offered these
    std::vector<float> sent;           // of the open round, while has_sent
    IslandChannel* channel = nullptr;  // the newest
  };
  struct Session {
    std::thread thread;
    Descriptor socket;  // of its own, so that it can be ended from here
    bool is_cut = false;
    std::atomic<bool> is_proven{false}, is_over{false};
    void cut();
  };
  void serve_connection(Descriptor socket, Session& session);
  void serve_island(IslandChannel& channel);
  void require_alike(const Hello& hello);
  void meet(IslandChannel& channel, const Hello& hello);
  void take_from(IslandChannel& channel, const Hello& hello);
  void give_to(IslandChannel& channel, const State& state, bool with_momentum) const;
  void serve_rounds(IslandChannel& channel, int64_t number);
  bool serve_round(IslandChannel& channel, int64_t number, const RoundOffer& offer);
  std::vector<float> receive_sent(IslandChannel& channel, int64_t size);
  void wait_end_of(std::unique_lock<std::mutex>& lock, int64_t round, IslandChannel& channel, const Island& island);
  bool is_round_over() const;
  void end_round();
  void take_back(Island& island);
  bool all_done() const;
  std::string state_hash() const;
  void reap(bool all);
  void make_room();
  void tell(const std::string& text);

  const Spec spec_;
  Listener listener_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::atomic<bool> ends_{false};
  // Under mutex_:
  std::vector<Island> islands_;
  OuterAge age_{.rounds = -1};  // of state_; -1: there is none yet
  bool is_taking_ = false;
  std::string data_;  // that the first island has said
  State state_;
  double first_sent_s_ = 0, last_news_s_ = 0;  // of the open round; first_sent_s_ 0: nobody has
  std::shared_ptr<const std::vector<float>> mean_;
  int64_t in_mean_ = 0;

  std::list<Session> sessions_;  // of serve's thread
  std::mutex telling_;
};

// As a hub and an island say it of their state: `sum` over outer weights and momentum, as OuterState::sum has it.
std::string state_text(uint64_t sum);

}  // namespace weft
