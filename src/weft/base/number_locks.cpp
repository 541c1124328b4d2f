#include "weft/base/number_locks.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "weft/base/error.h"

namespace weft {
namespace {

struct flock range(short type, int64_t first, int64_t count) {
  struct flock r = {};
  r.l_type = type;
  r.l_whence = SEEK_SET;
  r.l_start = first;
  r.l_len = count;
  return r;
}

}  // namespace

NumberLocks::NumberLocks(const std::filesystem::path& file) : file_(file) {
  fd_ = Descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd_ < 0) fail("cannot be opened", errno);
  struct flock all = range(F_WRLCK, 0, kToTheEnd);
  work_ = ::fcntl(fd_, F_OFD_GETLK, &all) == 0;
}

bool NumberLocks::try_lock(int64_t first, int64_t count) {
  if (!work_) return true;
  struct flock wanted = range(F_WRLCK, first, count);
  if (::fcntl(fd_, F_OFD_SETLK, &wanted) == 0) return true;
  if (errno != EAGAIN && errno != EACCES) fail("cannot be locked", errno);
  return false;
}

void NumberLocks::unlock(int64_t first, int64_t count) {
  struct flock held = range(F_UNLCK, first, count);
  if (work_ && ::fcntl(fd_, F_OFD_SETLK, &held) != 0) fail("cannot be unlocked", errno);
}

std::optional<int64_t> NumberLocks::locked_by_another(int64_t first, int64_t count) const {
  if (!work_) return {};
  struct flock found = range(F_WRLCK, first, count);
  if (::fcntl(fd_, F_OFD_GETLK, &found) != 0) fail("cannot be asked for its locks", errno);
  if (found.l_type == F_UNLCK) return {};
  return std::max(first, int64_t(found.l_start));
}

void NumberLocks::fail(const char* what, int reason) const {
  throw FileError(
      fmt::format("{}: {}: {}; is its file system there and writable?", file_.string(), what, std::strerror(reason)));
}

RunLock::RunLock(const std::filesystem::path& dir) {
  const std::filesystem::path file = dir / "run.lock";
  fd_ = Descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd_ < 0) throw FileError(fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  // Who looks whether a run is running shares its lock for some microseconds (history/run_facts.cpp).
  constexpr int kMostLooks = 10;
  int reason = 0;
  for (int look = 0; look < kMostLooks; ++look) {
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
    reason = errno;
    if (reason != EWOULDBLOCK) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (reason == EWOULDBLOCK)
    throw ConfigError(
        fmt::format("run.dir = \"{}\" is in use by another weft: wait for it, or choose another", dir.string()));
  fd_ = Descriptor();  // a file system without locks: two runs in one folder are then not noticed
}

}  // namespace weft
