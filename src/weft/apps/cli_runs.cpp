// The command line of `weft new` and `weft doctor`, before a run; of `weft watch` beside it and `weft report` behind
// it; of `weft runs`.
#include "weft/apps/cli_command.h"
#include "weft/apps/commands.h"
#include "weft/apps/runs.h"
#include "weft/apps/watch.h"
#include "weft/apps/weft_doctor.h"
#include "weft/history/run_facts.h"
#include "weft/page/run_news.h"
#include "weft/recipe/choices.h"

namespace weft {
namespace {

Command add_report(CLI::App& weft) {
  auto o = std::make_shared<ReportOptions>();
  CLI::App* app = weft.add_subcommand("report", "Say what bound a run, beside its forecast; or how several runs scale");
  app->add_option("runs", o->runs, "Run folders, of runs that have ended or go on")->required()->type_name("FOLDER");
  app->add_option("--cluster", o->cluster,
                  "What the run was on: a device's name (H100-SXM) or a file; by default machine.toml, if it is here")
      ->type_name("NAME|FILE");
  app->add_flag("--json", o->json, "Print JSON");
  app->footer(
      "Examples:\n  weft report runs/first --cluster machine.toml\n"
      "  weft report runs/on-1 runs/on-2 runs/on-4                 # strong and weak scaling");
  return {app, [o] { return run_report(*o); }};
}

Command add_new(CLI::App& weft) {
  auto o = std::make_shared<NewOptions>();
  CLI::App* app = weft.add_subcommand("new", "Write a recipe for a model, devices and a purpose, with the reasons");
  CLI::Option* model =
      app->add_option("model", o->model, "Model folder, or a config.json; without it weft asks")->type_name("FOLDER");
  const auto of_model = [&](CLI::Option* option) { return option->needs(model); };
  of_model(add_choice(*app, "--purpose", o->purpose, "What it is for",
                      {"pretrain", "finetune", "lora", "long-context", "experts", "many-devices"}));
  of_model(
      app->add_option("--cluster", o->cluster, "The devices: a name (H100-SXM) or a file")->type_name("NAME|FILE"));
  of_model(app->add_option("--devices", o->devices, "How many; by default all of the cluster's file, or one")
               ->check(CLI::Range(int64_t{1}, int64_t{1} << 20)));
  of_model(app->add_option("--data", o->data,
                           "Text, JSON, Parquet or token files, or a dataset's folder; by default train.txt")
               ->type_name("FILES"));
  of_model(app->add_option("--seq-length", o->seq_length, "Tokens of a sample; by default as the purpose has it")
               ->check(CLI::Range(int64_t{1}, int64_t{1} << 24)));
  app->add_option("--out", o->out, "The file to write, which must not be there")
      ->capture_default_str()
      ->type_name("FILE");
  app->footer(
      "Examples:\n  weft new                                       # asks five questions\n"
      "  weft new llama-3-8b --purpose lora --cluster RTX4090 --data notes.jsonl\n"
      "  weft new config.json --purpose many-devices --cluster H100-SXM --devices 1024 --out big.toml");
  return {app, [o] { return run_new(*o); }};
}

Command add_doctor(CLI::App& weft) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* app =
      weft.add_subcommand("doctor", "Look at this machine and a recipe before a long run; say what to change");
  recipe_arguments(*app, o->recipe, o->overrides);
  app->add_option("--folder", o->folder, "Where runs are to lie; by default run.dir, or the current folder")
      ->type_name("FOLDER");
  app->add_flag("--json", o->json, "Print JSON");
  app->footer("Examples:\n  weft doctor\n  weft doctor recipe.toml --folder /data/runs");
  return {app, [o] { return run_doctor(*o); }};
}

Command add_watch(CLI::App& weft) {
  auto o = std::make_shared<WatchOptions>();
  CLI::App* app = weft.add_subcommand("watch", "Serve a live page of runs, beside them or after them; it only reads");
  app->add_option("runs", o->runs, "Folders of runs, or folders with runs")->required()->type_name("FOLDER");
  add_number(*app, "--port", o->port, "Where it is served; 0: a port that is free", 0, 65535);
  app->add_option("--address", o->address, "Other than of this machine alone only with --token-file; 0.0.0.0: any")
      ->capture_default_str()
      ->type_name("ADDRESS");
  app->add_option("--token-file", o->token_file,
                  "Show it only to who has the token in this file, which is made if it is not there")
      ->type_name("FILE");
  app->add_option(
         "--on-event", o->on_event,
         "Run this command of the shell for each event of the runs, with its JSON as standard input; one after "
         "the other, each for a minute at most")
      ->type_name("COMMAND");
  app->add_option("--events", o->events,
                  "Of these kinds, with commas between: " + fmt::format("{}; without it {}",
                                                                        fmt::join(RunNews::all_kinds(), ", "),
                                                                        fmt::join(RunNews::urgent_kinds(), ", ")))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("KIND,...");
  app->footer(
      "Examples:\n  weft watch runs/first\n  weft watch runs --port 8080\n"
      "  weft watch runs --on-event 'curl -s -H content-type:application/json -d @- https://hooks.example/weft'\n"
      "  weft watch runs --address 0.0.0.0 --token-file ~/.weft-token");
  return {app, [o] { return run_watch(*o); }};
}

// --- weft runs ---

constexpr const char* kRunsGroup = "runs";

void runs_options(CLI::App& app, RunsOptions& o) {
  app.add_option("--index", o.index,
                 "The index; by default $XDG_STATE_HOME/weft/runs.db or ~/.local/state/weft/runs.db")
      ->type_name("FILE");
}
void json_option(CLI::App& app, RunsOptions& o) { app.add_flag("--json", o.json, "Print JSON"); }

void filter_options(CLI::App& app, RunsFilter& o) {
  std::vector<std::string> objectives;
  for (const std::string_view name : names_of(ObjectiveKind())) objectives.emplace_back(name);
  app.add_option("--status", o.status, "Only runs of this status; repeat it for more")
      ->allow_extra_args(false)
      ->check(CLI::IsMember(run_status_names()));
  app.add_option("--model", o.model, "Only runs whose model.path has this in it")->type_name("TEXT");
  app.add_option("--objective", o.objective, "Only runs with this train.objective")->check(CLI::IsMember(objectives));
  app.add_option("--since", o.since, "Only runs that began on this day or later: 2026-11-28, or 7d: so long ago")
      ->type_name("DAY");
  app.add_option("--until", o.until, "Only runs that began before this day")->type_name("DAY");
}

Command add_runs_list(CLI::App& runs) {
  auto o = std::make_shared<RunsListOptions>();
  CLI::App* app = runs.add_subcommand("list", "Every run in and below the folders that are known, and in these");
  app->add_option("folders", o->folders, "Folders with runs, which are looked through from now on")
      ->type_name("FOLDER");
  filter_options(*app, *o);
  runs_options(*app, *o);
  json_option(*app, *o);
  app->footer("Examples:\n  weft runs list runs\n  weft runs list --status failed --status lost --since 7d");
  return {app, [o] { return run_runs_list(*o); }, kRunsGroup};
}

Command add_runs_scan(CLI::App& runs) {
  auto o = std::make_shared<RunsScanOptions>();
  CLI::App* app = runs.add_subcommand("scan", "Look through the known folders, and these, and say what is wrong there");
  app->add_option("folders", o->folders, "Folders with runs, which are looked through from now on")
      ->type_name("FOLDER");
  auto* forget = app->add_flag("--forget", o->forget, "Look through these folders no longer; nothing in them changes");
  app->add_flag("--rebuild", o->rebuild, "Read every run anew, also where nothing has changed")->excludes(forget);
  runs_options(*app, *o);
  json_option(*app, *o);
  app->footer("Examples:\n  weft runs scan runs\n  weft runs scan --rebuild\n  weft runs scan --forget old-runs");
  return {app, [o] { return run_runs_scan(*o); }, kRunsGroup};
}

Command add_runs_show(CLI::App& runs) {
  auto o = std::make_shared<RunsShowOptions>();
  CLI::App* app = runs.add_subcommand("show", "What a run was: results, data, checkpoints, attempts, own settings");
  app->add_option("run", o->run, "A run's folder, its id, or the end of its path")->required()->type_name("RUN");
  runs_options(*app, *o);
  json_option(*app, *o);
  app->footer("Example:\n  weft runs show runs/first");
  return {app, [o] { return run_runs_show(*o); }, kRunsGroup};
}

Command add_runs_diff(CLI::App& runs) {
  auto o = std::make_shared<RunsDiffOptions>();
  CLI::App* app = runs.add_subcommand("diff", "How two runs differ, what likely matters first, and what each reached");
  app->add_option("runs", o->runs, "Their folders, ids, or ends of their paths")
      ->required()
      ->expected(2)
      ->type_name("RUN");
  runs_options(*app, *o);
  json_option(*app, *o);
  app->footer("Example:\n  weft runs diff runs/first runs/second");
  return {app, [o] { return run_runs_diff(*o); }, kRunsGroup};
}

Command add_runs_compare(CLI::App& runs) {
  auto o = std::make_shared<RunsCompareOptions>();
  CLI::App* app =
      runs.add_subcommand("compare", "Several runs side by side: what differs, machines, what each reached");
  app->add_option("runs", o->runs, "Their folders, ids, or ends of their paths")
      ->required()
      ->expected(2, kMostCompared)
      ->type_name("RUN");
  runs_options(*app, *o);
  json_option(*app, *o);
  app->footer(
      "Examples:\n  weft runs compare runs/first runs/second runs/third\n"
      "  weft watch runs/first runs/second runs/third      # their curves, on one page");
  return {app, [o] { return run_runs_compare(*o); }, kRunsGroup};
}

Command add_runs_rerun(CLI::App& runs) {
  auto o = std::make_shared<RunsRerunOptions>();
  CLI::App* app =
      runs.add_subcommand("rerun", "Train a run again in another folder; say whether the bits are the same");
  app->add_option("run", o->run, "A run's folder, its id, or the end of its path")->required()->type_name("RUN");
  app->add_option("--out", o->out, "The new run's folder, which must not be there; by default RUN-rerun")
      ->type_name("FOLDER");
  app->add_option("--steps", o->steps, "Train up to this step alone; by default as far as the run came")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  runs_options(*app, *o);
  json_option(*app, *o);
  app->footer(
      "Ends with 0 where the bits are the same, and with 1 where they are not.\n"
      "Examples:\n  weft runs rerun runs/first\n  weft runs rerun runs/first --steps 100 --out /tmp/again");
  return {app, [o] { return run_runs_rerun(*o); }, kRunsGroup};
}

Command add_runs_best(CLI::App& runs) {
  auto o = std::make_shared<RunsBestOptions>();
  CLI::App* app = runs.add_subcommand("best", "The runs that have reached the best of one result");
  app->add_option("--by", o->by, "Its name, as `weft runs show` has it: held_out.loss, piqa.acc, tokens_per_s")
      ->required()
      ->type_name("RESULT");
  auto* lowest = app->add_flag("--lowest", o->lowest, "The lowest is best, whatever the name says");
  app->add_flag("--highest", o->highest, "The highest is")->excludes(lowest);
  add_number(*app, "--most", o->most, "So many runs", 1, 1'000'000);
  filter_options(*app, *o);
  runs_options(*app, *o);
  json_option(*app, *o);
  app->footer("Example:\n  weft runs best --by held_out.loss --status finished");
  return {app, [o] { return run_runs_best(*o); }, kRunsGroup};
}

Command add_runs_lineage(CLI::App& runs) {
  auto o = std::make_shared<RunsLineageOptions>();
  CLI::App* app = runs.add_subcommand("lineage", "What a run was made from, and what became of it");
  app->add_option("of", o->of, "A run, or the path of a checkpoint, a dataset or a model's folder")->type_name("RUN");
  auto* dot = app->add_flag("--dot", o->dot, "Print it for Graphviz: weft runs lineage --dot | dot -Tsvg");
  runs_options(*app, *o);
  app->add_flag("--json", o->json, "Print JSON")->excludes(dot);
  app->footer("Example:\n  weft runs lineage runs/first");
  return {app, [o] { return run_runs_lineage(*o); }, kRunsGroup};
}

Command add_runs_gc(CLI::App& runs) {
  auto o = std::make_shared<RunsGcOptions>();
  CLI::App* app = runs.add_subcommand("gc", "What can be deleted, and what depends on it; asks before it removes");
  app->add_option("runs", o->runs, "Only of these runs")->type_name("RUN");
  auto* keep = app->add_option("--keep", o->keep,
                               "Of finished runs, keep so many of the newest checkpoints, and the best; by default as "
                               "each recipe's checkpoint.keep_latest says")
                   ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  app->add_flag("--whole", o->whole, "The whole folders of the runs that are named")->excludes(keep);
  app->add_flag("--yes", o->yes, "Remove without asking");
  runs_options(*app, *o);
  json_option(*app, *o);
  app->footer("Examples:\n  weft runs gc\n  weft runs gc --keep 1\n  weft runs gc --whole runs/failed-attempt");
  return {app, [o] { return run_runs_gc(*o); }, kRunsGroup};
}

Command add_runs_queue(CLI::App& runs) {
  auto o = std::make_shared<RunsQueueOptions>();
  CLI::App* app = runs.add_subcommand("queue", "The supervised runs that wait for each other on this machine");
  app->add_option("folder", o->folder, "As their recipes have it in run.queue")->required()->type_name("FOLDER");
  app->add_flag("--json", o->json, "Print JSON");
  app->footer("Example:\n  weft runs queue /var/tmp/weft-queue");
  return {app, [o] { return run_runs_queue(*o); }, kRunsGroup};
}

}  // namespace

std::vector<Command> add_runs(CLI::App& weft) {
  CLI::App* runs = weft.add_subcommand(kRunsGroup, "All runs: find, compare, repeat, rank, trace and clear them");
  runs->require_subcommand(1);
  return {add_new(weft),           add_doctor(weft),     add_watch(weft),         add_report(weft),
          add_runs_list(*runs),    add_runs_scan(*runs), add_runs_show(*runs),    add_runs_diff(*runs),
          add_runs_compare(*runs), add_runs_best(*runs), add_runs_lineage(*runs), add_runs_gc(*runs),
          add_runs_rerun(*runs),   add_runs_queue(*runs)};
}

}  // namespace weft
