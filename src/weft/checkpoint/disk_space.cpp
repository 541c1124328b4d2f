#include "weft/checkpoint/disk_space.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

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
    if (!ignored) bytes += int64_t(size);
  }
  return bytes;
}

std::optional<int64_t> largest_file_bytes() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return int64_t(limit.rlim_cur);
}

}  // namespace weft
