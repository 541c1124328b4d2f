// What no single value of a pipeline shows: values that contradict each other.
#pragma once
#include <string>
#include <vector>

#include "weft/pipeline/pipeline_config.h"

namespace weft {

// A sentence each. Of sections that are in the file.
std::vector<std::string> contradictions(const PipelineConfig& config);

}  // namespace weft
