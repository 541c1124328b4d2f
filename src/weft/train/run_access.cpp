#include "weft/train/run_access.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH, kOthersReach = S_IXGRP | S_IXOTH,
                 kOthersRead = S_IRGRP | S_IROTH | kOthersReach, kPrivate = S_IRWXU, kShared = S_IRWXU | S_IRWXG | 05;

std::optional<struct stat> state_of(const fs::path& path, bool follows) {
  struct stat state = {};
  const int failed = follows ? ::stat(path.c_str(), &state) : ::lstat(path.c_str(), &state);
  return failed != 0 ? std::nullopt : std::optional(state);
}

[[noreturn]] void refuse(const Recipe& recipe, const fs::path& path, const std::string& what, const std::string& mend) {
  throw ConfigError(fmt::format("run.dir = \"{}\": {} {}; {}, or run.private=false if others are to share the run",
                                recipe.run.dir, path.string(), what, mend));
}

void refuse_writers(const Recipe& recipe, const fs::path& path, mode_t mode) {
  if ((mode & kOthersWrite) != 0)
    refuse(recipe, path, fmt::format("may be written by others than its owner (mode {:03o})", mode & 0777),
           fmt::format("chmod go-w {}, if what it holds is yours", path.string()));
}

}  // namespace

void refuse_open_run_folder(const Recipe& recipe) {
  const fs::path dir = recipe.run.dir;
  const std::optional<struct stat> folder = state_of(dir, true);
  if (!recipe.run.is_private || !folder) return;
  if (folder->st_uid != ::geteuid() && ::geteuid() != 0)
    refuse(recipe, dir, fmt::format("belongs to somebody else (user {})", uint64_t(folder->st_uid)),
           "choose another folder");
  refuse_writers(recipe, dir, folder->st_mode);
  if ((folder->st_mode & kOthersReach) == 0) return;
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, unreadable))
    if (const auto inside = state_of(entry.path(), false); inside && !S_ISLNK(inside->st_mode))
      refuse_writers(recipe, entry.path(), inside->st_mode);
}

std::string warn_of_readers(const Recipe& recipe) {
  const std::optional<struct stat> folder = state_of(recipe.run.dir, true);
  if (!recipe.run.is_private || !folder || (folder->st_mode & kOthersRead) == 0) return "";
  return fmt::format(
      "run.dir = \"{0}\" was there already, and others may read it (mode {1:03o}): chmod 700 {0}, or run.private=false "
      "if they are meant to",
      recipe.run.dir, folder->st_mode & 0777);
}

void make_run_folder(const Recipe& recipe) {
  const fs::path named = recipe.run.dir, dir = named.has_filename() ? named : named.parent_path();  // "runs/first/"
  const fs::path parent = dir.has_parent_path() ? dir.parent_path() : fs::path(".");
  create_folders(parent);
  if (::mkdir(dir.c_str(), recipe.run.is_private ? kPrivate : kShared) == 0)
    sync_folder(parent);
  else if (errno != EEXIST)
    throw FileError(fmt::format("run.dir = \"{}\": cannot be created: {}; choose another folder, or make it yourself",
                                recipe.run.dir, std::strerror(errno)));
  refuse_open_run_folder(recipe);
}

}  // namespace weft
