// Where golden cases are: runs, and codes, of an independent implementation.
#pragma once
#include <cstdlib>

#include "support.h"

namespace weft::testing {

// The folders of the path in the environment variable WEFT_GOLDEN; without it tests/golden, and those beside the
// checkout where they are. A case that two folders have under one name is taken once.
inline std::vector<std::filesystem::path> golden_folders() {
  std::vector<std::filesystem::path> folders;
  if (const char* path = std::getenv("WEFT_GOLDEN")) {
    std::istringstream parts(path);
    for (std::string part; std::getline(parts, part, ':');)
      if (!part.empty()) folders.emplace_back(part);
    return folders;
  }
  folders.push_back(std::filesystem::path(kSourceDir) / "tests/golden");
  for (const char* name : {"golden", "golden2"})
    if (!shared_dir().empty() && std::filesystem::exists(shared_dir() / name)) folders.push_back(shared_dir() / name);
  return folders;
}

// The folders of all cases, by name.
inline std::map<std::string, std::filesystem::path> golden_case_folders() {
  std::map<std::string, std::filesystem::path> cases;
  for (const std::filesystem::path& folder : golden_folders())
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.is_directory()) cases.emplace(entry.path().filename().string(), entry.path());
  return cases;
}

// Of those cases that have one, the file of this name.
inline std::vector<std::filesystem::path> golden_files(const std::string& name) {
  std::vector<std::filesystem::path> files;
  for (const auto& [of_case, folder] : golden_case_folders())
    if (std::filesystem::exists(folder / name)) files.push_back(folder / name);
  return files;
}

}  // namespace weft::testing
