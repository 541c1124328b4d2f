// `weft launch`: writes what starts a recipe's run under a batch system, a cluster or plain ssh. It starts nothing.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/hosts.h"
#include "weft/apps/launch_files.h"
#include "weft/base/durable_file.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/plan/phase_plans.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/train/room.h"

namespace weft {
namespace {

// In scripts it stands in several kinds of quotes.
void require_plain(const std::string& what, const std::string& text) {
  const bool plain = !text.empty() && text[0] != '-' && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(uint8_t(c)) || std::string_view("_-./+=@:").find(c) != std::string_view::npos;
  });
  if (!plain) throw ConfigError(fmt::format("{} \"{}\": scripts need letters, digits and _-./+=@: alone", what, text));
}

// What the ranks of a node take on the host, on the fullest.
int64_t node_bytes(const Recipe& recipe, int64_t slots) {
  const Machine machine = machine_to_plan_for(recipe);
  const std::vector<PlannedSpan> phases = plan_phases(recipe, *machine.workspace_model);
  if (recipe.run.backend == BackendKind::cuda) return 0;  // the plan is of the device
  const LayoutPlan& plan = *largest_of(phases).layout;
  const int64_t world = mesh_sizes_of(recipe).world();
  int64_t most = 0;
  for (int64_t first = 0; first < world; first += slots) {
    RanksOnHost here{.ranks = {}, .are_processes = world > 1};
    for (int64_t r = first; r < std::min(world, first + slots); ++r) here.ranks.push_back(int(r));
    most = std::max(most, need_on_host(plan, here).total());
  }
  return most;
}

void take_hosts(LaunchSpec& spec, const LaunchOptions& o) {
  if (o.hosts.empty()) throw ConfigError("--hosts is missing: a hostfile with the hosts to run on (docs/ranks.md)");
  const Available all = available_in(o.hosts);
  if (all.ranks < spec.ranks)
    throw ConfigError(fmt::format("--hosts {}: {} slots, and the layout has {} ranks", o.hosts, all.ranks, spec.ranks));
  for (const Host& host : all.hosts) spec.hosts.push_back(host.name);
  spec.hostfile = o.hosts;
}

LaunchSpec launch_spec(const LaunchOptions& o) {
  require_plain("the recipe", o.recipe);
  for (const std::string& setting : o.overrides)
    if (std::any_of(setting.begin(), setting.end(), [](char c) { return std::iscntrl(uint8_t(c)) != 0; }))
      throw ConfigError(fmt::format("the setting {}: scripts cannot have control characters", in_quotes(setting)));
  const Recipe recipe = read_recipe(o.recipe, o.overrides);
  check_supported(recipe);
  if (has_layouts(recipe))
    throw ConfigError(
        "[[phase]] tables change the layout, and these scripts start one number of ranks; the nearest that works: "
        "`weft supervise` within an allocation, or a script for each layout (docs/tune/phases.md)");
  LaunchSpec spec{.recipe = o.recipe,
                  .overrides = o.overrides,
                  .name = o.name.empty() ? job_name_of(recipe.run.dir) : o.name,
                  .made_by = o.command,
                  .ranks = mesh_sizes_of(recipe).world(),
                  .nodes = o.nodes,
                  .threads = recipe.run.threads,
                  .gpus = recipe.run.backend == BackendKind::cuda,
                  .notice_s = o.notice_s,
                  .partition = o.partition,
                  .time_limit = o.time_limit,
                  .chain = o.chain,
                  .image = o.image,
                  .claim = o.claim,
                  .mount = o.mount};
  if (spec.name != job_name_of(spec.name))
    throw ConfigError(
        fmt::format("--name {}: letters a-z, digits and -, at most 40, as {}", spec.name, job_name_of(spec.name)));
  if (spec.ranks % spec.nodes != 0)
    throw ConfigError(
        fmt::format("--nodes {}: the layout has {} ranks, which must be as many on each node", spec.nodes, spec.ranks));
  spec.node_bytes = node_bytes(recipe, spec.slots());
  return spec;
}

void require_option(bool there, const char* option, const char* why) {
  if (!there) throw ConfigError(fmt::format("{} is missing: {}", option, why));
}

std::string text_of_kind(const LaunchOptions& o) {
  LaunchSpec spec = launch_spec(o);
  if (o.kind == "slurm") {
    for (const std::string* word : {&o.partition, &o.time_limit})
      if (!word->empty()) require_plain("an option of Slurm", *word);
    return slurm_script(spec);
  }
  if (o.kind == "ssh") {
    require_plain("--hosts", o.hosts);
    take_hosts(spec, o);
    return ssh_script(spec);
  }
  require_option(!o.image.empty(), "--image",
                 "the container image with weft in it (the repository's Dockerfile makes one)");
  require_option(!o.claim.empty(), "--claim",
                 "the claim of the volume with recipe, data and run folder, which all pods share");
  return o.kind == "jobset" ? jobset_yaml(spec) : mpijob_yaml(spec);
}

}  // namespace

int run_launch(const LaunchOptions& o) {
  require_option(!o.kind.empty(), "--slurm, --k8s or --ssh", "what is to start the run?");
  const bool script = o.kind == "slurm" || o.kind == "ssh";
  const std::string usual = o.kind == "slurm" ? "job.sh" : script ? "run.sh" : "job.yaml";
  const std::string out = o.out.empty() ? usual : o.out;
  if (is_name_taken(out) && !o.again)
    throw ConfigError(
        fmt::format("{}: is there already, and stays; --again replaces it, --out names another file", out));
  write_file_durably(out, text_of_kind(o), kOwnName);
  if (script) std::filesystem::permissions(out, std::filesystem::perms::owner_exec, std::filesystem::perm_options::add);
  const char* now = o.kind == "slurm" ? "sbatch" : o.kind == "ssh" ? "sh" : "kubectl apply -f";
  std::cout << fmt::format("{} written; nothing was started. Now: {} {}\n", out, now, shell_line({out}));
  return kExitOk;
}

}  // namespace weft
