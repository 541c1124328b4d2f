// Room on the disk.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace weft {

// Bytes that this process may still write at `path`, which need not exist; none if the file system does not say.
std::optional<int64_t> free_bytes_at(const std::filesystem::path& path);
// Total size of the regular files below a folder; what cannot be read counts as nothing.
int64_t bytes_below(const std::filesystem::path& folder);
// How large a file this process may make (ulimit -f); none: there is no limit.
std::optional<int64_t> largest_file_bytes();

}  // namespace weft
