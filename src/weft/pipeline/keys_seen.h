// Tracks which of the keys that a source asks for its rows have: a key that no row has is a typo.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "weft/pipeline/pipeline_config.h"

namespace weft {

// A key that a source names, and the key of the pipeline that names it: "metadata.url" by "source.url_key".
struct AskedKey {
  std::string key, by;
  bool needed = false;  // by each row: without it, there is no document
};
// The JSON keys or CSV columns that are required, or that the pipeline's file names.
std::vector<AskedKey> asked_keys(const SourceConfig& source);

struct KeysSeen {
  std::string source;                  // its name; empty: no row that is JSON or CSV was seen
  int64_t rows = 0;                    // that could be parsed
  std::set<std::string> found, names;  // of the keys that are asked for; of those there are, as far as it was looked

  // A row, beside what is asked for.
  void see(const nlohmann::json& row, const std::vector<AskedKey>& asked);
  void add(const KeysSeen& other);
};

// Throws ConfigError, which names the keys that there are, where rows were seen and none has one that is asked for.
void refuse_missing_keys(const SourceConfig& source, const KeysSeen& seen);

// Adds the keys of a row, and those of objects in it as "metadata.url", up to a number that fits into a message.
void add_names(const nlohmann::json& row, std::set<std::string>& names);
// "a", "b", "c.d"; "none".
std::string key_list(const std::set<std::string>& names);
std::string key_list(const nlohmann::json& row);

}  // namespace weft
