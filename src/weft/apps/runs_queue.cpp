// `weft runs queue`: the runs that wait for each other on this machine.
#include <algorithm>
#include <iostream>

#include "weft/apps/commands.h"
#include "weft/apps/report.h"
#include "weft/apps/run_queue.h"
#include "weft/apps/runs.h"
#include "weft/records/clock.h"
#include "weft/records/progress.h"

namespace weft {
namespace {

Report row_of_queue(const QueuedRun& r, bool json) {
  const char* state = !r.goes ? "waits" : r.has_turn ? "goes" : "gives way";
  const double for_s = std::max(0.0, wall_time_s() - r.since_s);
  return {{"state", state},
          {"priority", r.priority},
          {"cores", r.cores},
          {"of_cores", r.of_cores},
          {"for", json ? Report(for_s) : Report(format_duration(for_s))},
          {"process", r.process},
          {"run", r.run}};
}

}  // namespace

int run_runs_queue(const RunsQueueOptions& o) {
  Report rows = Report::array();
  for (const QueuedRun& r : runs_in_queue(o.folder)) rows.push_back(row_of_queue(r, o.json));
  const Report report = {{"runs", rows}};
  if (o.json)
    std::cout << report.dump(1, ' ', false, Report::error_handler_t::replace) << "\n";
  else if (rows.empty())
    std::cout << "no run is in this queue\n";
  else
    std::cout << to_text(report);
  return kExitOk;
}

}  // namespace weft
