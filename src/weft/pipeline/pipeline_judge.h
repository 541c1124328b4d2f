// What no single value of a pipeline shows: values that contradict each other.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/row_document.h"

namespace weft {

// A sentence each. Of sections that are in the file.
std::vector<std::string> contradictions(const PipelineConfig& config);
// Of the keys that are given for a source whose files have these formats.
std::vector<std::string> keys_without_effect(const SourceConfig& source, const std::set<FileFormat>& formats);

}  // namespace weft
