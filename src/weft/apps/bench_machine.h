// weft bench machine and weft bench forecast.
#pragma once
#include "weft/apps/commands.h"

namespace weft {

// Where bench machine writes what it measured, unless told.
inline constexpr const char* kMachineFile = "machine.toml";

// Measures this machine and writes its cluster's file.
int bench_machine(const BenchOptions& options);

// A recipe's step as it is forecast on a measured cluster beside steps that are run.
int bench_forecast(const BenchOptions& options);

}  // namespace weft
