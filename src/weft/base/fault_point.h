// Faults that tests ask for: a place where a run may be made to fail, or its numbers to be wrong.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

// Faults, with commas between them, each "KIND@POINT:RANK:STEP[:ATTEMPT]"; of the first attempt where none is named.
//   KIND  kill, abort, segv: by that signal, whatever handles it; crash: writes to address 16; stop: SIGSTOP; exit0,
//   exit3: ends with that status; hang: sleeps for ever;
//         slow: sleeps two seconds; any other is the point's own, which asks for it by is_planted
// `attempt` is this process's, as its number. To be called before there are threads.
void plant_faults(const std::string& faults, const std::string& attempt);

// Fails as was planted for this point; almost free where nothing was.
void fault_point(std::string_view point, int rank, int64_t step);
// Whether a fault of that kind was planted for this point. Likewise.
bool is_planted(std::string_view kind, std::string_view point, int rank, int64_t step);
// Sleeps where drag@run:RANK:0 was planted, twice as long as this step has computed (seconds): where waits for others
// are timed, such a rank is three times as slow as another, on a machine of any speed.
void drag_if_planted(int rank, double computed_s);

}  // namespace weft
