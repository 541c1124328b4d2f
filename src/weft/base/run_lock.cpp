#include "weft/base/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "weft/base/error.h"

namespace weft {

RunLock::RunLock(const std::filesystem::path& dir) {
  const std::filesystem::path file = dir / "run.lock";
  fd_ = Descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd_ < 0) throw FileError(fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK)
    throw ConfigError(
        fmt::format("run.dir = \"{}\" is in use by another weft: wait for it, or choose another", dir.string()));
  fd_ = Descriptor();  // a file system without locks: two runs in one folder are then not noticed
}

}  // namespace weft
