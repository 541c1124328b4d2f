// What happens to runs, told once: for who is not looking at the page.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "weft/page/run_view.h"

namespace weft {

// Tells of
//   states   that a run came to (RunView::state()), as events of their names
//   events   that came to its events.jsonl; what "finished" and "stopped" say, its state does
//   slow     the last 16 steps had less than half the tokens a second of the up to 240 before, in medians; told again
//            only once they had three quarters of that
// What was so when it looked first is not told. All functions may be called from any thread.
class RunNews {
 public:
  // The events that there are, and those that are told where nothing else is said.
  static const std::vector<std::string>& all_kinds();
  static const std::vector<std::string>& urgent_kinds();

  // Throws ConfigError where there is no such kind.
  explicit RunNews(std::vector<std::string> kinds);
  ~RunNews();

  void look(const RunView& run);

  // The oldest that was not taken yet; null: none. Fields: `event`, `run` (its name), `path`, `step`, `time`, `text`
  // (all of it in a sentence) and what the event has of its own.
  nlohmann::ordered_json take();
  // Events that came while kMostWaiting waited, or so many between two looks that a RunView has not kept them.
  int64_t num_left_out() const;

  static constexpr size_t kMostWaiting = 1000;

 private:
  struct Seen {
    std::string state;
    int64_t num_events = 0;
    int64_t step = 0;  // of the last record that was looked at
    bool is_slow = false;
  };
  void tell(const RunView& run, nlohmann::ordered_json event);
  void tell_state(const RunView& run, Seen& seen);
  void tell_events(const RunView& run, Seen& seen);
  void tell_speed(const RunView& run, Seen& seen);

  const std::set<std::string> kinds_;
  mutable std::mutex mutex_;
  std::map<std::string, Seen> seen_;  // by path
  std::deque<nlohmann::ordered_json> waiting_;
  int64_t num_left_out_ = 0;
};

}  // namespace weft
