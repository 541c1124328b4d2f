// The queue of a machine's supervised runs: at most as many go at once as it has cores for
// (docs/operations.md#several-runs-on-one-machine).
//   FOLDER/queue.lock          locked while somebody looks at the entries, or changes its own
//   FOLDER/run-XXXXXXXX.entry  a run that goes or waits, in JSON; locked as long as its supervisor lives
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/descriptor.h"
#include "weft/recipe/recipe.h"

namespace weft {

struct QueuedRun {
  std::string run;        // its folder
  int64_t priority = 0;   // higher ones first
  int64_t cores = 1;      // that it takes
  int64_t of_cores = 1;   // that its supervisor may use
  int64_t number = 0;     // from 1 on, in the order in which runs came
  bool goes = false;      // has its place; else it waits
  double since_s = 0;     // since 1970: that it goes, or waits
  int64_t process = 0;    // of its supervisor
  bool has_turn = false;  // is to go, says take_turns; where it goes and has no turn it is to give way
};

// Sorts runs and says which of them are to go: higher priority first; of equals those that go before those that wait,
// then in the order in which they came. None that waits overtakes another: cores may stay idle until there are enough
// for the next one. There are as many cores as the one that may use the most of them says.
void take_turns(std::vector<QueuedRun>& runs);

// Throws ConfigError where run.queue or run.priority would have no effect: for a run that is not supervised, or without
// a queue.
void check_queue_keys(const Recipe& recipe, bool is_supervised);

// A supervised run in the queue, from try_take on. The entry goes with this object; where the process was killed,
// others find it unlocked and remove it. No other process is asked or signalled: each looks, and gives way itself.
// Where the folder cannot be read or written any more, calls throw FileError, and may be tried again.
class QueuePlace {
 public:
  // Makes the folder where it is missing. Throws ConfigError where it can be no queue: it is no folder, may not be
  // written to, or its file system has no locks.
  QueuePlace(std::filesystem::path folder, const std::string& run, int64_t priority);
  ~QueuePlace();
  QueuePlace(const QueuePlace&) = delete;
  QueuePlace& operator=(const QueuePlace&) = delete;

  // Whether the run has a place of so many cores (at most all that this process may use) from now on; else it waits.
  // Does not wait itself. Throws ConfigError where another supervisor has the same run in the queue.
  bool try_take(int64_t cores);
  bool has(int64_t cores) const { return self_.goes && self_.cores == cores; }
  // Leaves the queue until try_take, which finds its number again: the run keeps its turn among equals.
  void give_back();
  // While it has a place: a run of higher priority for which it is to save, end and give it back.
  std::optional<QueuedRun> who_needs_it();

  // All in the queue as of the last call, in their order, and which of them this is.
  const std::vector<QueuedRun>& runs() const { return runs_; }
  const QueuedRun& self() const { return self_; }
  // Runs whose supervisors were killed, and whose entries this one has removed since the last call.
  std::vector<QueuedRun> take_reclaimed() { return std::exchange(reclaimed_, {}); }

 private:
  bool has_entry() const;
  void look();
  void find_turn();
  void write(bool goes);
  void make_entry();

  const std::filesystem::path folder_;
  QueuedRun self_;
  std::filesystem::path entry_;
  Descriptor fd_;
  std::vector<QueuedRun> runs_, reclaimed_;
};

// All runs of this machine in a queue, in their order. Changes nothing. Throws ConfigError where it is no folder;
// FileError.
std::vector<QueuedRun> runs_in_queue(const std::filesystem::path& folder);

}  // namespace weft
