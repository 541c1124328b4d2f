// `weft report`: runs beside their forecasts.
#include "weft/forecast/run_report.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

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

// What RUN/events.jsonl says of local copies; null: the run made none.
nlohmann::json local_copies_of(const std::filesystem::path& run) {
  int64_t written = 0, failed = 0, bytes = 0;
  double seconds = 0;
  std::ifstream file(run / "events.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("event")) continue;
    failed += event["event"] == "local_save_failed";
    if (event["event"] != "local_saved" || !event.contains("bytes") || !event["bytes"].is_number() ||
        !event.contains("seconds") || !event["seconds"].is_number())
      continue;
    ++written;
    bytes = event["bytes"].get<int64_t>();
    seconds += event["seconds"].get<double>();
  }
  if (written + failed == 0) return nullptr;
  return {{"written", written},
          {"failed", failed},
          {"bytes", bytes},
          {"mean_seconds", written > 0 ? seconds / double(written) : 0}};
}

std::string text_of_copies(const nlohmann::json& copies) {
  if (copies.is_null()) return "";
  return fmt::format("\nlocal copies: {} written beside the run, {} failed; the last of {:.1f} MiB, {:.2f} s each\n",
                     copies["written"].get<int64_t>(), copies["failed"].get<int64_t>(),
                     double(copies["bytes"].get<int64_t>()) / (1 << 20), copies["mean_seconds"].get<double>());
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
  const nlohmann::json copies = local_copies_of(options.runs[0]);
  nlohmann::json json = to_json(report);
  if (!copies.is_null()) json["local_copies"] = copies;
  if (options.json)
    print_json(json);
  else
    std::cout << to_string(report) << text_of_copies(copies);
  return kExitOk;
}

}  // namespace weft
