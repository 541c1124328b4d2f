// An island's side of the exchange: what all ranks of its job do together, of which the first talks to the hub.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/comm/communicator.h"
#include "weft/islands/island_words.h"
#include "weft/islands/outer_state.h"

namespace weft {

// Every rank makes one; only the first needs address and secret. All calls but the accessors are collective, and block:
// for a hub that does not answer for timeout_s (once that was so, for a moment, until it answers again), and for the
// other islands, as long as the hub waits for them. A hub that is away is told and does not end the run: the island
// trains on alone. Once `stopped` is true on the first rank, they return within a moment, as if no hub had answered.
// What the hub refuses, and a hub or island without the secret, is a ConfigError on all ranks.
class IslandMember {
 public:
  struct Spec {
    Communicator& world;
    std::string address, secret;
    Hello hello;  // number, settings, model, data
    int64_t steps_of_round = 1, last_step = 0;
    int64_t max_staleness = 0;
    double timeout_s = 60;
    std::function<void()> begin_to_write;          // waits until nobody works on the masters
    std::function<void()> has_written;             // the masters have changed
    std::function<void(const std::string&)> tell;  // by the first rank
    std::function<bool()> stopped = [] { return false; };
  };
  // `age`: of the state.
  IslandMember(Spec spec, OuterState& state, const OuterAge& age);

  // Before the first step. `must`: that no hub answers is then a ConfigError, for a run that begins. Returns the step
  // to go on at, `step` or a later one: that of the outer weights which the island has taken. A run that has done all
  // its steps makes the exchanges that follow the last one, if they are missing.
  int64_t begin(int64_t step, bool must);
  // Whether an exchange follows so many steps.
  bool is_due(int64_t step) const { return step % spec_.steps_of_round == 0; }
  // After so many steps: exchanges the fragment whose turn it is; after the last step, all. Returns as begin: islands
  // that exchange go on at the step of the furthest of them. One that finds the others before the last step when it is
  // there has their outer weights, and is done.
  int64_t exchange(int64_t step);
  // All steps are done.
  void end();

  const OuterAge& age() const { return age_; }
  // Whether the last begin or exchange has changed the weights.
  bool has_changed() const { return has_changed_; }
  // On the connection to the hub, since the run's start; of the first rank.
  int64_t sent_bytes() const { return sent_bytes_ + (channel_ ? channel_->sent_bytes() : 0); }
  int64_t sent_since_begin() const { return sent_bytes() - sent_to_begin_; }
  int64_t received_bytes() const { return received_bytes_ + (channel_ ? channel_->received_bytes() : 0); }

 private:
  enum class Next : uint8_t { go, give, take, alone, wait };
  enum class Exchanged : uint8_t { yes, took, no };  // no: the connection is lost
  bool leads() const { return spec_.world.rank() == 0; }
  int64_t catch_up(int64_t step, bool must);
  int64_t exchange_due(int64_t step);
  Next meet();
  Next hear_next();
  Exchanged exchange_one(int64_t& step);
  Exchanged offer(int64_t& step);
  bool give();
  bool take(int64_t& step);
  bool send_fragment(int64_t fragment, OuterState::What what);
  bool receive_fragment(int64_t fragment, OuterState::What what);
  bool attempt(const std::function<void()>& f);
  void heed_stop();
  void hang_up();
  double told(double by_first) const;
  void share_refusal();
  void tell_all(OuterAge& age) const;
  bool is_at_end(int64_t step) const;
  bool is_open(int64_t fragment, int64_t step) const;

  const Spec spec_;
  OuterState& state_;
  OuterAge age_;
  std::optional<IslandChannel> channel_;  // of the first rank
  bool is_alone_ = false;                 // the hub did not answer
  bool has_met_ = false;                  // it has answered once
  bool is_stopped_ = false;               // the run is asked to stop; the same on all ranks
  bool has_changed_ = false;
  std::string refusal_;                          // of the first rank, to be told to all
  Welcome hub_;                                  // where the hub is; the same on all ranks after told
  int64_t sent_bytes_ = 0, received_bytes_ = 0;  // of connections that are over
  int64_t sent_to_begin_ = 0;
};

}  // namespace weft
