#include "weft/apps/backends.h"

#include <sched.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/ops/cpu/cpu_backend.h"
#include "weft/ops/cpu/cpu_workspace.h"
#include "weft/ops/cpu/peak.h"
#include "weft/ops/ref/ref_backend.h"

namespace weft {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

Machine cpu_machine(int threads, Numerics numerics) {
  const CpuSpec spec{.threads = threads, .numerics = numerics};
  return {.description = fmt::format("cpu, {} thread{}, {}", threads, threads == 1 ? "" : "s", cpu_description()),
          .threads = threads,
          .workspace_model = std::make_shared<CpuWorkspace>(spec),
          .make_backend = [spec](Arena& workspace) { return std::make_unique<CpuBackend>(spec, workspace); },
          .measure_matmul_rate = [threads](DType dtype) { return measure_matmul_flops(threads, dtype); }};
}

Machine ref_machine(int threads) {
  return {.description = fmt::format("reference in fp64, {} thread{}", threads, threads == 1 ? "" : "s"),
          .threads = threads,
          .workspace_model = std::make_shared<WorkspaceModel>(),
          .make_backend = [threads](Arena&) { return std::make_unique<RefBackend>(threads); },
          .measure_matmul_rate = [](DType) { return 0.0; }};
}

}  // namespace

Machine machine_for(const Recipe& recipe) {
  const int threads = recipe.run.threads > 0 ? int(recipe.run.threads) : usable_cores();
  if (recipe.run.backend == "ref") return ref_machine(threads);
  if (recipe.run.backend == "cpu")
    return cpu_machine(threads, recipe.train.numerics == "invariant" ? Numerics::invariant : Numerics::fast);
  throw ConfigError(
      fmt::format("run.backend = \"{}\" is not in this program; there are cpu and ref", recipe.run.backend));
}

}  // namespace weft
