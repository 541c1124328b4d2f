#include "weft/train/run_folder.h"

#include <fstream>

#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/data_files.h"
#include "weft/train/run_length.h"

namespace weft {
namespace {

constexpr std::string_view kMark = "# weft wrote this: the whole recipe of the run in this folder.\n";

// A start that failed before its first step leaves a folder that any recipe may take.
bool has_results(const std::filesystem::path& dir) {
  namespace fs = std::filesystem;
  std::error_code none;
  return (fs::exists(dir / "metrics.jsonl", none) && fs::file_size(dir / "metrics.jsonl", none) > 0) ||
         (fs::exists(dir / "checkpoints", none) && !fs::is_empty(dir / "checkpoints", none));
}

// Whether it is the recipe of a run that has not begun yet: not a file of the user's.
bool is_ours(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  return std::getline(in, line) && line + "\n" == kMark;
}

bool holds(const std::filesystem::path& file, const std::string& text) {
  std::ifstream in(file, std::ios::binary);
  return in && std::string(std::istreambuf_iterator<char>(in), {}) == text;
}

// Leftovers of a start that ended early count as nothing.
bool is_as_good_as_empty(const std::filesystem::path& dir) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(dir, none)) {
    const auto name = entry.path().filename();
    if (name != "run.lock" && name != "recipe.toml.tmp") return false;
  }
  return true;
}

// 0 where it cannot be read: whether the run can go on is judged when it is loaded.
int64_t steps_of(const std::filesystem::path& checkpoint) {
  try {
    return read_progress(checkpoint).step;
  } catch (const FileError&) { return 0; }
}

void refuse_foreign(const Recipe& recipe) {
  namespace fs = std::filesystem;
  const fs::path dir = recipe.run.dir, file = dir / "recipe.toml";
  std::error_code error;
  const bool has_recipe = fs::exists(file, error);
  if (has_recipe && has_results(dir)) {
    refuse_another_recipe(
        recipe, file,
        fmt::format("run.dir = \"{}\" holds a run of another recipe; choose another run.dir (to go on "
                    "from that run's weights: model.path=<its newest checkpoint> model.init=pretrained)",
                    recipe.run.dir));
    if (const auto newest = newest_checkpoint(dir)) require_steps_left(recipe, steps_of(*newest), *newest);
  } else if (fs::exists(dir, error) && !(has_recipe && is_ours(file)) && !is_as_good_as_empty(dir)) {
    throw ConfigError(fmt::format("run.dir = \"{}\" exists, and is no run of weft's: choose another", recipe.run.dir));
  }
}

}  // namespace

void refuse_another_recipe(const Recipe& recipe, const std::filesystem::path& file, const std::string& what) {
  Recipe there = parse_recipe_file(file.string(), {});
  if (have_the_same_files(there, recipe)) {  // a dataset's folder, or what is in it
    there.data.train = recipe.data.train;
    there.data.weights = recipe.data.weights;
    there.data.valid = recipe.data.valid;
  }
  allow_another_length(there, recipe);
  const auto differences = recipe_differences(there, recipe);
  if (differences.empty()) return;
  std::string list;
  for (const auto& d : differences) list += "\n  " + d;
  throw ConfigError(fmt::format("{}. Differences:{}", what, list));
}

void write_run_recipe(const Recipe& recipe) {
  const std::filesystem::path file = std::filesystem::path(recipe.run.dir) / "recipe.toml";
  const std::string text = std::string(kMark) + to_toml(recipe);
  if (!holds(file, text)) write_file_durably(file, text);  // on a full disk a run that is the same goes on
}

RunLock claim_run_folder(const Recipe& recipe) {
  namespace fs = std::filesystem;
  if (recipe.run.dir.empty()) throw ConfigError("run.dir is empty: name a folder, as in run.dir=runs/first");
  const fs::path dir = recipe.run.dir;
  std::error_code error;
  if (fs::exists(dir, error) && !fs::is_directory(dir, error))
    throw ConfigError(fmt::format("run.dir = \"{}\" is no folder: choose another", recipe.run.dir));
  refuse_foreign(recipe);  // before anything is written there
  fs::create_directories(dir, error);
  if (error)
    throw FileError(fmt::format("{}: cannot be created: {}; choose another run.dir", dir.string(), error.message()));
  RunLock lock(dir);
  refuse_foreign(recipe);  // now that nobody else changes it
  // Where a run has begun, its epochs stand there as steps: Trainer writes them anew, if they are others now.
  if (recipe.train.epochs == 0 || !has_results(dir)) write_run_recipe(recipe);
  return lock;
}

}  // namespace weft
