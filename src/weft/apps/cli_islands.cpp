// The command line of `weft islands`.
#include "weft/apps/cli_command.h"
#include "weft/apps/islands.h"

namespace weft {

Command add_islands(CLI::App& weft) {
  auto o = std::make_shared<HubOptions>();
  CLI::App* app = weft.add_subcommand("islands", "Be the hub of jobs that train one model over slow links");
  recipe_arguments(*app, o->recipe, o->overrides);
  app->footer(
      "Examples:\n  weft islands recipe.toml                                  # at islands.address, until all are "
      "done\n"
      "  weft train recipe.toml islands.number=1 run.dir=runs/b    # on each island, with its number\n\n"
      "The hub keeps nothing on a disk: when it is started again, it takes what it needs from the islands.");
  return {app, [o] { return run_islands(*o); }};
}

}  // namespace weft
