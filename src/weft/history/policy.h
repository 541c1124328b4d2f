// policy.toml: what a model must be, and who may release it, before it is written for others (docs/formats/policy.md).
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/history/model_origin.h"
#include "weft/recipe/requirement.h"

namespace weft {

struct Policy {
  std::filesystem::path file;
  std::string log = "release-log.jsonl";                     // seen from the folder of the file
  std::optional<std::vector<std::string>> licences = {};     // in small letters; none: any
  std::optional<std::vector<std::string>> released_by = {};  // names of users; none: anybody
  std::vector<Requirement> require = {};
  std::map<std::string, std::string> licence_of = {};  // by a name of a LicensedPart

  std::filesystem::path log_file() const { return file.parent_path() / log; }
};

// Throws ConfigError that names file, line and column.
Policy parse_policy(const std::string& text, const std::filesystem::path& file);
// Throws FileError too.
Policy read_policy(const std::filesystem::path& file);

// Why this policy does not let it go: a sentence each; none: it does. `user`: who asks. `results`: "piqa.acc" and so
// on.
std::vector<std::string> objections(const Policy& policy, const std::vector<LicensedPart>& parts,
                                    const std::map<std::string, double>& results, const std::string& user);

}  // namespace weft
