#include "weft/base/number_locks.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "weft/base/error.h"
#include "weft/base/host_name.h"

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

namespace {

// Who looks whether a run is running shares its lock for some microseconds (history/run_facts.cpp). Returns 0, or why
// there is no lock.
int try_flock(int fd, int kind) {
  constexpr int kMostLooks = 10;
  int reason = 0;
  for (int look = 0; look < kMostLooks; ++look) {
    if (::flock(fd, kind | LOCK_NB) == 0) return 0;
    reason = errno;
    if (reason != EWOULDBLOCK) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return reason;
}

// As the owner has written it; nothing where its disk was full.
std::string owner_in(int fd) {
  char text[256];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  const std::string_view all(text, n > 0 ? size_t(n) : 0);
  const std::string_view line = all.substr(0, all.find('\n'));
  return line.empty() ? "" : fmt::format(", {}", line);
}

// On a full disk nobody is named. The file's time stays: of a run without attempts.jsonl it tells when it began.
void write_owner(int fd, const std::string& owner) {
  struct stat before = {};
  const bool has_time = ::fstat(fd, &before) == 0;
  [[maybe_unused]] const bool told =
      ::ftruncate(fd, 0) == 0 && ::pwrite(fd, owner.data(), owner.size(), 0) == ssize_t(owner.size());
  const struct timespec times[] = {before.st_atim, before.st_mtim};
  if (has_time) ::futimens(fd, times);
}

[[noreturn]] void refuse(const std::filesystem::path& dir, int fd) {
  throw ConfigError(fmt::format("run.dir = \"{}\" is in use by another weft{}: wait for it, or choose another",
                                dir.string(), owner_in(fd)));
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& dir) {
  const std::filesystem::path file = dir / "run.lock";
  fd_ = Descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd_ < 0) throw FileError(fmt::format("{}: cannot be opened: {}", file.string(), std::strerror(errno)));
  const int reason = try_flock(fd_, LOCK_EX);
  if (reason == EWOULDBLOCK) refuse(dir, fd_);
  if (reason != 0) {
    fd_ = Descriptor();  // a file system without locks: two runs in one folder are then not noticed
    return;
  }
  write_owner(fd_, fmt::format("process {} on host {}\n", ::getpid(), name_of_host()));
}

RunLock::~RunLock() {
  if (fd_ >= 0) write_owner(fd_, "");
}

void RunLock::refuse_held(const std::filesystem::path& dir) {
  const Descriptor fd(::open((dir / "run.lock").c_str(), O_RDONLY | O_CLOEXEC));
  if (fd >= 0 && try_flock(fd, LOCK_SH) == EWOULDBLOCK) refuse(dir, fd);
}

}  // namespace weft
