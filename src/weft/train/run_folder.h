// A run's folder: one recipe, its records and its checkpoints.
#pragma once
#include <filesystem>
#include <utility>

#include "weft/recipe/recipe.h"

namespace weft {

// The folder is this process's while the lock lives; a ConfigError says that another has it.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& dir);
  RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

 private:
  int fd_ = -1;
};
// Makes run.dir the folder of this recipe: creates it with recipe.toml, or, where that is there already, checks that it
// is the same run (only settings that do not change the result may differ) and updates it. Throws ConfigError that
// names every difference; nothing is overwritten then.
RunLock claim_run_folder(const Recipe& recipe);

}  // namespace weft
