#include "weft/records/events.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/records/clock.h"

namespace weft {

void append_event(const std::filesystem::path& run, const std::string& event, nlohmann::json more) {
  const std::filesystem::path path = run / "events.jsonl";
  more["event"] = event;
  more["time"] = wall_time_s();
  const std::string line = more.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (file < 0 || ::write(file, line.data(), line.size()) != ssize_t(line.size()))
    throw FileError(fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)));
}

}  // namespace weft
