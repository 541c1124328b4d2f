#include "weft/train/chosen_checkpoint.h"

#include "weft/base/cores.h"
#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/checkpoint/durable_file.h"
#include "weft/comm/process_mesh.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/run_folder.h"
#include "weft/train/run_length.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

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

void copy_in(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (from.extension() == ".safetensors") {  // never changed where it is
    fs::create_hard_link(from, to, error);
    if (!error) return;
  }
  error.clear();
  fs::copy_file(from, to, error);
  if (error)
    throw FileError(fmt::format("{}: cannot be copied to {}: {}", from.string(), to.string(), error.message()));
}

}  // namespace

void judge_chosen(const Recipe& recipe, const fs::path& checkpoint) {
  require_checkpoint(checkpoint);
  require_no_run(recipe.run.dir);
  require_whole(checkpoint, CheckpointPart::all, *single_mesh().world, usable_cores());
  refuse_another_recipe(recipe, checkpoint / "weft" / "recipe.toml", fmt::format("--from {}", checkpoint.string()));
  require_steps_left(recipe, read_progress(checkpoint).step, checkpoint);
}

void take_chosen(const Recipe& recipe, const fs::path& checkpoint) {
  require_no_run(recipe.run.dir);  // now that nobody else changes it
  const fs::path parent = fs::path(recipe.run.dir) / "checkpoints";
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) throw FileError(fmt::format("{}: {}", parent.string(), error.message()));
  DurableFolder folder(parent / fmt::format("step-{}", read_progress(checkpoint).step));
  for (const auto& entry : fs::recursive_directory_iterator(checkpoint))
    if (entry.is_regular_file()) copy_in(entry.path(), folder.building() / entry.path().lexically_relative(checkpoint));
  folder.commit();
}

}  // namespace weft
