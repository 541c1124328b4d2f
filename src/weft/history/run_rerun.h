// A run trained again: whether it can be repeated, why its bits may differ, and whether they do (docs/runs.md,
// "The same bits").
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/history/run_facts.h"
#include "weft/recipe/recipe.h"

namespace weft {

// What is to be trained again.
struct RerunPlan {
  Recipe recipe = {};      // of the run
  std::string from = {};   // the checkpoint of another run with which it began; empty: it began with step 1
  int64_t first_step = 1;  // of the run's own; counted from 1
  int64_t last_step = 0;   // as far as the run came, or as was asked
};

// Throws ConfigError where the run cannot be repeated honestly, and says why: it runs now, its results hang on time or
// on other jobs, its ranks came and went, what it began with is gone, or it has recorded no step. `last_step`: train no
// further than this; none: as far as the run came. Reads recipe.toml and metrics.jsonl; throws FileError where it
// cannot.
RerunPlan plan_rerun(const RunFacts& run, std::optional<int64_t> last_step = {});

// The settings with which `weft train` repeats it in another folder, "key=value". A rerun that ends earlier keeps the
// run's learning rates.
std::vector<std::string> rerun_settings(const RerunPlan& plan, const std::filesystem::path& folder);

// Why the bits may differ, one sentence each.

// The run's attempts beside one of now: build, machine, host. What is empty in `now` is not compared.
std::vector<std::string> attempt_reasons(const RunFacts& run, const RunAttempt& now);
// Its training files beside what they are now.
std::vector<std::string> data_reasons(const std::vector<RunSource>& then, const std::vector<RunSource>& now);
// Models and other inputs of which the run has kept no hash: those that were written to after the run had begun.
std::vector<std::string> input_reasons(const RunFacts& run);

struct ComparedBits {
  int64_t steps = 0;            // that both have recorded and that are the same
  int64_t checkpoint_step = 0;  // of the newest checkpoint that both have; 0: there is none
  int64_t files = 0;            // *.safetensors of it that are the same
  std::string difference = {};  // the first one: "step 3: loss was 2.5, and is 2.75 (0.25 more)"; empty: none
  std::string damage = {};      // where files differ: which of them is no longer what was saved; empty: none
};
// Compares two run folders: all numbers of steps, evaluations and tasks that do not measure time or memory, then the
// weights and the optimizer's state of the newest checkpoint that both have. It stops at the first difference. Throws
// FileError where a file cannot be read, or both have no step in common.
ComparedBits compare_bits(const std::filesystem::path& run, const std::filesystem::path& again);

}  // namespace weft
