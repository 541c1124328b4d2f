// Where a command will write a file, judged before the work that it is the result of.
#pragma once
#include <filesystem>

namespace weft {

// Makes the folder of `file` where there is none. Throws ConfigError where there is such a file and not `again`, or
// where a folder is in its place; FileError where it could not be written. Leaves nothing there.
void prepare_output(const std::filesystem::path& file, bool again);

}  // namespace weft
