// A dataset: the folder of a pipeline's run, with a manifest over all of its stages whose hash is its version.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "weft/pipeline/pipeline_config.h"
#include "weft/pipeline/stage.h"

namespace weft {

// The stages of this pipeline, in order: read, filter, dedup, decontaminate, tokens, without those that its file has
// not.
std::vector<std::string> stage_names(const PipelineConfig& config);

// Runs the stage of this name (empty: all) in config.run.dir and calls `done` after each; skips complete ones, and
// writes manifest.json when all are complete. A helper (see the context) takes part in the leader's work up to that
// stage, and returns when it is complete; false if the dataset was complete before and nobody leads. Throws ConfigError
// for a name that is none of this pipeline, and where another process leads in the folder (or, to help, none does, or
// one of another pipeline); FileError where a stage before it is not complete or is of other parameters or inputs;
// Interrupted, also where the leader has ended.
bool run_pipeline(const PipelineConfig& config, const std::string& stage, const StageContext& given,
                  const std::function<void(const StageResult&)>& done);

struct Dataset {
  nlohmann::json manifest;
  std::string version;  // the hash of what it says, 32 digits
};
// Throws FileError where there is no manifest, its version is not its hash, or what every manifest says is not in it.
Dataset open_dataset(const std::filesystem::path& folder);

// Differences between the folder and its manifest, a line each: missing or changed files, changed inputs. `notes` names
// inputs that are gone. `files` and `bytes` count what was checked.
struct Audit {
  std::vector<std::string> problems, notes;
  int64_t files = 0, bytes = 0;
};
Audit audit_dataset(const std::filesystem::path& folder);

// How two datasets differ, a line each; empty: they are the same.
std::vector<std::string> differences(const Dataset& a, const Dataset& b);

}  // namespace weft
