// weft verify: the layout of a recipe beside one rank.
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/launch.h"
#include "weft/apps/verify_report.h"
#include "weft/base/error.h"
#include "weft/plan/layout.h"

namespace weft {
int run_verify(const VerifyOptions& options) {
  if (options.recipe.empty()) throw ConfigError("a recipe is missing, as in `weft verify recipe.toml`");
  if (const Launched launched = launched_as(environment); launched.world > 1)
    throw ConfigError(fmt::format("weft verify runs all ranks in one process; start it without {}", launched.by));
  const Recipe recipe = first_steps_of(read_recipe(options.recipe, options.overrides));
  check_supported(recipe);
  if (recipe.run.ranks != RanksKind::local)
    throw ConfigError(
        fmt::format("run.ranks = \"{}\" cannot run: weft verify runs all ranks as threads of one process; "
                    "the nearest that works: run.ranks = \"local\", which gives the same bits",
                    recipe.run.ranks));
  if (const int world = mesh_sizes_of(recipe).world(); world > kMostThreadRanks)
    throw ConfigError(fmt::format(
        "a layout of {} ranks cannot run: weft verify runs all ranks as threads of one process, which may have {}; the "
        "nearest that works: {}",
        world, kMostThreadRanks, fewer_ranks(recipe, kMostThreadRanks)));
  // One that is not there is refused now, not after the comparison in fp64.
  for (const std::string& note : machine_for(recipe).notes) std::cerr << "note: " << note << "\n";
  const VerifyReport report = verify({.recipe = recipe,
                                      .machine_for = [](const Recipe& r) { return machine_for(r); },
                                      .steps = options.steps,
                                      .whole = options.whole,
                                      .say = [](const std::string& line) { std::cerr << line << std::endl; }});
  return print_report(report, options.json, std::cout);
}

}  // namespace weft
