// The processes that work on one pipeline, on one host or on several: one leads, as `weft data run` does alone; others
// help it (--join).
//
// A stage has up to two passes, in which shards are made one by one, each by whoever takes it. All else (a folder's
// beginning, merges, manifests, removing) is the leader's. What they tell each other are locks in shards.lock, which
// vanish with their process: that one leads, which pass is open, who is at which shard. A helper writes only what
// belongs to a shard that it has taken, and only where the pass is open after it has taken it; the leader closes a pass
// and waits until nobody has a shard before it does anything else. So no helper, not even one of a killed run, writes
// into a folder while the leader creates, sweeps or removes it.
#pragma once
#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "weft/base/error.h"
#include "weft/base/number_locks.h"

namespace weft {

// Somebody asked to stop: what was finished stays, and the same command goes on from there.
class Interrupted : public Error {
 public:
  explicit Interrupted(const std::string& what = "stopped; the same command goes on from here") : Error(what) {}
};

// Waits a little, and each time somewhat more, up to a tenth of a second.
class Pause {
 public:
  explicit Pause(const std::atomic<bool>& stop) : stop_(stop) {}
  void wait();  // throws Interrupted
  void reset() { next_ = kLeast; }

 private:
  static constexpr std::chrono::microseconds kLeast{1000};
  const std::atomic<bool>& stop_;
  std::chrono::microseconds next_ = kLeast;
};

// All stages that there are, in order.
inline constexpr const char* kStageNames[] = {"read", "filter", "dedup", "decontaminate", "tokens"};
// Passes have numbers in the order in which they are gone through. `part`: 0, 1.
int pass_of(const std::string& stage, int part);

class Team {
 public:
  struct Spec {
    bool helps = false;
    double leader_wait_s = 0;  // for one to begin, if this one helps
    bool again = false;        // a complete dataset of other work is thrown away
    nlohmann::json work;       // what the bytes that are made depend on: a helper's must be the leader's (run.json)
    const std::atomic<bool>& stop;
  };
  // `folder` is the dataset's. A leader throws ConfigError if another leads, and waits for shards that helpers of an
  // earlier run still hold. A helper throws ConfigError if nobody leads (unless it came late) or the leader does other
  // work. Throws Interrupted, FileError.
  Team(const std::filesystem::path& folder, const Spec& spec);

  bool helps() const { return helps_; }
  // For a helper: nobody leads, and the last run did the same work and completed the dataset. Then nothing else may be
  // called.
  bool came_late() const { return came_late_; }

  // For the leader, before it makes a stage: writes this run to run.json, also beside a complete dataset.
  void note_work();
  // For the leader. After open, helpers may take shards of the pass; after close, none holds or gets one.
  void open(int pass);
  void close();

  // For a helper: where its leader is. kNoLeader: the leader has ended or was killed.
  enum class Turn { kNotYet, kNow, kOver, kNoLeader };
  Turn turn(int pass) const;
  // Waits until it is not kNotYet. Throws Interrupted.
  Turn wait_for(int pass) const;
  [[noreturn]] void lost_leader() const;  // throws Interrupted, with what to do

  // Any thread. False where another has it.
  bool take(int64_t shard);
  void release(int64_t shard);

 private:
  void begin_to_lead(bool again);
  void go_to(int64_t pass);
  bool find_leader(double wait_s, const nlohmann::json& work);
  bool was_completed(const nlohmann::json& work) const;
  void compare(const nlohmann::json& work) const;

  std::filesystem::path folder_;
  nlohmann::json work_;
  bool noted_ = false;  // a leader's: in run.json
  const std::atomic<bool>& stop_;
  bool helps_, came_late_ = false;
  int64_t at_ = 0;  // the leader's: the pass that is open; 0: none
  std::optional<RunLock> run_lock_;
  std::optional<NumberLocks> locks_;
};

}  // namespace weft
