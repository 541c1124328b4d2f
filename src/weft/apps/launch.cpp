#include "weft/apps/launch.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "weft/base/error.h"

namespace weft {
namespace {

int number(const std::optional<std::string>& text, int otherwise) {
  return text ? std::atoi(text->c_str()) : otherwise;
}

}  // namespace

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

Launched launched_as(const Environment& env) {
  Launched l;
  l.allocated = env("SLURM_JOB_ID").has_value() || env("PBS_JOBID").has_value();
  if (env("OMPI_COMM_WORLD_SIZE")) {
    l.by = "mpirun";
    l.rank = number(env("OMPI_COMM_WORLD_RANK"), 0);
    l.world = number(env("OMPI_COMM_WORLD_SIZE"), 1);
    l.can_join = true;
  } else if (env("SLURM_STEP_ID") && env("SLURM_PROCID")) {  // the batch script itself has no step
    l.by = "srun";
    l.rank = number(env("SLURM_PROCID"), 0);
    l.world = number(env("SLURM_STEP_NUM_TASKS"), number(env("SLURM_NTASKS"), 1));
    l.can_join = env("PMIX_RANK").has_value();
  } else if (env("PMI_SIZE") && env("PMI_RANK")) {
    l.by = "a launcher of another MPI";
    l.rank = number(env("PMI_RANK"), 0);
    l.world = number(env("PMI_SIZE"), 1);
  }
  return l;
}

void check_launch(const Recipe& recipe, int layout_ranks, const Launched& l) {
  if (recipe.run.ranks != RanksKind::mpi) {
    if (l.world > 1)
      throw WorldError(
          fmt::format("{} has started {} processes, each of which would train the whole recipe, because "
                      "run.ranks = \"{}\"; set run.ranks = \"mpi\", or start one process",
                      l.by, l.world, recipe.run.ranks));
    if (layout_ranks > kMostThreadRanks)
      throw ConfigError(
          fmt::format("run.ranks = \"{}\" cannot run: {} ranks as threads of one process, which may have {}; the "
                      "nearest that works: run.ranks = \"mpi\"",
                      recipe.run.ranks, layout_ranks, kMostThreadRanks));
    return;
  }
  if (l.by.empty()) return;
  if (l.world != layout_ranks)
    throw WorldError(
        fmt::format("the layout has {} rank{} (dp {}, pp {}, cp {}, tp {}), but {} has started {}; start "
                    "{}, or change [parallel]",
                    layout_ranks, layout_ranks == 1 ? "" : "s", recipe.parallel.dp, recipe.parallel.pp,
                    recipe.parallel.cp, recipe.parallel.tp, l.by, l.world, layout_ranks));
  if (!l.can_join && l.world > 1)
    throw WorldError(
        fmt::format("{} has started {} processes that cannot find each other: use srun --mpi=pmix, or Open MPI's "
                    "mpirun, or start `weft train` plainly, which starts the ranks itself",
                    l.by, l.world));
}

std::vector<std::string> this_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) throw FileError("/proc/self/cmdline cannot be read: ranks cannot be started by this command");
  words[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

}  // namespace weft
