#include "weft/apps/backends.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "weft/apps/cpu_machine.h"
#include "weft/apps/cuda_machine.h"
#include "weft/apps/launch.h"
#include "weft/base/error.h"
#include "weft/base/threads.h"
#include "weft/forecast/device_precision.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/plan/layout.h"
#include "weft/plan/run_plan.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {
namespace {

Machine ref_machine(int threads) {
  return {.description = fmt::format("reference in fp64, {} thread{}", threads, threads == 1 ? "" : "s"),
          .threads = threads,
          .workspace_model = std::make_shared<WorkspaceModel>(),
          .make_backend = [threads](Arena&) { return std::make_unique<RefBackend>(threads); },
          .measure_matmul_rate = [](DType) { return 0.0; },
          .measure_bandwidth = [threads] { return measure_cpu_bandwidth(threads); },
          .make_library_matmuls = [threads] { return cpu_library_matmuls(threads); }};
}

// Whether results repeat bit for bit.
bool repeats(const Recipe& recipe) { return recipe.train.numerics != NumericsChoice::nondeterministic; }

// Rank among the processes that the launcher started on this host: each takes a GPU of its own if there are enough.
int rank_on_this_host() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
    if (const char* value = std::getenv(name)) return std::max(0, std::atoi(value));
  return 0;
}

}  // namespace

void settle_backend(Recipe& recipe, bool speaks) {
  if (recipe.run.backend != BackendKind::automatic) return;
  std::string missing = why_no_cuda();
  recipe.run.backend = BackendKind::cuda;
  try {
    Recipe there = recipe;
    if (there.train.precision == PrecisionChoice::automatic) there.train.precision = PrecisionChoice::bf16;
    if (missing.empty()) check_supported(there);
  } catch (const ConfigError& e) { missing = e.what(); }
  if (!missing.empty()) recipe.run.backend = BackendKind::cpu;
  if (speaks)
    std::cerr << fmt::format("note: run.backend = \"auto\" takes {}\n",
                             missing.empty() ? "cuda" : "cpu, as a GPU cannot be used: " + missing);
}

std::vector<std::string> backends_here() {
  std::vector<std::string> names;
  if (has_cpu()) names.emplace_back("cpu");
  if (!find_cuda_module().empty()) names.emplace_back("cuda");
  names.emplace_back("ref");
  return names;
}

Numerics numerics_of(const Recipe& recipe) {
  return recipe.train.numerics == NumericsChoice::invariant ? Numerics::invariant : Numerics::fast;
}

Machine machine_for(const Recipe& recipe, int ranks_here) {
  const int sharing = ranks_here > 0 ? ranks_here : mesh_sizes_of(recipe).world();
  const int threads = recipe.run.threads > 0 ? int(recipe.run.threads) : std::max(1, usable_cores() / sharing);
  if (recipe.run.backend == BackendKind::ref) return ref_machine(threads);
  if (recipe.run.backend == BackendKind::cpu) need_cpu(find_cuda_module().empty() ? "ref" : "cuda");
  if (recipe.run.backend == BackendKind::cpu) {
    const Numerics numerics = numerics_of(recipe);
    Machine machine = cpu_machine(threads, numerics);
    if (recipe.parallel.pp > 1 && recipe.run.ranks == RanksKind::local)
      machine.of_stages = std::make_shared<const Machine>(cpu_machine(threads * int(recipe.parallel.pp), numerics));
    return machine;
  }
  if (recipe.run.backend == BackendKind::cuda) {
    const bool processes = recipe.run.ranks == RanksKind::mpi && launched_as(environment).world > 1;
    return cuda_machine(rank_on_this_host(), threads,
                        {.are_processes = processes,
                         .timeout_s = 60 * double(recipe.run.distributed_timeout_minutes),
                         .repeat = repeats(recipe),
                         .num_here = processes ? 1 : mesh_sizes_of(recipe).world()});
  }
  throw ConfigError(
      fmt::format("run.backend = \"{}\" is not in this program; there are cpu, cuda and ref", recipe.run.backend));
}

Machine machine_for(const ModelOptions& options) {
  Recipe recipe;
  recipe.run.backend = choice_named<BackendKind>(options.backend).value();
  recipe.run.threads = options.threads;
  settle_backend(recipe, true);
  return machine_for(recipe);
}

Machine machine_to_plan_for(const Recipe& recipe) {
  return recipe.run.backend == BackendKind::cuda ? cuda_machine_to_plan(repeats(recipe)) : machine_for(recipe);
}

void settle_precision(Recipe& recipe, const ClusterSpec* cluster, bool speaks) {
  if (recipe.train.precision != PrecisionChoice::automatic) return;
  PrecisionReason reason;
  if (cluster != nullptr)
    reason = precision_on(*cluster, mesh_sizes_of(recipe).world());
  else if (recipe.run.backend == BackendKind::cuda)
    reason = {PrecisionChoice::bf16, "every GPU that weft runs on has it, as fast as fp16 and without a loss scale"};
  else if (cpu_multiplies_bf16())
    reason = {PrecisionChoice::bf16, "these cores multiply in it (AVX512_BF16)"};
  else
    reason = {PrecisionChoice::f32, "these cores have no products in bf16 (AVX512_BF16)"};
  recipe.train.precision = reason.choice;
  if (speaks)
    std::cerr << fmt::format("note: train.precision = \"auto\" takes {}: {}\n", name_of(reason.choice), reason.why);
}

Recipe read_recipe(const std::string& path, const std::vector<std::string>& overrides, bool speaks,
                   const ClusterSpec* cluster) {
  Recipe recipe = parse_recipe_file(path, overrides);
  settle_backend(recipe, speaks);
  settle_precision(recipe, cluster, speaks);
  return recipe;
}

Recipe first_steps_of(const Recipe& recipe, bool speaks) {
  PhaseSpan span = phase_spans(recipe)[0];
  if (has_phases(recipe)) {
    span.recipe.optimizer.lr_scaling = LrScaling::none;  // which has made its learning rate
    if (speaks) std::cerr << "note: the recipe has phases; this looks at the first steps: " << to_string(span) << "\n";
  }
  if (speaks && recipe.objective.precompute_ref_log_probs)
    std::cerr << "note: objective.precompute_ref_log_probs: here the reference is in memory, and gives the same bits\n";
  span.recipe.objective.precompute_ref_log_probs = false;
  return span.recipe;
}

std::optional<Recipe> recipe_of_checkpoint(const std::filesystem::path& folder) {
  const auto file = folder / "weft" / "recipe.toml";
  if (!std::filesystem::exists(file)) return {};
  return parse_recipe_file(file.string(), {});
}

Precision precision_of(const ModelOptions& options) {
  if (options.backend == "ref") return kF64;
  if (options.precision == "f32") return kF32;
  if (options.precision == "bf16") return kBf16;
  if (options.precision == "fp16") return kF16;
  throw ConfigError(fmt::format("--precision {}: there are f32, bf16 and fp16", options.precision));
}

}  // namespace weft
