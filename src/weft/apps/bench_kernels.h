// weft bench kernels: each op alone, beside what the machine's memory and matrix products allow.
#pragma once
#include "weft/apps/commands.h"

namespace weft {

int bench_kernels(const BenchOptions& options);

}  // namespace weft
