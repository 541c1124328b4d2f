// Folders that a command makes.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace weft {

// The folder that an option names. Throws ConfigError where something of that name is there already.
std::filesystem::path require_new_folder(std::string_view option, const std::string& name);
// Makes the folder that it is in. Throws FileError.
void make_parent(std::string_view option, const std::filesystem::path& folder);

}  // namespace weft
