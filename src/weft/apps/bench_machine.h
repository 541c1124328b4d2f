// weft bench machine and weft bench forecast.
#pragma once
#include "weft/apps/commands.h"

namespace weft {

// Measures this machine and writes its cluster's file.
int bench_machine(const BenchOptions& options);

// A recipe's step as it is forecast on a measured cluster beside steps that are run.
int bench_forecast(const BenchOptions& options);

}  // namespace weft
