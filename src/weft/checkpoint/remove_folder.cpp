#include "weft/checkpoint/remove_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "weft/base/is_there.h"

namespace weft {
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
