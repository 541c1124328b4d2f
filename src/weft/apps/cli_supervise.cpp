// The command line of `weft supervise`.
#include "weft/apps/cli_command.h"
#include "weft/apps/commands.h"

namespace weft {

Command add_supervise(CLI::App& weft) {
  auto o = std::make_shared<SuperviseOptions>();
  CLI::App* app = weft.add_subcommand("supervise", "Train as a recipe says, and start again after each failure");
  recipe_arguments(*app, o->recipe, o->overrides);
  app->add_flag("--force", o->force, "As of weft train");
  add_number(*app, "--attempts", o->attempts,
             "Attempts without a new checkpoint, one after the other, to give up after", 1, 1000);
  app->add_option("--hang-seconds", o->hang_s,
                  "The least time without a sign of life after which a step is taken to hang; else 10 times the "
                  "longest step so far")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  app->add_option(
         "--first-minutes", o->first_minutes,
         "The same for the start, and for the first step, save and evaluation; a sixth of it for later saves and "
         "evaluations")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e5));
  app->add_option("--hosts", o->hosts, "Hostfile, as fleet.hosts: ranks run there, without hosts that do not answer")
      ->type_name("FILE");
  app->footer(
      "Examples:\n  weft supervise recipe.toml run.ranks=mpi\n"
      "  weft supervise recipe.toml run.ranks=mpi --hosts hosts fleet.min_ranks=2\n\n"
      "Exit status: 0 finished, 2 cannot be run, 75 asked to stop and saved, 93 gave up; asked to "
      "stop and failed: as weft train. RUN/events.jsonl says what happened.");
  return {app, [o] {
            if (!o->hosts.empty()) o->overrides.push_back("fleet.hosts=" + o->hosts);
            return run_supervise(*o);
          }};
}

}  // namespace weft
