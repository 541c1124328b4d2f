// Checks across the values of a pipeline: contradictions, files that cannot be used.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/row_document.h"

namespace weft {

// A sentence each, about sections that are in the file.
std::vector<std::string> contradictions(const PipelineConfig& config);
// The given keys that do nothing for a source whose files have these formats.
std::vector<std::string> keys_without_effect(const SourceConfig& source, const std::set<FileFormat>& formats);
// Problems with files that keys name (sources excepted) and with parts that this build of weft leaves out; each begins
// with its key, at most one per stage. Reads the files as the stages will, which may take a while.
std::vector<std::string> unusable_files(const PipelineConfig& config);

}  // namespace weft
