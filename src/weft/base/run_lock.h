// A lock on the folder of a training run or a dataset: one process works in it at a time.
#pragma once
#include <filesystem>
#include <utility>

namespace weft {

// This process owns the folder while the lock lives. Throws ConfigError if another process has it. The file run.lock
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
