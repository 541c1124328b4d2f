#include "weft/apps/event_log.h"

#include <fstream>

#include "weft/records/clock.h"

namespace weft {

void EventLog::add(const std::string& event, nlohmann::json more) {
  more["event"] = event;
  more["time"] = wall_time_s();
  waiting_ += more.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  write();
}

void EventLog::write() {
  std::error_code ignored;
  if (waiting_.empty() || !std::filesystem::is_directory(run_, ignored)) return;
  std::ofstream file(run_ / "events.jsonl", std::ios::app);
  if (file << waiting_ << std::flush) waiting_.clear();
}

}  // namespace weft
