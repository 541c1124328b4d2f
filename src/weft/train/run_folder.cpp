#include "weft/train/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "weft/base/descriptor.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/mapped_file.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/comm/agree.h"
#include "weft/models/peft.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/data_files.h"
#include "weft/train/run_access.h"
#include "weft/train/run_data.h"
#include "weft/train/run_length.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void require_checkpoint(const fs::path& path) {
  if (is_there(path / "weft" / "state.json")) return;
  const auto inside = newest_checkpoint(path);
  throw ConfigError(fmt::format(
      "--from {}: {}", path.string(),
      inside ? fmt::format("is a run's folder: name one of its checkpoints, as {}", inside->string())
      : is_there(path / "config.json") ? "is a model without the state of a run; model.path and model.init = "
                                         "\"pretrained\" begin with its weights"
      : is_there(path)                 ? "is no checkpoint: there is no weft/state.json in it"
                                       : "no such folder"));
}

void require_no_run(const fs::path& run) {
  std::error_code ignored;
  const fs::path metrics = run / "metrics.jsonl";
  if (!newest_checkpoint(run) && !(is_there(metrics) && fs::file_size(metrics, ignored) > 0)) return;
  throw ConfigError(fmt::format(
      "run.dir = \"{}\" has a run already: --from begins one in a new folder, as run.dir={}-2; without --from "
      "the run that is there goes on",
      run.string(), run.string()));
}

// This rank's part of the bytes of a file, synced.
void copy_share(const fs::path& from, const fs::path& to, const Communicator& ranks) {
  const MappedFile file(from);
  const auto size = int64_t(file.bytes().size()), n = int64_t(ranks.size()), r = int64_t(ranks.rank());
  const int64_t end = size * (r + 1) / n;
  const Descriptor fd(::open(to.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  bool good = fd >= 0;
  for (int64_t at = size * r / n; good && at < end;) {
    constexpr int64_t kMost = 1 << 30;
    const ssize_t written = ::pwrite(fd, file.bytes().data() + at, size_t(std::min(end - at, kMost)), at);
    good = written > 0 || (written < 0 && errno == EINTR);
    at += std::max<ssize_t>(written, 0);
  }
  good = good && ::fsync(fd) == 0;
  if (!good)
    throw FileError(fmt::format("{}: cannot be copied to {}: {}", from.string(), to.string(), std::strerror(errno)));
}

// Gives the files of a checkpoint second names in `to`, and copies small ones. Returns those that are left to be
// copied, with a line feed behind each.
std::string link_in(const fs::path& checkpoint, const fs::path& to) {
  std::string left;
  for (const auto& entry : fs::recursive_directory_iterator(checkpoint)) {
    if (!entry.is_regular_file()) continue;
    const fs::path name = entry.path().lexically_relative(checkpoint);
    fs::create_directories((to / name).parent_path());
    std::error_code cannot;
    if (name.extension() != ".safetensors")
      fs::copy_file(entry.path(), to / name);
    else if (fs::create_hard_link(entry.path(), to / name, cannot); cannot)  // its bytes are never changed
      left += name.string() + "\n";
  }
  return left;
}

}  // namespace

void judge_chosen(const Recipe& recipe, const fs::path& checkpoint, Communicator& ranks, int num_threads,
                  const Islands& islands) {
  const bool leads = ranks.rank() == 0;
  if (leads) {
    require_checkpoint(checkpoint);
    require_no_run(recipe.run.dir);
  }
  require_whole(checkpoint, CheckpointPart::all, ranks, num_threads);
  if (!leads) return;
  const int64_t done = read_progress(checkpoint).step;
  refuse_another_recipe(recipe, checkpoint / "weft" / "recipe.toml", fmt::format("--from {}", checkpoint.string()),
                        done, islands);
  require_steps_left(recipe, done, checkpoint);
}

void take_chosen(const Recipe& recipe, const fs::path& checkpoint, Communicator& ranks) {
  const bool leads = ranks.rank() == 0;
  const fs::path to = fs::path(recipe.run.dir) / "checkpoints" / fmt::format("step-{}", read_progress(checkpoint).step);
  std::optional<DurableFolder> folder;
  std::string left;
  agree(ranks, [&] {
    if (!leads) return;
    require_no_run(recipe.run.dir);  // now that nobody else changes it
    fs::create_directories(to.parent_path());
    left = link_in(checkpoint, folder.emplace(to).building());
  });
  std::istringstream names(first_text(ranks, left));
  for (std::string name; std::getline(names, name);)
    agree(ranks, [&] { copy_share(checkpoint / name, DurableFolder::building_name(to) / name, ranks); });
  agree(ranks, [&] {
    if (leads) folder->commit();
  });
}

void drop_run_folder(const Recipe& recipe) {
  const fs::path run = recipe.run.dir;
  std::error_code ignored;
  if (is_there(run / "metrics.jsonl")) return;
  for (const fs::directory_entry& entry : fs::directory_iterator(run, ignored))
    if (entry.path() != token_cache_of(recipe)) fs::remove_all(entry.path(), ignored);
  fs::remove(run, ignored);  // unless it has texts that were tokenized
}

namespace {

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
  return std::getline(in, line) && line + "\n" == kRunRecipeMark;
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

// What a user can do whose recipe is not that of the run in its folder.
std::string beside_that_run(const std::optional<fs::path>& newest) {
  if (!newest) return "choose another run.dir, or remove that one: it has no checkpoint, so nothing can go on from it";
  const std::string path = newest->string();
  return fmt::format(
      "choose another run.dir (to go on from that run's weights there: {})",
      is_adapter_folder(*newest) ? "adapter.path=" + path : "model.path=" + path + " model.init=pretrained");
}

void refuse_foreign(const Recipe& recipe, const Islands& islands) {
  namespace fs = std::filesystem;
  const fs::path dir = recipe.run.dir, file = dir / "recipe.toml";
  std::error_code error;
  const bool has_recipe = fs::exists(file, error);
  if (has_recipe && has_results(dir)) {
    const auto newest = newest_checkpoint(dir);
    const int64_t done = newest ? steps_of(*newest) : 0;
    refuse_another_recipe(
        recipe, file,
        fmt::format("run.dir = \"{}\" holds a run of another recipe; {}", recipe.run.dir, beside_that_run(newest)),
        done, islands);
    if (newest) require_steps_left(recipe, done, *newest);
  } else if (fs::exists(dir, error) && !(has_recipe && is_ours(file)) && !is_as_good_as_empty(dir)) {
    throw ConfigError(fmt::format("run.dir = \"{}\" exists, and is no run of weft's: choose another", recipe.run.dir));
  }
}

}  // namespace

void refuse_another_recipe(const Recipe& recipe, const std::filesystem::path& file, const std::string& what,
                           int64_t steps_done, const Islands& islands) {
  Recipe there = parse_recipe_file(file.string(), {});
  if (have_the_same_files(there, recipe)) {  // a dataset's folder, or what is in it
    there.data.train = recipe.data.train;
    there.data.weights = recipe.data.weights;
    there.data.valid = recipe.data.valid;
  }
  allow_another_length(there, recipe);
  auto differences = recipe_differences(there, recipe);
  for (std::string& d : island_differences(parse_islands_file(file.string(), {}), islands))
    differences.push_back(std::move(d));
  for (std::string& d : phase_differences(there, recipe, steps_done)) differences.push_back(std::move(d));
  if (differences.empty()) return;
  std::string list;
  for (const auto& d : differences) list += "\n  " + d;
  list += "\nWhat may change as a run goes on: the keys that docs/formats/recipe.md marks as free";
  if (steps_done > 0 && std::any_of(differences.begin(), differences.end(), [&](const std::string& d) {
        return is_phase_key(std::string_view(d).substr(0, d.find(':')));
      }))
    list += fmt::format(
        "\nFrom a step on, a run may have other values of some of these: leave them as they were, and add a [[phase]] "
        "with from_step = {} to the recipe{} (docs/tune/phases.md)",
        std::max<int64_t>(1, steps_done),
        steps_done >= recipe.train.train_iters ? ", and more steps: train.train_iters" : "");
  throw ConfigError(fmt::format("{}. Differences:{}", what, list));
}

void write_run_recipe(const Recipe& recipe, const Islands& islands) {
  const std::filesystem::path file = std::filesystem::path(recipe.run.dir) / "recipe.toml";
  const std::string text = std::string(kRunRecipeMark) + to_toml(recipe) + to_toml(islands);
  if (!holds(file, text)) write_file_durably(file, text);  // on a full disk a run that is the same goes on
}

namespace {

// Files that were being written when a process of the run was killed: only the owner of the folder writes there.
void remove_cut_off(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (is_cut_off(at->path().filename().string()) && at->is_regular_file(ignored)) fs::remove(at->path(), ignored);
  }
}

}  // namespace

RunLock claim_run_folder(const Recipe& recipe, const Islands& islands) {
  namespace fs = std::filesystem;
  if (recipe.run.dir.empty()) throw ConfigError("run.dir is empty: name a folder, as in run.dir=runs/first");
  const fs::path dir = recipe.run.dir;
  std::error_code error;
  if (fs::exists(dir, error) && !fs::is_directory(dir, error))
    throw ConfigError(fmt::format("run.dir = \"{}\" is no folder: choose another", recipe.run.dir));
  refuse_foreign(recipe, islands);  // before anything is written there
  make_run_folder(recipe);
  RunLock lock(dir);
  refuse_foreign(recipe, islands);  // now that nobody else changes it
  if (lock.holds())
    for (const fs::path& folder : {dir, token_cache_of(recipe)}) remove_cut_off(folder);
  // Where a run has begun, its epochs stand there as steps: Trainer writes them anew, if they are others now.
  if (recipe.train.epochs == 0 || !has_results(dir)) write_run_recipe(recipe, islands);
  return lock;
}

}  // namespace weft
