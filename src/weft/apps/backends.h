// Which backends this program was built with: backends.cpp asks for them.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/apps/commands.h"
#include "weft/ops/numerics.h"
#include "weft/recipe/recipe.h"
#include "weft/train/machine.h"

namespace weft {

struct ClusterSpec;

// The names that run.backend may have here. "cuda" means that its module is there; only opening it tells whether a GPU
// is.
std::vector<std::string> backends_here();

// run.backend = "auto" becomes what this machine has, a GPU where one is there and can run the recipe; a note on the
// terminal says so if this process `speaks`.
void settle_backend(Recipe& recipe, bool speaks);

// What train.numerics asks of kernels of the cores.
Numerics numerics_of(const Recipe& recipe);

// The machine that `run.backend`, `run.threads` and `train.numerics` of a recipe ask for. threads 0: the cores that
// this process may use, shared by `ranks_here` ranks (0: all of the layout, as threads of this process, which share its
// GPUs too). Throws ConfigError for a backend that is not there.
Machine machine_for(const Recipe& recipe, int ranks_here = 0);
Machine machine_for(const ModelOptions& options);  // of one rank
// A machine for planning only: no GPU need be there.
Machine machine_to_plan_for(const Recipe& recipe);
// train.precision = "auto" becomes what the devices of `cluster`, or without one of the settled backend, train in
// best; a note says which and why if this process `speaks`.
void settle_precision(Recipe& recipe, const ClusterSpec* cluster, bool speaks);
// The file's recipe, as parse_recipe_file, with a settled backend and precision (of `cluster`, if it is not null).
Recipe read_recipe(const std::string& path, const std::vector<std::string>& overrides, bool speaks = true,
                   const ClusterSpec* cluster = nullptr);
// The recipe of a run's first steps, without phases; says so where there are some. For commands that look at one step.
Recipe first_steps_of(const Recipe& recipe, bool speaks = true);
// The recipe that a checkpoint was trained by; none where the folder is not of weft.
std::optional<Recipe> recipe_of_checkpoint(const std::filesystem::path& folder);
// What the options ask the model to compute in. Throws ConfigError for a name that is not known.
Precision precision_of(const ModelOptions& options);

}  // namespace weft
