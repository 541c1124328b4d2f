// Threads that are always joined, even if one of them cannot be started; and the cores of this host.
#pragma once
#include <functional>
#include <thread>
#include <vector>

namespace weft {

// For one thread.
class Threads {
 public:
  Threads() = default;
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { wait_all(); }

  // `body` throws nothing. Throws Error, with what to do, where the system gives no more threads; those that were
  // started go on.
  void start(std::function<void()> body);
  void wait_all();

 private:
  std::vector<std::thread> threads_;
};

// The cores that this process may use: at least one.
int usable_cores();

}  // namespace weft
