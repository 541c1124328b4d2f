// What happens to a run beside its steps: RUN/events.jsonl (docs/operations.md), which a supervisor writes to as well.
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft {

// Appends one line: `event`, `time` (seconds since 1970) and `more`, an object. It is in the hands of the operating
// system then, whole between those of other processes. Throws FileError.
void append_event(const std::filesystem::path& run, const std::string& event, nlohmann::json more);

}  // namespace weft
