#include "weft/apps/next_ranks.h"

#include <algorithm>

#include "weft/apps/backends.h"
#include "weft/base/error.h"
#include "weft/plan/phase_plans.h"

namespace weft {
namespace {

// Those of the first host, on which the run is led from; others are taken to be like it.
RanksOnHost ranks_led_from_here(const LayoutPlan& plan, const Recipe& layout, const std::vector<Host>& hosts) {
  RanksOnHost here = all_on_this_host(plan, layout.run.ranks == RanksKind::mpi);
  if (!hosts.empty()) here.ranks.resize(std::min(here.ranks.size(), size_t(hosts[0].slots)));
  return here;
}

std::string why_it_cannot(const Recipe& layout, const std::vector<Host>& hosts, const HostMemory& memory, bool force) {
  try {
    const Machine machine = machine_to_plan_for(layout);
    const std::vector<PlannedSpan> phases = on_this_layout(plan_phases(layout, *machine.workspace_model), layout);
    if (force || layout.run.backend == BackendKind::cuda) return "";
    const LayoutPlan& plan = *largest_of(phases).layout;
    const HostNeed need = need_on_host(plan, ranks_led_from_here(plan, layout, hosts));
    if (memory.all && need.total() > memory.all->bytes) return memory.all->what;
    return memory.each && need.largest > memory.each->bytes ? memory.each->what : "";
  } catch (const Error& e) { return e.what(); }
}

}  // namespace

std::optional<NextRanks> next_ranks(const Recipe& recipe, const Available& available, const HostMemory& memory,
                                    bool force) {
  const auto does_not_fit = [&](const Recipe& layout) { return why_it_cannot(layout, available.hosts, memory, force); };
  std::optional<FleetLayout> layout = choose_layout(recipe, available.ranks, does_not_fit);
  if (!layout) return {};
  std::vector<Host> hosts = first_slots(available.hosts, layout->ranks);
  return NextRanks{std::move(*layout), std::move(hosts)};
}

bool is_same_start(const NextRanks& a, const NextRanks& b) {
  return a.layout.recipe == b.layout.recipe && a.hosts == b.hosts;
}

}  // namespace weft
