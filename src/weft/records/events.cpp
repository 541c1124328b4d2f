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

void append_line(const std::filesystem::path& path, const std::string& line) {
  std::string text = line + "\n";
  const Descriptor file(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  const off_t end = file < 0 ? -1 : ::lseek(file, 0, SEEK_END);
  char last = '\n';
  if (end > 0 && ::pread(file, &last, 1, end - 1) == 1 && last != '\n') text = "\n" + text;  // a crash tore that one
  const ssize_t written = file < 0 ? -1 : ::write(file, text.data(), text.size());
  if (written == ssize_t(text.size())) return;
  const int reason = written < 0 ? errno : ENOSPC;
  if (written > 0 && ::ftruncate(file, end) != 0)  // half a line would spoil the next one
    throw FileError(fmt::format("{}: its last line is torn: {}", path.string(), std::strerror(errno)));
  throw FileError(fmt::format("{}: cannot be written: {}", path.string(), std::strerror(reason)));
}

void append_event(const std::filesystem::path& run, const std::string& event, nlohmann::json more) {
  more["event"] = event;
  more["time"] = wall_time_s();
  append_line(run / "events.jsonl", more.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace weft
