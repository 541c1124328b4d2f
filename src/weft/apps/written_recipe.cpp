#include "weft/apps/written_recipe.h"

#include <filesystem>

#include "weft/apps/data_lines.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/recipe/islands.h"

namespace weft {

void write_planned_recipe(const std::string& write, const Recipe& made, const std::string& from,
                          const std::vector<std::string>& overrides) {
  write_file_durably(write, to_toml(made) + to_toml(parse_islands_file(from, overrides)));
}

void require_written_recipe(const std::string& write, const std::string& recipe, bool again) {
  if (write.empty()) return;
  std::error_code none;
  if (std::filesystem::equivalent(write, recipe, none))
    throw ConfigError(fmt::format("--write {}: is the recipe itself: name another file", write));
  require_replaceable("--write", write, again);
}

}  // namespace weft
