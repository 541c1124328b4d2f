// Reports mapped files whose pages can no longer be read.
#pragma once
#include <string>

namespace weft {

// From now on a bus error (a mapped file was shortened, or its disk fails) ends the process with a message that names
// the file, as `command`'s error, and with the status of a failure. As rank `rank` of several processes it lets the
// first rank speak. Other bus errors end it as before.
void report_lost_files(const std::string& command, int rank);

}  // namespace weft
