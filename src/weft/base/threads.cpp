#include "weft/base/threads.h"

#include <sched.h>

#include <algorithm>
#include <system_error>

#include "weft/base/error.h"

namespace weft {

void Threads::start(std::function<void()> body) {
  try {
    threads_.emplace_back(std::move(body));
  } catch (const std::system_error& e) {
    throw Error(
        fmt::format("no more than {} threads could be started beside this one ({}): raise the limits of memory or "
                    "processes (ulimit -v, -u), or take fewer threads",
                    threads_.size(), e.code().message()));
  }
}

void Threads::wait_all() {
  for (auto& t : threads_) t.join();
  threads_.clear();
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace weft
