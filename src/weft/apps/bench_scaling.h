// weft bench kernels and weft bench scaling.
#pragma once
#include "weft/apps/commands.h"

namespace weft {

// Each op alone, beside what the machine's memory and matrix products allow.
int bench_kernels(const BenchOptions& options);

// "dp=2,zero_stage=3" as overrides: settings of [parallel]; "train.micro_batch_size=1" of any section. The commas of a
// list, "pipeline_layout=[6,1]", are its own.
std::vector<std::string> layout_overrides(const std::string& layout);

// How fast layouts are beside one rank on the same cores.
int bench_scaling(const BenchOptions& options);

}  // namespace weft
