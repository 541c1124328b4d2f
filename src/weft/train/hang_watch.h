// Finds out that a run's step does not end, which ranks wait where, and which did not come there.
//
// A thread of each process looks at the ranks in it. A step that lasts eight times as long as the longest so far in
// this phase, and at least `least_s`, hangs: each process then writes what its ranks were in to RUN/hang/rank-R.json,
// reads what the others have written within seconds, writes the stacks of its threads to RUN/hang/stacks-R.txt (R: its
// first rank), and ends the run. Sections that wait for disks are not watched,
// nor is the first step; time in which the process itself was stopped does not count.
//
// Where a thread of the process crashes, the watch writes the stacks to RUN/crash/stacks-R.txt before the signal ends
// it as it would have.
#pragma once
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "weft/base/crash_hold.h"
#include "weft/base/thread_stacks.h"
#include "weft/comm/recorded.h"
#include "weft/records/heartbeat.h"

namespace weft {

// What a rank tells its watch. Thread-safe.
class RankSigns {
 public:
  explicit RankSigns(int rank) : rank(rank) {}
  const int rank;
  const int thread = int(::gettid());  // the rank's own, which makes this
  FlightRecord calls;
  void enter(RunSection section, int64_t step);
  struct Seen {
    RunSection section = RunSection::setup;
    int64_t step = 0, number = 0;  // of the sections so far
    double longest_s = 0;          // of the steps of this phase that have ended
  };
  Seen seen() const;

 private:
  mutable std::mutex mutex_;
  Seen seen_;
  double since_s_ = 0;
};

class HangWatch {
 public:
  struct Spec {
    std::filesystem::path run;
    int world = 1;
    double least_s = 30;
    // Told once, what has been found; ends the process. None: nobody watches.
    std::function<void(const std::string&)> hung = {};
    // Told of a crash, before the process ends.
    std::function<void(const std::string&)> crashed = {};
  };
  explicit HangWatch(Spec spec);
  ~HangWatch();
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;
  // A rank of this process joins, by its own thread. The signs live as long as the watch.
  RankSigns& join(int rank);
  // What a rank of this process was in, to its file: where its communicator has found the hang. Does not throw.
  void write(const RankSigns& signs) const noexcept;

 private:
  void run();
  bool look(double passed_s);
  void report(double still_s);
  void report_crash(const HeldCrash& crash) const;
  std::vector<NamedThread> ranks_here() const;
  // The file; empty where it could not be written.
  std::filesystem::path write_stacks(const std::filesystem::path& folder, const std::string& why,
                                     const std::vector<NamedThread>& named, double wait_s) const;

  const Spec spec_;
  std::mutex mutex_;
  std::condition_variable news_;
  bool ends_ = false;
  struct Watched {
    explicit Watched(int rank) : signs(rank) {}
    RankSigns signs;
    int64_t number = -1;  // of the section when it was looked at last
    double still_s = 0;   // since it changed
  };
  std::deque<Watched> ranks_;
  std::unique_ptr<CrashHold> crashes_;
  std::thread thread_;
};

// What the files of a hang say, of ranks that wait and those that they wait for: one line. `since_s`: of
// std::chrono::system_clock; older files are of another hang.
std::string hang_text(const std::filesystem::path& folder, int world, double since_s);

}  // namespace weft
