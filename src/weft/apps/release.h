// Models that are written for others, under the policies that hold where they lie (docs/formats/policy.md).
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/history/model_origin.h"

namespace weft {

struct ReleaseSpec {
  std::string command;                // "export"
  std::vector<std::string> models;    // as in ModelOptions
  std::vector<std::string> policies;  // files that were named, beside those that are found
  std::string results;                // a file of `weft eval --output`; empty: the run's own
  std::string to;                     // what is written
};

// Returns what `write` does. Under a policy it writes nothing unless each of them allows it, and throws an Error that
// says why not; their logs tell what was refused, allowed, written or failed. Throws FileError where they cannot.
int released(const ReleaseSpec& spec, const std::function<int()>& write);

// The files policy.toml that hold for a model: in its folder or the one around it; of a checkpoint in those of its run
// too, of a run in the folder of its checkpoints too.
std::vector<std::filesystem::path> policies_around(const std::filesystem::path& model);

// The user that this process is of.
std::string name_of_user();
// "time", "by", "host" and "what", with which each entry of a log begins.
nlohmann::ordered_json log_entry(const std::string& what);
// What a model was made from, for a log.
nlohmann::ordered_json to_json(const std::vector<LicensedPart>& parts);

}  // namespace weft
