// The command line of `weft plan` and what stands below it.
#include "weft/apps/cli_command.h"
#include "weft/apps/commands.h"
#include "weft/apps/plan_balance.h"

namespace weft {
namespace {

constexpr const char* kPlanGroup = "plan";

Command add_score(CLI::App& plan) {
  auto o = std::make_shared<PlanScoreOptions>();
  CLI::App* app = plan.add_subcommand("score", "Forecast measured runs, and say how far off that is");
  app->add_option("rows", o->rows, "Measured runs, a row each: CSV")->required()->type_name("FILE");
  app->add_option("--pairs", o->pairs, "Pairs of rows, the faster one known: CSV with faster_id and slower_id")
      ->type_name("FILE");
  app->add_option("--out", o->out, "Write the forecast of every row: id,tokens_per_s_per_gpu,peak_memory_gib,reason")
      ->type_name("FILE");
  app->add_option("--profiles", o->profiles, "Numbers of programs, in place of the built-in ones")->type_name("FILE");
  app->add_option("--fit", o->fit, "Fit these numbers to the rows first, and write them")->type_name("FILE");
  app->add_option(
         "--cross-validate", o->cross_validate,
         "Forecast each source, or groups of alike runs in eight parts, with numbers fitted to the others alone")
      ->check(CLI::IsMember({"source", "group"}));
  app->add_option("--collectives", o->collectives, "Measured collectives (CSV): how far off those forecasts are")
      ->type_name("FILE");
  app->add_flag("--json", o->json, "Print JSON");
  app->add_flag("--again", o->again, "Replace the files that are there");
  app->footer("Example:\n  weft plan score published.csv --pairs ranking_pairs.csv --out forecasts.csv");
  return {app, [o] { return run_plan_score(*o); }, kPlanGroup};
}

// A command below `weft plan` that reads a recipe; `add` adds its own options.
template <class Options>
Command recipe_command(CLI::App& plan, const char* name, const char* help, int (*run)(const Options&),
                       void (*add)(CLI::App&, Options&)) {
  auto o = std::make_shared<Options>();
  CLI::App* app = plan.add_subcommand(name, help);
  recipe_arguments(*app, o->recipe, o->overrides);
  add(*app, *o);
  app->add_flag("--json", o->json, "Print JSON");
  return {app, [o, run] { return run(*o); }, kPlanGroup};
}

void add_loss(CLI::App& app, PlanLossOptions& o) {
  app.add_option("--cluster", o.cluster, "The devices: a name (H100-SXM) or a file")
      ->required()
      ->type_name("NAME|FILE");
  app.add_option("--ranks", o.ranks, "On so many devices: 64, or 8..1024; by default all of the cluster")
      ->type_name("N|N..M");
  app.add_option("--target", o.target, "Say what this loss costs, in nats a token")->check(CLI::PositiveNumber);
  app.add_option("--budget", o.budget, "Say which loss a run reaches that costs so much")->check(CLI::PositiveNumber);
  app.add_option("--deadline", o.deadline, "Or that takes so long: 90m, 36h, 12d")->type_name("TIME");
  app.add_option("--models", o.models, "Other models beside the recipe's: folders, or files like config.json")
      ->type_name("FOLDER");
  app.add_option("--runs", o.runs, "Fit the law of loss to these runs; by default it is a published one")
      ->type_name("FOLDER");
  app.footer(
      "Examples:\n  weft plan loss recipe.toml --cluster H100-SXM --ranks 8..256 --target 2.6\n"
      "  weft plan loss recipe.toml --cluster H100-SXM --ranks 64 --budget 20000 --models llama-1b llama-3b\n"
      "  weft plan loss recipe.toml --cluster c.toml --deadline 12d --runs runs/small runs/middle runs/long "
      "runs/large");
}

void add_rent(CLI::App& app, PlanRentOptions& o) {
  app.add_option("--prices", o.prices, "Who rents which devices when, for how much, and what is owned: TOML")
      ->required()
      ->type_name("FILE");
  app.footer("Example:\n  weft plan rent recipe.toml --prices prices.toml");
}

void add_balance(CLI::App& app, PlanBalanceOptions& o) {
  app.add_option("--trace", o.trace, "That step, as `weft bench step RECIPE --trace FILE` wrote it")
      ->required()
      ->type_name("FILE");
  CLI::Option* write =
      app.add_option("--write", o.write, "Write the recipe with the better cut of the blocks")->type_name("FILE");
  app.add_flag("--again", o.again, "Replace the file of --write that is there")->needs(write);
  app.footer(
      "Example:\n  weft bench step recipe.toml --trace step.json\n"
      "  weft plan balance recipe.toml --trace step.json --write balanced.toml");
}

void add_search(CLI::App& app, PlanOptions& o, CLI::Option* cluster, const std::vector<CLI::Option*>& others) {
  CLI::Option* search = app.add_flag("--search", o.search, "Find the layouts that are best there")->needs(cluster);
  for (CLI::Option* other : others) search->excludes(other);
  app.add_option("--ranks", o.ranks,
                 "Of --search and --serve: so many devices, 64, or 8..1024 (--search); by default all of the cluster")
      ->type_name("N|N..M")
      ->needs(cluster);
  app.add_option("--objective", o.objective,
                 "What is best: time, price or energy of a step, or ranks, as few as can be")
      ->check(CLI::IsMember({"time", "price", "energy", "ranks"}))
      ->needs(search);
  app.add_option("--deadline", o.deadline, "The whole run must take at most so long: 90m, 36h, 12d")
      ->type_name("TIME")
      ->needs(search);
  app.add_option("--budget", o.budget, "The whole run must cost at most so much")
      ->check(CLI::PositiveNumber)
      ->needs(search);
  app.add_option("--write", o.write, "Write the recipe with the best layout")->type_name("FILE")->needs(search);
}

// How the model answers there.
void add_serve(CLI::App& app, PlanOptions& o, CLI::Option* cluster, const std::vector<CLI::Option*>& others) {
  CLI::Option* serve =
      app.add_flag("--serve", o.serve, "Layouts to serve the model there: first token, rate, memory, price")
          ->needs(cluster);
  for (CLI::Option* other : others) serve->excludes(other);
  add_number(app, "--prompt-tokens", o.prompt_tokens, "Of --serve: tokens of a prompt", 1, int64_t{1} << 24)
      ->needs(serve);
  add_number(app, "--max-tokens", o.max_tokens, "Of --serve: tokens behind it", 1, int64_t{1} << 24)->needs(serve);
  add_number(app, "--texts", o.texts, "Of --serve: texts at once in a replica; 0: those of the best rates", 0, 4096)
      ->needs(serve);
}

}  // namespace

std::vector<Command> add_plan(CLI::App& weft) {
  auto o = std::make_shared<PlanOptions>();
  CLI::App* app = weft.add_subcommand(kPlanGroup, "Say what a recipe will need, and how long it takes, without data");
  recipe_arguments(*app, o->recipe, o->overrides);
  CLI::Option* cluster = app->add_option("--cluster", o->cluster,
                                         "Forecast the time of a step there: a device's name (H100-SXM) or a file")
                             ->type_name("NAME|FILE");
  CLI::Option* scale =
      app->add_option("--scale", o->scale, "With --cluster: the same on so many devices, by more data-parallel ranks")
          ->type_name("8..1024")
          ->needs(cluster);
  app->add_flag("--json", o->json, "Print JSON");
  CLI::Option* schedule =
      app->add_flag("--schedule", o->schedule, "Print the schedule of a step, when its actions run and what they move");
  CLI::Option* instructions =
      app->add_flag("--instructions", o->instructions, "Print what each action consists of; with --json also its ops");
  CLI::Option* svg = app->add_option("--schedule-svg", o->schedule_svg,
                                     "Draw that to an SVG file; with --cluster each action as long as it is forecast")
                         ->type_name("FILE");
  app->add_flag("--again", o->again, "Replace the file that is there, of --schedule-svg or --write");
  add_search(*app, *o, cluster, {schedule, instructions, svg, scale});
  add_serve(*app, *o, cluster, {schedule, instructions, svg, scale, app->get_option("--search")});
  app->footer(
      "Examples:\n  weft plan recipe.toml train.micro_batch_size=8 parallel.recompute=full\n"
      "  weft plan recipe.toml parallel.tp=8 --cluster H100-SXM\n"
      "  weft plan recipe.toml --cluster cluster.toml --search --ranks 8..1024 --write best.toml\n"
      "  weft plan recipe.toml --cluster H100-SXM --serve --ranks 8 --prompt-tokens 4096\n"
      "  weft plan score published.csv");
  return {
      add_score(*app),
      recipe_command(*app, "loss", "Say what a loss costs, or which loss a budget reaches", run_plan_loss, add_loss),
      recipe_command(*app, "rent", "Say what the run takes and costs on rented devices, hour by hour", run_plan_rent,
                     add_rent),
      recipe_command(*app, "balance", "Balance the stages of a pipeline by what a step of it took", run_plan_balance,
                     add_balance),
      {app, [o] { return run_plan(*o); }}};
}

}  // namespace weft
