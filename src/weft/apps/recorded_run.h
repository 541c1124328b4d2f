// Runs that `weft train` has left, as reports and fits read them.
#pragma once
#include <string>

#include "weft/forecast/run_report.h"

namespace weft {

// Of a run's folder, ended or not. Throws FileError where it is none, ConfigError where it has trained no step.
RecordedRun read_recorded_run(const std::string& folder);

}  // namespace weft
