// The ranks of a command that runs a model forward: their layout from the command line, and their start.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "weft/apps/commands.h"
#include "weft/apps/ranks.h"
#include "weft/recipe/recipe.h"
#include "weft/train/machine.h"

namespace weft {

// A recipe of which [parallel] and [run] mean something: the options' backend and threads, and `settings` as a recipe's
// overrides. Throws ConfigError for one that is not among `keys`, or that cannot be: each by name, with the nearest
// that works. Touches no device.
struct ForwardCommand {
  std::string name;               // "eval"
  std::vector<std::string> keys;  // that it takes
};
Recipe forward_recipe(const ForwardCommand& command, const ModelOptions& options,
                      const std::vector<std::string>& settings);
// Whether a word of the command line is such a setting: "parallel.tp=2".
bool is_layout_setting(const std::string& word);

// Calls `body` in each process that has ranks, which it runs by RankProcess::run: in this one; or, where run.ranks is
// "mpi", in those that a launcher has started, or that this starts by mpirun. Returns the exit status.
int run_forward_ranks(const Recipe& recipe, const std::string& command,
                      const std::function<int(const RankProcess&)>& body);

// What some ranks need together.
struct RanksNeed {
  int64_t bytes = 0;
  std::string of_it = "";   // what takes it, behind the bytes: " (3 GiB of it ...)"; may be empty
  std::string advice = "";  // "a smaller --context takes less"
};
// Refuses what the ranks on this host cannot hold together, before any has memory. Ranks on a GPU find out for
// themselves. `needs` is asked about the ranks here, by one process of the host. Throws ConfigError, which says what
// there is no memory for: "to evaluate".
void require_memory(const std::string& purpose, const Recipe& recipe, const Machine& machine,
                    const RankProcess& process, const std::function<RanksNeed(const std::vector<int>& ranks)>& needs);

}  // namespace weft
