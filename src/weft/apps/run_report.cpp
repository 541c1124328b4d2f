// `weft report`: runs beside their forecasts.
#include "weft/forecast/run_report.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/bench_machine.h"
#include "weft/apps/commands.h"
#include "weft/apps/recorded_run.h"
#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/layout_search.h"

namespace weft {
namespace {

// What the machine at hand was measured to be, where no cluster is named.
std::optional<ClusterSpec> cluster_for(const ReportOptions& options) {
  if (!options.cluster.empty()) return read_cluster(options.cluster);
  if (is_there(kMachineFile)) return read_cluster(kMachineFile);
  return {};
}

void print_json(const nlohmann::json& json) {
  std::cout << json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

// Where no cluster is named, a forecast that fails is none.
RunScaling scaling_for(const ReportOptions& options, const std::vector<RecordedRun>& runs) {
  if (options.cluster.empty()) {
    try {
      if (const auto here = cluster_for(options)) return scaling_of(runs, &*here, Profiles::built_in());
    } catch (const Error& e) { std::cerr << fmt::format("note: no forecast by {}: {}\n", kMachineFile, e.what()); }
    return scaling_of(runs, nullptr, Profiles::built_in());
  }
  const ClusterSpec cluster = read_cluster(options.cluster);
  return scaling_of(runs, &cluster, Profiles::built_in());
}

}  // namespace

int run_report(const ReportOptions& options) {
  std::vector<RecordedRun> runs;
  for (const std::string& name : options.runs) runs.push_back(read_recorded_run(name));
  if (runs.size() > 1) {
    const RunScaling scaling = scaling_for(options, runs);
    if (options.json)
      print_json(to_json(scaling));
    else
      std::cout << to_string(scaling);
    return kExitOk;
  }
  const std::optional<ClusterSpec> cluster = cluster_for(options);
  if (!cluster)
    throw ConfigError(fmt::format(
        "a report needs a forecast: name what the run was on, --cluster H100-SXM or a file; of this machine "
        "`weft bench machine` writes {}, which is then read",
        kMachineFile));
  const RunReport report = report_of(runs[0], *cluster, Profiles::built_in(), usual_reserve(*cluster));
  if (options.json)
    print_json(to_json(report));
  else
    std::cout << to_string(report);
  return kExitOk;
}

}  // namespace weft
