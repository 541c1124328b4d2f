#include "weft/base/durable_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBuffer = 1 << 20;

// What the user can do about this error.
const char* advice_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free some space there, or choose a folder on another disk";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f), or choose another file system";
    case EACCES:
    case EPERM:
    case EROFS:
      return "make the folder writable, or choose another one";
    case ENOENT:
      return "create the folder first";
    case ENOTDIR:
    case EISDIR:
    case EEXIST:
    case ENOTEMPTY:
      return "move what has this name away";
    case EIO:
    case ESTALE:
      return "the disk or its connection is failing: check it, or choose another one";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    default:
      return "check the disk, or choose another folder";
  }
}

[[noreturn]] void fail_with(const fs::path& path, const char* what, int error) {
  throw FileError(fmt::format("{}: {}: {}; {}", path.string(), what, std::strerror(error), advice_for(error)));
}

fs::path with_suffix(fs::path path, const char* suffix) {
  if (!path.has_filename()) path = path.parent_path();  // "folder/"
  return path += suffix;
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// fsync of a file or folder by name.
void sync_path(const fs::path& path, int flags, bool readable = true) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (fd < 0 && errno == EACCES && !readable) return;
  if (fd < 0) fail_with(path, "cannot be synced", errno);
  if (::fsync(fd) == 0) return;
  // Some network file systems cannot sync a folder, and need not.
  if ((flags & O_DIRECTORY) == 0 || (errno != EINVAL && errno != ENOTSUP)) fail_with(path, "cannot be synced", errno);
}

void sync_all_in(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    sync_path(entry.path(), entry.is_directory() ? O_DIRECTORY : 0);
  }
  sync_path(folder, O_DIRECTORY);
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_with(path, "cannot be removed", error.value());
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_with(to, "cannot be put in place", errno);
}

}  // namespace

void create_folders(const fs::path& path) {
  const fs::path folder = path.has_filename() ? path : path.parent_path();  // "folder/"
  if (folder.empty() || fs::is_directory(folder)) return;
  create_folders(folder.parent_path());
  std::error_code error;
  fs::create_directory(folder, error);
  if (error && !fs::is_directory(folder)) fail_with(folder, "cannot be created", error.value());
  sync_path(parent_of(folder), O_DIRECTORY, false);
}

void sync_folder(const fs::path& folder) { sync_path(folder, O_DIRECTORY); }

void drop_from_memory(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (!at->is_regular_file(ignored)) continue;
    const Descriptor fd(::open(at->path().c_str(), O_RDONLY | O_CLOEXEC));
    if (fd >= 0) ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  }
}

namespace {

// Creates a file with other characters in place of the last six of its name, of which there is none yet; below 0, with
// errno: it cannot. As mkstemp does, but of the mode that the umask says.
int create_own(std::string& name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr int kTries = 100;
  std::random_device random;  // of the operating system
  int fd = -1;
  for (int i = 0; i < kTries && fd < 0 && (i == 0 || errno == EEXIST); ++i) {
    for (size_t at = name.size() - 6; at < name.size(); ++at) name[at] = kLetters[random() % kLetters.size()];
    fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  }
  return fd;
}

}  // namespace

bool is_cut_off(std::string_view name, std::string_view of) {
  constexpr std::string_view kMark = ".tmp-";
  constexpr size_t kLetters = 6;  // of create_own
  const size_t stem = name.size() - std::min(name.size(), kMark.size() + kLetters);
  return name.substr(stem).starts_with(kMark) && (of.empty() || name.substr(0, stem) == of);
}

DurableFile::DurableFile(fs::path path, TemporaryName name)
    : name_(name),
      path_(std::move(path)),
      temporary_(with_suffix(path_, name == kOwnName ? ".tmp-XXXXXX" : ".tmp").string()) {
  fd_ = name == kOwnName ? create_own(temporary_)
                         : ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd_ < 0) fail("cannot be written");
}

DurableFile::~DurableFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void DurableFile::write(std::string_view bytes) {
  WEFT_CHECK(fd_ >= 0, "{} is committed", path_.string());
  buffer_ += bytes;
  if (buffer_.size() >= kBuffer) flush();
}

void DurableFile::flush() {
  for (size_t at = 0; at < buffer_.size();) {
    const ssize_t written = ::write(fd_, buffer_.data() + at, std::min<size_t>(buffer_.size() - at, 1 << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = ENOSPC;  // nothing was said, and nothing was taken
    if (written <= 0) fail("cannot be written");
    at += size_t(written);
  }
  buffer_.clear();
}

void DurableFile::commit() {
  WEFT_CHECK(fd_ >= 0, "{} is committed already", path_.string());
  flush();
  if (::fsync(fd_) != 0) fail("cannot be written to disk");
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail_with(path_, "cannot be put in place", error);
  }
  sync_path(parent_of(path_), O_DIRECTORY, name_ != kOwnName);  // many write to such a folder, which they may not read
}

void DurableFile::fail(const char* what) const { fail_with(path_, what, errno); }

void write_file_durably(const fs::path& path, std::string_view content, TemporaryName name) {
  DurableFile file(path, name);
  file.write(content);
  file.commit();
}

fs::path DurableFolder::building_name(const fs::path& path) { return with_suffix(path, ".tmp"); }

DurableFolder::DurableFolder(fs::path path) : path_(std::move(path)), temporary_(building_name(path_)) {
  // Between the two renames of replace_existing, ".old" is the only whole one.
  if (const fs::path old = with_suffix(path_, ".old"); is_name_taken(old))
    is_name_taken(path_) ? remove_tree(old) : rename_path(old, path_);
  remove_tree(temporary_);
  std::error_code error;
  fs::create_directory(temporary_, error);
  if (error) fail_with(temporary_, "cannot be created", error.value());
}

DurableFolder::~DurableFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void DurableFolder::commit() {
  WEFT_CHECK(!committed_, "{} is committed already", path_.string());
  try {
    sync_all_in(temporary_);
  } catch (const fs::filesystem_error& e) { fail_with(e.path1(), "cannot be synced", e.code().value()); }
  if (is_name_taken(path_))
    replace_existing();
  else
    rename_path(temporary_, path_);
  committed_ = true;
  sync_folder(parent_of(path_));
}

void DurableFolder::replace_existing() {
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(parent_of(path_));
    return remove_tree(temporary_);
  }
  if (errno != EINVAL && errno != ENOSYS) fail_with(path_, "cannot be put in place", errno);
  const fs::path old = with_suffix(path_, ".old");  // a file system that cannot exchange two names
  rename_path(path_, old);
  rename_path(temporary_, path_);
  sync_folder(parent_of(path_));
  remove_tree(old);
}

}  // namespace weft
