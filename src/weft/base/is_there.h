// Whether something has a name in the file system. What cannot be looked at counts as not there.
#pragma once
#include <filesystem>

namespace weft {

inline bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}
// The same, but a dangling link counts as there.
inline bool is_name_taken(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

}  // namespace weft
