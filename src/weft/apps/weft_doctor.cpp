#include "weft/apps/weft_doctor.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "weft/apps/backends.h"
#include "weft/apps/child_command.h"
#include "weft/apps/commands.h"
#include "weft/apps/ranks.h"
#include "weft/apps/report.h"
#include "weft/base/error.h"
#include "weft/doctor/disk_checks.h"
#include "weft/doctor/host_checks.h"
#include "weft/plan/phase_plans.h"
#include "weft/records/progress.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/room.h"

namespace weft {
namespace {

// What the checks need to know of a recipe.
struct DoctorNeeds {
  HostUse host;
  DiskUse disk;
  HealthFindings findings;
};

// A judgement of weft's own: its error is a finding.
template <class F>
HealthFinding judged(const char* what, const std::string& good, const F& f) {
  try {
    const std::string warning = f();
    if (warning.empty()) return {.verdict = HealthVerdict::good, .what = what, .found = good};
    return {
        .verdict = HealthVerdict::warning, .what = what, .found = warning, .cost = "the run begins, and fails later"};
  } catch (const Error& e) {
    return {.verdict = HealthVerdict::bad,
            .what = what,
            .found = e.what(),
            .cost = "weft train refuses the recipe, with this message"};
  }
}

HealthFinding check_mpi() {
  try {
    check_mpi_is_built_in();
  } catch (const Error& e) {
    return {.verdict = HealthVerdict::bad,
            .what = "MPI",
            .found = e.what(),
            .change = "run.ranks = \"local\", or a build with MPI",
            .cost = "ranks as processes cannot be started"};
  }
  constexpr double kLimitS = 10;
  ChildCommand command({"mpirun", "--version"}, kLimitS, /*quiet=*/true);
  const ChildCommand::Answer answer = command.wait([] { return false; });
  if (answer.good)
    return {.verdict = HealthVerdict::good, .what = "MPI", .found = answer.text.substr(0, answer.text.find('\n'))};
  return {.verdict = HealthVerdict::bad,
          .what = "MPI",
          .found = "mpirun " + answer.text,
          .change = "install openmpi-bin, on every host the same version",
          .cost = "ranks as processes cannot be started"};
}

DoctorNeeds needs_of(const Recipe& recipe) {
  const Machine machine = machine_to_plan_for(recipe);
  const std::vector<PlannedSpan> phases = plan_phases(recipe, *machine.workspace_model);
  const LayoutPlan& layout = *largest_of(on_this_layout(phases, recipe)).layout;
  const RunPlan& plan = layout.run;
  const CheckpointBytes one = checkpoint_bytes(plan.model, *plan.optimizer, plan.step.precision.stat);
  const bool are_processes = recipe.run.ranks == RanksKind::mpi;
  DoctorNeeds needs{.host = {.ranks_are_processes = are_processes,
                             .many_hosts = !recipe.fleet.hosts.empty(),
                             .largest_file_bytes = one.largest_file},
                    .disk = {.checkpoint_bytes = one.total},
                    .findings = {}};
  if (recipe.run.backend != BackendKind::cuda) {
    const RanksOnHost here = all_on_this_host(layout, are_processes);
    const std::string need = format_bytes(double(need_on_host(layout, here).total()));
    needs.findings.push_back(judged("memory", "the recipe needs " + need + " on one host, which are there", [&] {
      require_host_room(recipe, layout, *machine.workspace_model, here, memory_of_this_host());
      return std::string();
    }));
  }
  needs.findings.push_back(judged("room for checkpoints", "all that are there at once fit",
                                  [&] { return judge_checkpoint_room(recipe, plan); }));
  if (are_processes) needs.findings.push_back(check_mpi());
  return needs;
}

Report row_of_finding(const HealthFinding& f) {
  Report row{{"verdict", name_of(f.verdict)}, {"what", f.what}, {"found", f.found}};
  if (!f.change.empty()) row["change"] = f.change;
  if (!f.cost.empty()) row["cost_of_leaving_it"] = f.cost;
  return row;
}

void print_finding(const HealthFinding& f) {
  std::cout << fmt::format("{:<8} {}: {}\n", name_of(f.verdict), f.what, f.found);
  if (!f.change.empty()) std::cout << "           change: " << f.change << "\n";
  if (!f.cost.empty()) std::cout << "           else:   " << f.cost << "\n";
}

}  // namespace

int run_doctor(const DoctorOptions& o) {
  std::optional<Recipe> recipe;
  if (!o.recipe.empty()) recipe = read_recipe(o.recipe, o.overrides, !o.json);
  if (recipe && !o.folder.empty()) recipe->run.dir = o.folder;  // all is judged of one disk
  DoctorNeeds needs = recipe ? needs_of(*recipe) : DoctorNeeds();
  const std::string folder = !o.folder.empty() ? o.folder : recipe ? recipe->run.dir : ".";
  HealthFindings all = check_host(needs.host);
  for (HealthFindings more : {std::move(needs.findings), check_disk(folder, needs.disk)})
    all.insert(all.end(), more.begin(), more.end());
  // The worst first.
  std::stable_sort(all.begin(), all.end(),
                   [](const HealthFinding& a, const HealthFinding& b) { return a.verdict > b.verdict; });
  if (o.json) {
    Report rows = Report::array();
    for (const HealthFinding& f : all) rows.push_back(row_of_finding(f));
    std::cout << rows.dump(1, ' ', false, Report::error_handler_t::replace) << "\n";
  } else {
    for (const HealthFinding& f : all) print_finding(f);
  }
  const bool is_bad = !all.empty() && all.front().verdict == HealthVerdict::bad;
  return is_bad ? kExitFailure : kExitOk;
}

}  // namespace weft
