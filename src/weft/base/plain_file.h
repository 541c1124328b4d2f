// Files that somebody else may have put there, looked at before they are opened.
#pragma once
#include <cstdint>
#include <filesystem>

namespace weft {

// Throws FileError where `file` is there, but no regular file (a folder, a pipe, whose reader would wait for ever), or
// larger than `most_bytes`. False: nothing has that name.
bool is_plain_file(const std::filesystem::path& file, int64_t most_bytes);

}  // namespace weft
