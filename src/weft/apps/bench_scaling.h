// weft bench scaling: how fast layouts are beside one rank on the same cores.
#pragma once
#include "weft/apps/commands.h"

namespace weft {

int bench_scaling(const BenchOptions& options);

}  // namespace weft
