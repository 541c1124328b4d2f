// A lock on the folder of a training run or a dataset: one process works in it at a time.
#pragma once
#include <filesystem>

#include "weft/base/descriptor.h"

namespace weft {

// This process owns the folder while the lock lives. Throws ConfigError if another process has it. The file run.lock
// stays.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& dir);

 private:
  Descriptor fd_;
};

}  // namespace weft
