#include "weft/apps/new_folder.h"

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/is_there.h"

namespace weft {

std::filesystem::path require_new_folder(std::string_view option, const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(name).lexically_normal();
  if (is_there(folder)) throw ConfigError(fmt::format("{} {}: is there already: name a new folder", option, name));
  return folder;
}

void make_parent(std::string_view option, const std::filesystem::path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), error);
  if (error)
    throw FileError(fmt::format("{} {}: {}; choose another {}", option, folder.string(), error.message(), option));
}

}  // namespace weft
