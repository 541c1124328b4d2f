// Work that is handed out one task at a time, so that threads are busy whatever a task takes.
#pragma once
#include <exception>
#include <mutex>
#include <optional>

#include "weft/base/threads.h"

namespace weft {

// Calls work(task) for each task that next() gives (a std::optional, empty at the end), on up to num_threads threads.
// next() is called by one thread at a time. Blocks. After a failure (also to start a thread) no more tasks begin, and
// the first failure is rethrown.
template <class Next, class Work>
void for_each_task(int num_threads, const Next& next, const Work& work) {
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&] {
    for (;;) {
      std::unique_lock lock(mutex);
      if (failure) return;
      try {
        auto task = next();
        if (!task) return;
        lock.unlock();
        work(*task);
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        if (!failure) failure = std::current_exception();
      }
    }
  };
  Threads threads;
  try {
    for (int i = 1; i < num_threads; ++i) threads.start(run);
  } catch (...) {
    std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
  }
  run();
  threads.wait_all();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weft
