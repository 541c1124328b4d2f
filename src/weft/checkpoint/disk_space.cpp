#include "weft/checkpoint/disk_space.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "weft/base/is_there.h"

namespace weft {

namespace fs = std::filesystem;

std::optional<int64_t> free_bytes_at(const fs::path& path) {
  std::error_code ignored;
  fs::path there = fs::absolute(path, ignored);
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  struct statvfs info = {};
  if (::statvfs(there.c_str(), &info) != 0 || info.f_blocks == 0) return {};
  return int64_t(::geteuid() == 0 ? info.f_bfree : info.f_bavail) * int64_t(info.f_frsize);
}

int64_t bytes_below(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const auto size = at->is_regular_file(ignored) ? at->file_size(ignored) : 0;
    const auto room = uint64_t(std::numeric_limits<int64_t>::max() - bytes);  // files with holes may be of any size
    if (!ignored) bytes += int64_t(std::min<uint64_t>(size, room));
  }
  return bytes;
}

std::optional<int64_t> largest_file_bytes() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return int64_t(limit.rlim_cur);
}

namespace {

namespace fs = std::filesystem;

// Deepest first, one by one.
void remove_all_of(const fs::path& path, const std::function<void()>& before) {
  std::error_code error;
  if (fs::is_directory(fs::symlink_status(path, error)))
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      remove_all_of(at->path(), before);
  if (before) before();
  fs::remove(path, error);
}

}  // namespace

void remove_folder(const fs::path& path, const std::function<void()>& before) {
  const fs::path going = fs::path(path.string() + ".removing");
  if (is_name_taken(going)) remove_all_of(going, before);
  if (before) before();
  if (::rename(path.c_str(), going.c_str()) != 0) return;
  const int parent = ::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent >= 0) ::fsync(parent), ::close(parent);
  remove_all_of(going, before);
}

void clean_left_behind(const fs::path& path, const std::function<void()>& before) {
  const std::string suffix = path.extension().string();
  const fs::path whole = path.parent_path() / path.stem();
  if (suffix == ".old" && !is_name_taken(whole)) {  // between the two renames of DurableFolder
    if (before) before();
    (void)::rename(path.c_str(), whole.c_str());
  } else if (suffix == ".tmp" || suffix == ".removing" || suffix == ".old") {
    remove_all_of(path, before);
  }
}

}  // namespace weft
