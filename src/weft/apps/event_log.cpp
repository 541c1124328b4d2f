#include "weft/apps/event_log.h"

#include "weft/base/error.h"
#include "weft/records/clock.h"
#include "weft/records/events.h"

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
  try {
    append_line(run_ / "events.jsonl", waiting_.substr(0, waiting_.size() - 1));
    waiting_.clear();
  } catch (const FileError&) {  // they wait for the next
  }
}

}  // namespace weft
