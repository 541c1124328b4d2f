#include "weft/train/run_folder.h"

#include "weft/base/error.h"
#include "weft/checkpoint/durable_file.h"

namespace weft {
namespace {

// A start that failed before its first step leaves a folder that any recipe may take.
bool has_results(const std::filesystem::path& dir) {
  namespace fs = std::filesystem;
  std::error_code none;
  return (fs::exists(dir / "metrics.jsonl") && fs::file_size(dir / "metrics.jsonl", none) > 0) ||
         (fs::exists(dir / "checkpoints") && !fs::is_empty(dir / "checkpoints", none));
}

}  // namespace

void claim_run_folder(const Recipe& recipe) {
  namespace fs = std::filesystem;
  const fs::path dir = recipe.run.dir, file = dir / "recipe.toml";
  if (fs::exists(file) && has_results(dir)) {
    const auto differences = recipe_differences(parse_recipe_file(file.string(), {}), recipe);
    if (!differences.empty()) {
      std::string list;
      for (const auto& d : differences) list += "\n  " + d;
      throw ConfigError(fmt::format(
          "run.dir = \"{}\" holds a run of another recipe; choose another run.dir (to go on from that run's "
          "weights: model.path=<its newest checkpoint> model.init=pretrained). Differences:{}",
          recipe.run.dir, list));
    }
  } else if (fs::exists(dir) && !fs::exists(file) && !fs::is_empty(dir)) {
    throw ConfigError(fmt::format("run.dir = \"{}\" exists, and is no run of weft's: choose another", recipe.run.dir));
  }
  std::error_code error;
  fs::create_directories(dir, error);
  if (error)
    throw FileError(fmt::format("{}: cannot be created: {}; choose another run.dir", dir.string(), error.message()));
  write_file_durably(file, to_toml(recipe));
}

}  // namespace weft
