// What happens to a run beside its steps: RUN/events.jsonl (docs/operations.md), which a supervisor writes to as well.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft {

// Appends a line to a file of records, which it creates where there is none. It is in the hands of the operating system
// then, whole between those of other processes; half a line that a crash has left before it is ended first. Throws
// FileError, and leaves no half of it, unless the message says so.
void append_line(const std::filesystem::path& file, const std::string& line);

// Appends one line: `event`, `time` (seconds since 1970) and `more`, an object. Throws FileError.
void append_event(const std::filesystem::path& run, const std::string& event, nlohmann::json more);

}  // namespace weft
