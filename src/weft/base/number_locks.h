// Locks on numbers between processes, on a shared file system also between hosts. They are released when the process
// ends.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "weft/base/descriptor.h"

namespace weft {

// Each number is one byte of a file (fcntl(2), F_OFD_SETLK), which is empty and stays. The locks are this value's: its
// threads share them. Any thread. All throw FileError.
class NumberLocks {
 public:
  // Creates the file where there is none.
  explicit NumberLocks(const std::filesystem::path& file);

  static constexpr int64_t kToTheEnd = 0;  // a count: all numbers from `first` on
  // False where another has one of them. Does not wait.
  bool try_lock(int64_t first, int64_t count = 1);
  void unlock(int64_t first, int64_t count = 1);
  // One of these numbers that another has locked; the first of its lock.
  std::optional<int64_t> locked_by_another(int64_t first, int64_t count = 1) const;
  // False: the file system has no such locks. All other calls then behave as if nobody else were there.
  bool work() const { return work_; }

 private:
  [[noreturn]] void fail(const char* what, int reason) const;

  std::filesystem::path file_;
  Descriptor fd_;
  bool work_ = true;
};

// A lock on the folder of a training run or a dataset: one process works in it at a time.
// This process owns the folder while the lock lives. Throws ConfigError that names the process if another has it. The
// file run.lock stays; while the folder is held it says by which process.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& dir);
  RunLock(RunLock&&) noexcept = default;
  RunLock& operator=(RunLock&&) noexcept = default;
  ~RunLock();
  // Throws the same error where another process has the folder, and changes nothing there.
  static void refuse_held(const std::filesystem::path& dir);
  // False: the file system has no such locks, and whether another process works there is not known.
  bool holds() const { return fd_ >= 0; }

 private:
  Descriptor fd_;
};

}  // namespace weft
