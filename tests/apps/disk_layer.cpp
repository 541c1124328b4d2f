// A layer between a program and the C library, by LD_PRELOAD: what changes files below a folder is counted, made to
// fail or recorded; and the time of day may be wrong.
//   WEFT_DISK_BELOW   the folder
//   WEFT_DISK_FAIL    "N ERRNO once" or "N ERRNO on": the call numbered N (from 1) fails; with "on" those behind it too
//   WEFT_DISK_RECORD  a file: a record of each call that did not fail (crash_states.h reads them)
//   WEFT_CLOCK_JUMP   seconds: from a second after a process first asks for the time of day, this clock jumps each
//                     millisecond, by turns so far ahead of the right time and so far behind it
// Not for builds with sanitizers, which have layers of their own.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace {

template <class F>
F next(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

std::string setting(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

std::string absolute(int folder, const char* path) {
  if (path[0] == '/') return path;
  char at[PATH_MAX] = {};
  if (folder == AT_FDCWD) return std::string(::getcwd(at, sizeof at) == nullptr ? "" : at) + "/" + path;
  const std::string link = "/proc/self/fd/" + std::to_string(folder);
  return ::readlink(link.c_str(), at, sizeof at - 1) < 0 ? path : std::string(at) + "/" + path;
}

std::string path_of(int fd) {
  char at[PATH_MAX] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return ::readlink(link.c_str(), at, sizeof at - 1) < 0 ? "" : at;
}

bool is_below(const std::string& path) {
  static const std::string below = setting("WEFT_DISK_BELOW");
  return !below.empty() && path.compare(0, below.size(), below) == 0;
}

// Whether this call is to fail; errno is set then.
bool fails() {
  static std::atomic<long> calls{0};
  static const std::string fault = setting("WEFT_DISK_FAIL");
  static long at = 0, error = 0;
  static char how[8] = {};
  static const int parsed = std::sscanf(fault.c_str(), "%ld %ld %7s", &at, &error, how);
  const long call = ++calls;
  if (parsed != 3 || call < at || (call > at && std::strcmp(how, "on") != 0)) return false;
  errno = int(error);
  return true;
}

void append(std::string& to, const void* from, size_t bytes) { to.append(static_cast<const char*>(from), bytes); }

// "c" created or truncated, "w" written, "t" size set, "s" synced, "r" renamed, "x" exchanged, "u" removed, "m" folder.
void record(char what, const std::string& path, const std::string& other = "", int64_t offset = 0,
            const void* data = nullptr, int64_t size = 0) {
  static const std::string name = setting("WEFT_DISK_RECORD");
  if (name.empty()) return;
  static const int fd = int(::syscall(SYS_openat, AT_FDCWD, name.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600));
  static std::mutex mutex;
  std::string all(1, what);
  for (const std::string* text : {&path, &other}) {
    const auto length = uint32_t(text->size());
    append(all, &length, sizeof length);
    all += *text;
  }
  append(all, &offset, sizeof offset);
  append(all, &size, sizeof size);
  const int before = errno;
  const std::lock_guard lock(mutex);
  ::syscall(SYS_write, fd, all.data(), all.size());
  if (data != nullptr) ::syscall(SYS_write, fd, data, size_t(size));
  errno = before;
}

template <class Call, class Note>
auto changed(const std::string& path, Call call, Note note) {
  if (!is_below(path)) return call();
  if (fails()) return decltype(call())(-1);
  const auto result = call();
  if (result >= 0) note(result);
  return result;
}

int opened(int folder, const char* path, int flags, mode_t mode) {
  const auto open_now = [&] { return int(::syscall(SYS_openat, folder, path, flags, mode)); };
  if ((flags & (O_CREAT | O_TRUNC)) == 0) return open_now();
  const std::string whole = absolute(folder, path);
  const bool was_there = ::faccessat(folder, path, F_OK, 0) == 0;
  return changed(whole, open_now, [&](int) {
    if (!was_there || (flags & O_TRUNC) != 0) record('c', whole);
  });
}

ssize_t written(int fd, const void* data, size_t bytes, off_t at, bool here) {
  const std::string path = path_of(fd);
  if (!is_below(path))
    return here ? ::syscall(SYS_write, fd, data, bytes) : ::syscall(SYS_pwrite64, fd, data, bytes, at);
  if (here && (::fcntl(fd, F_GETFL) & O_APPEND) != 0)
    at = ::lseek(fd, 0, SEEK_END);
  else if (here)
    at = ::lseek(fd, 0, SEEK_CUR);
  return changed(
      path, [&] { return here ? ::syscall(SYS_write, fd, data, bytes) : ::syscall(SYS_pwrite64, fd, data, bytes, at); },
      [&](long count) { record('w', path, "", at, data, count); });
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return opened(AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return opened(folder, path, flags, mode);
}
ssize_t write(int fd, const void* data, size_t bytes) { return written(fd, data, bytes, 0, true); }
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) { return written(fd, data, bytes, at, false); }
ssize_t pwrite64(int fd, const void* data, size_t bytes, off64_t at) { return written(fd, data, bytes, at, false); }
ssize_t writev(int fd, const iovec* parts, int count) {
  if (!is_below(path_of(fd))) return ::syscall(SYS_writev, fd, parts, count);
  std::string all;
  for (int i = 0; i < count; ++i) append(all, parts[i].iov_base, parts[i].iov_len);
  return written(fd, all.data(), all.size(), 0, true);
}
// So that what copies a file reads and writes.
ssize_t sendfile(int, int, off_t*, size_t) {
  errno = EINVAL;
  return -1;
}
ssize_t copy_file_range(int, off64_t*, int, off64_t*, size_t, unsigned) {
  errno = EINVAL;
  return -1;
}
int ftruncate(int fd, off_t size) noexcept {
  const std::string path = path_of(fd);
  return changed(
      path, [&] { return int(::syscall(SYS_ftruncate, fd, size)); }, [&](int) { record('t', path, "", size); });
}
int ftruncate64(int fd, off64_t size) noexcept { return ftruncate(fd, size); }
int posix_fallocate(int fd, off_t offset, off_t bytes) {
  const std::string path = path_of(fd);
  if (is_below(path) && fails()) return errno;
  static const auto real = next<int (*)(int, off_t, off_t)>("posix_fallocate");
  const int error = real(fd, offset, bytes);
  struct stat info;
  if (error == 0 && is_below(path) && ::fstat(fd, &info) == 0) record('t', path, "", info.st_size);
  return error;
}
int posix_fallocate64(int fd, off64_t offset, off64_t bytes) { return posix_fallocate(fd, offset, bytes); }
int fsync(int fd) {
  const std::string path = path_of(fd);
  return changed(
      path, [&] { return int(::syscall(SYS_fsync, fd)); }, [&](int) { record('s', path); });
}
int fdatasync(int fd) { return fsync(fd); }
int mkdir(const char* path, mode_t mode) noexcept {
  const std::string whole = absolute(AT_FDCWD, path);
  return changed(
      whole, [&] { return int(::syscall(SYS_mkdir, path, mode)); }, [&](int) { record('m', whole); });
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  const std::string whole = absolute(from_folder, from), there = absolute(to_folder, to);
  return changed(
      whole, [&] { return int(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags)); },
      [&](int) { record(flags == 0 ? 'r' : 'x', whole, there); });
}
int rename(const char* from, const char* to) noexcept { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  const std::string whole = absolute(folder, path);
  return changed(
      whole, [&] { return int(::syscall(SYS_unlinkat, folder, path, flags)); }, [&](int) { record('u', whole); });
}
int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
  const int gone = unlink(path);
  return gone != 0 && (errno == EISDIR || errno == EPERM) ? rmdir(path) : gone;
}
int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static const long jump = std::atol(setting("WEFT_CLOCK_JUMP").c_str());
  const int failed = int(::syscall(SYS_clock_gettime, clock, now));
  if (jump == 0 || clock != CLOCK_REALTIME || failed != 0) return failed;
  timespec steady = {};
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &steady);
  const long steady_ms = steady.tv_sec * 1000 + steady.tv_nsec / 1'000'000;
  static const long began_ms = steady_ms;
  if (steady_ms - began_ms >= 1000) now->tv_sec += steady_ms % 2 == 0 ? jump : -jump;
  return 0;
}

}  // extern "C"
