// Faults that tests ask for: a place where a run may be made to fail.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// In the environment: faults, with commas between them, each "KIND@POINT:RANK:STEP[:ATTEMPT]"; of the first attempt
// where none is named.
//   KIND  kill, abort, segv: by that signal; stop: SIGSTOP; exit0, exit3: ends with that status; hang: sleeps for ever;
//         slow: sleeps two seconds
inline constexpr const char* kFaults = "WEFT_FAULT";
// The number of the attempt, from 1 on, that a supervisor makes.
inline constexpr const char* kAttempt = "WEFT_ATTEMPT";

// Fails as the environment asks for at this point; almost free where it asks for nothing.
void fault_point(std::string_view point, int rank, int64_t step);

}  // namespace weft
