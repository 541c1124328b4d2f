// Room on the disk.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace weft {

// What this process may still write where `path` is, or is to be; none where the file system does not say.
std::optional<int64_t> free_bytes_at(const std::filesystem::path& path);
// What the regular files below a folder hold; what cannot be looked at counts as nothing.
int64_t bytes_below(const std::filesystem::path& folder);
// How large a file this process may make (ulimit -f); none: there is no limit.
std::optional<int64_t> largest_file_bytes();

}  // namespace weft
