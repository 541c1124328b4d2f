// The options of `weft log` and `weft card`, and --policy.
#include <memory>

#include "weft/apps/cli_command.h"
#include "weft/apps/governance.h"

namespace weft {
namespace {

constexpr const char* kLogGroup = "log";

Command add_log_verify(CLI::App& log) {
  auto o = std::make_shared<LogOptions>();
  CLI::App* app = log.add_subcommand("verify", "Whether a log is whole; if not, the first line that is not");
  app->add_option("file", o->file, "The log")->required()->type_name("FILE");
  app->add_option("--hash", o->hash, "Of a line, as somebody has kept it: that line must be there")->type_name("HASH");
  app->footer("Example:\n  weft log verify release-log.jsonl");
  return {app, [o] { return run_log_verify(*o); }, kLogGroup};
}

Command add_log_add(CLI::App& log) {
  auto o = std::make_shared<LogOptions>();
  CLI::App* app = log.add_subcommand("add", "Append what somebody decided or saw");
  app->add_option("file", o->file, "The log, which is made if it is not there")->required()->type_name("FILE");
  app->add_option("text", o->text, "What it is to say")->required()->type_name("TEXT");
  app->add_option("--model", o->model, "A model that it is about: its weights, data and licences go along")
      ->type_name("FOLDER");
  app->footer("Example:\n  weft log add release-log.jsonl 'read by the lawyers' --model runs/first");
  return {app, [o] { return run_log_add(*o); }, kLogGroup};
}

Command add_card(CLI::App& weft) {
  auto o = std::make_shared<CardOptions>();
  CLI::App* app = weft.add_subcommand("card", "Write the model card of a checkpoint, as Hugging Face has them");
  app->add_option("model", o->model, "Model folder, checkpoint, or run folder")->required()->type_name("FOLDER");
  app->add_option("--out", o->out, "The file; by default README.md in the folder")->type_name("FILE");
  app->add_option("--licence", o->licence, "Of the model, as Hugging Face names it: apache-2.0")->type_name("NAME");
  app->add_option("--results", o->results, "File of `weft eval --output`; else what the run has scored (eval.tasks)")
      ->type_name("FILE");
  CLI::Option* watts =
      app->add_option("--watts", o->watts, "What the machine drew in the mean, for the energy of the run")
          ->check(number_in(0, 1e12));
  app->add_option("--grams-per-kwh", o->grams_per_kwh, "CO2 of its electricity; by default the world's mean, 473")
      ->check(number_in(0, 1e5))
      ->needs(watts);
  app->add_flag("--force", o->force, "Replace a file that weft did not write");
  app->footer("Example:\n  weft card runs/first --licence apache-2.0 --watts 700 --grams-per-kwh 56");
  return {app, [o] { return run_card(*o); }};
}

}  // namespace

std::vector<Command> add_governance(CLI::App& weft) {
  CLI::App* log = weft.add_subcommand(kLogGroup, "Logs whose lines carry hashes: whether they are whole");
  log->require_subcommand(1);
  return {add_log_verify(*log), add_log_add(*log), add_card(weft)};
}

void policy_option(CLI::App& app, std::vector<std::string>& files) {
  app.add_option("--policy", files,
                 "What it must be, and who may do this: a file policy.toml, beside those that are found at the model; "
                 "repeat it for more")
      ->allow_extra_args(false)
      ->type_name("FILE");
}

}  // namespace weft
