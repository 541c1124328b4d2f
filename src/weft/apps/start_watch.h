// Looks after a call in which all ranks must meet and that cannot look after itself: the start and the end of MPI.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace weft {

// While it lives, a thread of its own looks once a second at the ranks of this host. Where a signal has stopped one for
// kStoppedRank_s, or the call has not ended in time, it says so as `command`'s error and ends this process with the
// status of a failure, whereupon the launcher ends the others: of the ranks on a host that run, the lowest at once, the
// others some seconds later. Seconds in which this process itself was stopped do not count.
class StartWatch {
 public:
  struct Spec {
    std::string command;  // "train"
    std::string what;     // "the ranks have not found each other"
    double timeout_s = 0;
    std::string key;  // of the recipe, that gives timeout_s
    int rank = 0;
  };
  explicit StartWatch(const Spec& spec);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void run();
  bool ended_within(int seconds);

  const Spec spec_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread thread_;
};
inline constexpr int kStoppedRank_s = 10;

}  // namespace weft
