#include "weft/apps/written_recipe.h"

#include <filesystem>

#include "weft/apps/data_lines.h"
#include "weft/base/error.h"

namespace weft {

void require_written_recipe(const std::string& write, const std::string& recipe, bool again) {
  if (write.empty()) return;
  std::error_code none;
  if (std::filesystem::equivalent(write, recipe, none))
    throw ConfigError(fmt::format("--write {}: is the recipe itself: name another file", write));
  require_replaceable("--write", write, again);
}

}  // namespace weft
