// The command line of `weft report` and `weft new`: behind a run, and before it.
#include "weft/apps/cli_command.h"
#include "weft/apps/commands.h"

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

}  // namespace

std::vector<Command> add_runs(CLI::App& weft) { return {add_new(weft), add_report(weft)}; }

}  // namespace weft
