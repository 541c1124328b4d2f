// The command line of `weft sweep`.
#include "weft/apps/cli_command.h"
#include "weft/apps/commands.h"

namespace weft {

Command add_sweep(CLI::App& weft) {
  auto o = std::make_shared<SweepOptions>();
  CLI::App* app = weft.add_subcommand("sweep", "Train a recipe with several values of its keys, and rank the trials");
  app->add_option("recipe", o->recipe, "Recipe file (TOML)")->required()->type_name("RECIPE");
  app->add_option("settings", o->settings,
                  "Values to try, as optimizer.lr=1e-4,3e-4, or a range to draw from, 1e-5..1e-3")
      ->required()
      ->type_name("KEY=VALUES");
  add_number(*app, "--random", o->random, "Draw so many trials; 0: all combinations", 0, 10'000);
  CLI::Option* seed = add_number(*app, "--seed", o->seed, "Of the draws", 0, int64_t{1} << 53);
  seed->needs(app->get_option("--random"));
  CLI::Option* halving = app->add_flag("--halving", o->halving, "Stop the worse trials early: successive halving");
  add_number(*app, "--eta", o->eta, "One in so many trials goes on, for as many times the steps", 2, 100)
      ->needs(halving);
  add_number(*app, "--least-steps", o->least_steps, "Steps of the first rung", 1, int64_t{1} << 40)->needs(halving);
  add_number(*app, "--jobs", o->jobs, "Trials side by side, each on its share of the cores", 1, 4096);
  CLI::Option* draft =
      app->add_option("--draft", o->draft, "First on a model with these values in its config.json, as layers=4")
          ->allow_extra_args(false)
          ->type_name("KEY=VALUE");
  add_number(*app, "--confirm", o->confirm, "Of the draft's trials, so many go on at full size", 1, 10'000)
      ->needs(draft);
  app->add_flag("--retry", o->retry, "Run failed trials again");
  app->add_option("--folder", o->folder, "Of the sweep; by default run.dir with -sweep behind it")->type_name("FOLDER");
  app->footer(
      "Examples:\n  weft sweep recipe.toml optimizer.lr=1e-4,3e-4,1e-3 train.global_batch_size=32,64\n"
      "  weft sweep recipe.toml optimizer.lr=1e-5..1e-3 --random 16 --halving --least-steps 100 --jobs 2\n"
      "  weft sweep recipe.toml optimizer.lr=1e-4,3e-4 --draft layers=4\n\n"
      "The same command goes on after a stop. Exit status: 0 all is done, 1 every trial failed, 2 cannot be run, 75 or "
      "130 asked to stop and saved.");
  return {app, [o] { return run_sweep(*o); }};
}

}  // namespace weft
