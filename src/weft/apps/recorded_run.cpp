#include "weft/apps/recorded_run.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/plain_file.h"
#include "weft/train/autotune.h"
#include "weft/train/checkpoint_state.h"

namespace weft {

RecordedRun read_recorded_run(const std::string& name) {
  const std::filesystem::path run = name;
  if (!is_there(run)) throw FileError(fmt::format("{}: is not there; name the folder of a run (run.dir)", name));
  if (!is_there(run / "recipe.toml"))
    throw FileError(
        fmt::format("{}: no run folder: there is no recipe.toml in it; name a run.dir of `weft train`", name));
  RecordedRun recorded{
      .folder = name, .recipe = parse_recipe_file((run / "recipe.toml").string(), {}), .config = {}, .metrics = {}};
  recorded.recipe = as_tuned(recorded.recipe, run);
  constexpr int64_t kAnySize = std::numeric_limits<int64_t>::max();
  if (is_plain_file(run / "metrics.jsonl", kAnySize)) recorded.metrics = read_metrics(run / "metrics.jsonl");
  std::stringstream events;  // of a run without a supervisor there may be none
  if (is_plain_file(run / "events.jsonl", kAnySize)) events << std::ifstream(run / "events.jsonl").rdbuf();
  recorded.stretches = stretches_in(events.str());
  measured_steps(recorded);  // refuses a run without steps
  // The model's own folder may be gone by now; a checkpoint of an adapter has no model.
  std::filesystem::path model = recorded.recipe.model.path;
  if (const auto checkpoint = newest_checkpoint(run);
      checkpoint && !is_there(model) && recorded.recipe.adapter.kind == AdapterKind::none)
    model = *checkpoint;
  recorded.config = read_hf_config(model);
  return recorded;
}

}  // namespace weft
