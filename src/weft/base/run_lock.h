// A folder that one process works in at a time: of a training run, of a dataset.
#pragma once
#include <filesystem>
#include <utility>

namespace weft {

// The folder is this process's while the lock lives; a ConfigError says that another has it. The file run.lock
// stays.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& dir);
  RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

 private:
  int fd_ = -1;
};

}  // namespace weft
