// Room on the disk, and folders that are removed to make it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

namespace weft {

// Bytes that this process may still write at `path`, which need not exist; none if the file system does not say.
std::optional<int64_t> free_bytes_at(const std::filesystem::path& path);
// Total size of the regular files below a folder; what cannot be read counts as nothing.
int64_t bytes_below(const std::filesystem::path& folder);
// How large a file this process may make (ulimit -f); none: there is no limit.
std::optional<int64_t> largest_file_bytes();

// Removes a folder so that, whatever stops the program, no part of it keeps its name: it is renamed to `path`.removing
// first. `before` is called before each change on the disk. What cannot be removed stays, under the new name if that
// can be: no error.
void remove_folder(const std::filesystem::path& path, const std::function<void()>& before = {});
// Where `path` is what a DurableFolder or remove_folder left behind when it was cut off (X.tmp, X.removing, X.old):
// removes it, or gives it its name back where it is the only one that is whole. Else does nothing.
void clean_left_behind(const std::filesystem::path& path, const std::function<void()>& before = {});

}  // namespace weft
