// A log that is only appended to, whose lines carry hashes: what was changed, taken out or put in later is found
// (docs/formats/policy.md).
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft {

// Each line is one JSON object: "n", which counts lines from 1; what the entry says; "before", the hash of the line
// before it; and last "hash", SHA-256 of the line's bytes up to the comma before that field.

// The time now, "2026-11-30T01:20:00Z", for the field "time".
std::string log_time();

// Appends `entry`, an object without "n", "before" and "hash", and returns the hash of its line, which is on the disk
// then. Creates the file where there is none. Any number of processes may append at once: each waits for its turn.
// Throws FileError where that cannot be, or where the last line is not what its hash says: nothing is appended then. In
// a build without OpenSSL: NotBuilt.
std::string append_to_log(const std::filesystem::path& file, const nlohmann::ordered_json& entry);

struct LogCheck {
  int64_t lines = 0;       // that were found whole, from the first on
  std::string head = {};   // the hash of the last of these; empty: there is none
  bool has_hash = false;   // one of these has the hash that was asked for
  std::string fault = {};  // the first fault, "line 7 ..."; empty: there is none
};
// Reads the whole log. `hash`: that of a line, as somebody has kept it; whoever forges the whole log, or cuts off its
// end, cannot keep that line in it. Throws FileError where the file cannot be read, and NotBuilt as above.
LogCheck check_log(const std::filesystem::path& file, const std::string& hash = "");

}  // namespace weft
