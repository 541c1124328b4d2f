// What a stage did: counted, and shown by examples.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/pipeline/keys_seen.h"

namespace weft {

struct Counts {
  int64_t documents_in = 0, documents_out = 0;  // of the read stage: rows in
  int64_t bytes_in = 0, bytes_out = 0;          // of text; of the read stage: of rows
  std::map<std::string, int64_t> dropped;       // documents, by the rule that dropped them
  std::map<std::string, int64_t> contaminated;  // of the dropped, by evaluation file; a document may be of several
  std::map<std::string, int64_t> changed;       // what rules took out or masked
  void add(const Counts& other);
};

// Why a document is dropped.
struct Drop {
  std::string reason;                              // the rule's name and what of it: "gopher_quality.min_words"
  std::string detail;                              // "12 words"
  std::vector<std::string> evaluation_files = {};  // whose words it has
};

struct Sample {
  std::string reason, detail, id, text;  // the text's beginning
  std::string file = {};                 // where it was read; empty: made by a weft that did not note it
  int64_t row = 0;                       // there, from 1
};

struct ShardReport {
  Counts counts;
  std::vector<Sample> samples;
  std::string hash;    // of the shard
  int64_t broken = 0;  // rows that were put aside
  KeysSeen keys = {};  // of the read stage: a shard is of one source
  // Keeps the sample if there are fewer than `most` with its reason.
  void show(Sample sample, int64_t most);
};

nlohmann::json to_json(const Counts& counts);
Counts counts_of_json(const nlohmann::json& json, const std::string& where);
// "samples" of a report or a stage's manifest; none where it has none. Throws FileError.
std::vector<Sample> samples_of_json(const nlohmann::json& json, const std::string& where);
nlohmann::json to_json(const ShardReport& report);
ShardReport report_of_json(const nlohmann::json& json, const std::string& where);

}  // namespace weft
