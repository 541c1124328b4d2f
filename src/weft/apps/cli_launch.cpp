// The command line of `weft launch`.
#include "weft/apps/cli_command.h"
#include "weft/apps/commands.h"
#include "weft/apps/launch.h"
#include "weft/apps/launch_files.h"

namespace weft {
namespace {

std::string command_here() {
  std::vector<std::string> words = this_command();
  words[0] = "weft";
  return shell_line(words);
}

void launch_kinds(CLI::App& app, LaunchOptions& o) {
  CLI::Option* slurm = app.add_flag_callback(
      "--slurm", [&o] { o.kind = "slurm"; }, "A script for sbatch");
  CLI::Option* k8s =
      app.add_option_function<std::string>(
             "--k8s", [&o](const std::string& kind) { o.kind = kind; }, "A file for kubectl: jobset or mpijob")
          ->check(CLI::IsMember({"jobset", "mpijob"}));
  CLI::Option* ssh = app.add_flag_callback(
      "--ssh", [&o] { o.kind = "ssh"; }, "A script for hosts that ssh reaches");
  slurm->excludes(k8s)->excludes(ssh);
  k8s->excludes(ssh);
  app.add_option("--partition", o.partition, "Of --slurm")->type_name("NAME")->needs(slurm);
  app.add_option("--time", o.time_limit, "Of --slurm: the limit of a job, as 24:00:00")
      ->type_name("TIME")
      ->needs(slurm);
  add_number(app, "--chain", o.chain, "Of --slurm: so many jobs, one after the other, each going on; 0: one", 0, 10000)
      ->needs(slurm);
  app.add_option("--image", o.image, "Of --k8s: the container image")->type_name("IMAGE")->needs(k8s);
  app.add_option("--claim", o.claim, "Of --k8s: claim of the volume that all pods share")
      ->type_name("NAME")
      ->needs(k8s);
  app.add_option("--mount", o.mount, "Of --k8s: the folder where pods see it; the recipe's path begins there")
      ->capture_default_str()
      ->type_name("FOLDER")
      ->needs(k8s);
  app.add_option("--hosts", o.hosts, "Of --ssh: hostfile")->type_name("FILE")->needs(ssh);
}

}  // namespace

Command add_launch(CLI::App& weft) {
  auto o = std::make_shared<LaunchOptions>();
  CLI::App* app = weft.add_subcommand("launch", "Write the file by which Slurm, Kubernetes or ssh run a recipe");
  recipe_arguments(*app, o->recipe, o->overrides);
  app->get_option("recipe")->required();
  launch_kinds(*app, *o);
  add_number(*app, "--nodes", o->nodes, "That the ranks are spread over, as many on each", 1, int64_t{1} << 20);
  app->add_option("--name", o->name, "Of the job; by default after run.dir")->type_name("NAME");
  add_number(*app, "--notice", o->notice_s, "Seconds from the wish to stop to the end: more than a step and a save", 1,
             86400);
  app->add_option("--out", o->out, "The file; by default job.sh, job.yaml or run.sh")->type_name("FILE");
  app->add_flag("--again", o->again, "Replace the file that is there");
  app->footer(
      "Examples:\n  weft launch recipe.toml --slurm --nodes 2 --time 12:00:00 --chain 5 && sbatch job.sh\n"
      "  weft launch recipe.toml --k8s jobset --nodes 4 --image registry/weft:1 --claim data\n"
      "  weft launch recipe.toml --ssh --hosts hosts && ./run.sh\n\n"
      "It starts nothing. What it writes calls `weft supervise`.");
  return {app, [o] {
            o->command = command_here();
            return run_launch(*o);
          }};
}

}  // namespace weft
