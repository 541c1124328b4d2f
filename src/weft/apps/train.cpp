#include <unistd.h>
#include <csignal>

#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/base/error.h"
#include "weft/train/run_folder.h"
#include "weft/train/train_on_ranks.h"

namespace weft {
namespace {

constexpr int kHelpColumns = 110;

std::atomic<bool> stop_requested{false};  // a signal handler reaches nothing else

extern "C" void on_signal(int signal) {
  // The second Ctrl-C: at once. A session that closes sends several signals, and must not lose the run.
  if (stop_requested.exchange(true)) {
    if (signal == SIGINT) _exit(kExitInterrupted);
    return;
  }
  constexpr char kMessage[] = "\nstopping after this step, then saving; again to stop at once\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
}

std::string layout_text(const Recipe& r) {
  const int world = mesh_sizes_of(r).world();
  if (world == 1) return "one rank";
  std::string axes;
  const std::pair<const char*, int64_t> sizes[] = {{"dp", r.parallel.dp}, {"tp", r.parallel.tp}};
  for (const auto& [axis, size] : sizes)
    if (size > 1) axes += fmt::format("{}{} {}", axes.empty() ? "" : ", ", axis, size);
  if (r.parallel.dp > 1 && r.parallel.zero_stage > 0) axes += fmt::format(", ZeRO stage {}", r.parallel.zero_stage);
  return fmt::format("{} ranks as threads of this process: {}", world, axes);
}

std::string header(const Recipe& r, const Machine& machine, const RunPlan& plan) {
  return format_header(
      "weft train",
      {{"model", fmt::format("{}, {} parameters", r.model.path, format_count(double(plan.memory.num_params)))},
       {"machine", machine.description},
       {"step", fmt::format("{} sequences of {} tokens, {} at a time, {}", r.train.global_batch_size,
                            r.train.seq_length, r.train.micro_batch_size, r.train.precision)},
       {"layout", layout_text(r)},
       {"memory", format_bytes(double(plan.memory.total_bytes())) + (mesh_sizes_of(r).world() > 1 ? " each rank" : "")},
       {"run folder", r.run.dir}});
}

}  // namespace

int run_train(const TrainOptions& options) {
  if (options.help_recipe) {
    std::cout << recipe_reference(kHelpColumns);
    return kExitOk;
  }
  if (options.recipe.empty())
    throw ConfigError("a recipe is missing, as in `weft train recipe.toml`; `weft train --help` says more");
  const Recipe recipe = parse_recipe_file(options.recipe, options.overrides);
  check_supported(recipe);
  const Machine machine = machine_for(recipe);
  const RunPlan plan = plan_run(recipe, *machine.workspace_model);
  for (const auto& warning : plan.config.warnings) std::cerr << "note: " << warning << "\n";
  if (plan.model.max_positions > 0 && recipe.train.seq_length > plan.model.max_positions)
    std::cerr << fmt::format("note: train.seq_length = {} is beyond the {} positions that the model was made for\n",
                             recipe.train.seq_length, plan.model.max_positions);
  const RunLock lock = claim_run_folder(recipe);
  std::cerr << header(recipe, machine, plan) << to_string(plan.memory) << std::flush;
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away does not end the run
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, on_signal) == SIG_IGN) std::signal(signal, SIG_IGN);  // as nohup asked
  const bool finished = train_on_ranks({.recipe = recipe, .machine = machine, .stop = stop_requested});
  return finished ? kExitOk : kExitInterrupted;
}

}  // namespace weft
