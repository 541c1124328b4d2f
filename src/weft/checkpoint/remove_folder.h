// Removing folders atomically: no half of one is left under its name, whatever stops the program.
#pragma once
#include <filesystem>
#include <functional>

namespace weft {

// Removes a folder so that, whatever stops the program, no part of it keeps its name: it is renamed to `path`.removing
// first. `before` is called before each change on the disk. What cannot be removed stays, under the new name if that
// can be: no error.
void remove_folder(const std::filesystem::path& path, const std::function<void()>& before = {});
// Where `path` is what a DurableFolder or remove_folder left behind when it was cut off (X.tmp, X.removing, X.old):
// removes it, or gives it its name back where it is the only one that is whole. Else does nothing.
void clean_left_behind(const std::filesystem::path& path, const std::function<void()>& before = {});

}  // namespace weft
