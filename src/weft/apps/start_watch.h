// Watches calls that need all ranks and have no timeout of their own: the start and the end of MPI.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace weft {

// While it lives, its thread looks once a second at the ranks of this host. If a signal has stopped one for
// kStoppedRank_s, or the call takes too long, it reports this as `command`'s error and ends this process with a
// failure; the launcher then ends the others. The lowest running rank of a host does this at once, the others some
// seconds later. Seconds in which this process itself was stopped do not count.
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
