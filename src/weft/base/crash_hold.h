// A thread that crashes is held until another one has written where, and goes on to its end then.
#pragma once
#include <optional>

namespace weft {

struct HeldCrash {
  int thread = 0;  // as gettid() has it
  int signal = 0;
};

// While this lives, a thread that gets SIGSEGV, SIGFPE, SIGILL or SIGABRT sleeps until it is released, for five seconds
// at most; then the signal does what it did before. One at a time in a process. The handler only does what one may.
class CrashHold {
 public:
  CrashHold();
  ~CrashHold();  // releases, too
  CrashHold(const CrashHold&) = delete;
  CrashHold& operator=(const CrashHold&) = delete;
  // The first thread that is held; none so far.
  std::optional<HeldCrash> held() const;
  void release();
};

}  // namespace weft
