// Results without which a model is not exported.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "weft/apps/commands.h"

namespace weft {

// Of --require: by the file of --results, which must be of the same weights, or what the model's run has scored in the
// step of its checkpoint (eval.tasks). Throws ConfigError, FileError; Error where a result is not as it is required.
void require_results(const ExportOptions& options);

// "piqa.acc" and so on, from the same places; none where the model is no checkpoint of a run, or was not scored. Throws
// ConfigError, FileError.
using TaskResults = std::map<std::string, double>;
TaskResults recorded_results(const std::filesystem::path& model, const std::string& file);

}  // namespace weft
