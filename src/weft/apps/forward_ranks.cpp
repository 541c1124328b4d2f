#include "weft/apps/forward_ranks.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "weft/apps/backends.h"
#include "weft/apps/first_rank_says.h"
#include "weft/apps/launch.h"
#include "weft/apps/launcher.h"
#include "weft/base/error.h"
#include "weft/base/memory_limits.h"
#include "weft/plan/layout.h"
#include "weft/records/progress.h"

namespace weft {
namespace {

std::string key_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }

// The last of these settings; 1 where there is none, or none that is a number above 0, which the recipe's parser tells.
int64_t size_of_axis(const std::vector<std::string>& settings, const std::string& key) {
  int64_t size = 1;
  for (const std::string& s : settings)
    if (key_of(s) == key) std::from_chars(s.data() + key.size() + 1, s.data() + s.size(), size);
  return size > 0 && size <= kMostRanks ? size : 1;
}

void require_known(const ForwardCommand& command, const std::vector<std::string>& settings) {
  for (const std::string& s : settings)
    if (std::find(command.keys.begin(), command.keys.end(), key_of(s)) == command.keys.end())
      throw ConfigError(
          fmt::format("{} has no effect: `weft {}` takes {}", s, command.name, fmt::join(command.keys, ", ")));
}

}  // namespace

bool is_layout_setting(const std::string& word) {
  return word.find('=') != std::string::npos && (word.starts_with("parallel.") || word.starts_with("run."));
}

Recipe forward_recipe(const ForwardCommand& command, const ModelOptions& options,
                      const std::vector<std::string>& settings) {
  require_known(command, settings);
  // A batch that any layout can share: what a recipe says of batches is not asked for here.
  const int64_t dp = size_of_axis(settings, "parallel.dp"), cp = size_of_axis(settings, "parallel.cp");
  std::vector<std::string> all{"model.path=none",
                               "data.train=none",
                               fmt::format("train.seq_length={}", 2 * cp),
                               "train.micro_batch_size=1",
                               fmt::format("train.global_batch_size={}", dp),
                               "run.backend=" + options.backend,
                               fmt::format("run.threads={}", options.threads)};
  all.insert(all.end(), settings.begin(), settings.end());
  Recipe recipe = parse_recipe("", command.name, all);
  settle_backend(recipe, launched_as(environment).rank == 0);
  check_supported(recipe);
  return recipe;
}

int run_forward_ranks(const Recipe& recipe, const std::string& command,
                      const std::function<int(const RankProcess&)>& body) {
  const Launched launched = launched_as(environment);
  const int world = mesh_sizes_of(recipe).world();
  const auto fits = [&] { check_launch(recipe, world, launched); };
  if (const auto status = first_rank_says(launched, kExitWrongWorld, fits)) return *status;
  if (recipe.run.ranks != RanksKind::mpi) return body({});
  check_mpi_is_built_in();
  if (!launched.by.empty()) {
    const RankProcess process = join_mpi(world, recipe.run, command);
    return run_as_rank(process, command, [&] { return body(process); });
  }
  if (world == 1) return body({});
  return run_ranks_by_mpirun({.ranks = world,
                              .command = this_command(),
                              .launched = launched,
                              .start_timeout_s = 60 * recipe.run.start_timeout_minutes});
}

void require_memory(const std::string& purpose, const Recipe& recipe, const Machine& machine,
                    const RankProcess& process, const std::function<RanksNeed(const std::vector<int>& ranks)>& needs) {
  if (!machine.device.empty() || (!process.here.empty() && process.rank != process.here.front())) return;
  const auto left = memory_left_here();
  if (!left) return;
  std::vector<int> ranks = process.here;
  if (ranks.empty()) {
    ranks.resize(size_t(mesh_sizes_of(recipe).world()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  const RanksNeed need = needs(ranks);
  if (need.bytes > left->bytes)
    throw ConfigError(fmt::format("no memory {}: the ranks here take {}{}, but {}; {}", purpose,
                                  format_bytes(double(need.bytes)), need.of_it, left->what, need.advice));
}

}  // namespace weft
