// weft bench scaling: how fast layouts are beside one rank on the same cores.
#pragma once
#include "weft/apps/commands.h"

namespace weft {

// "dp=2,zero_stage=3" as overrides: settings of [parallel]; "train.micro_batch_size=1" of any section. The commas of a
// list, "pipeline_layout=[6,1]", are its own.
std::vector<std::string> layout_overrides(const std::string& layout);

int bench_scaling(const BenchOptions& options);

}  // namespace weft
