// OpenMP's team size for a scope.
#pragma once
#include <omp.h>

namespace weft {

// Parallel regions that the calling thread opens in this scope, the libraries' included, have `n` threads; the
// thread's earlier setting returns at its end. Other threads of the process (other ranks) are not affected.
class OmpThreads {
 public:
  explicit OmpThreads(int n) : before_(omp_get_max_threads()) { omp_set_num_threads(n); }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;
  ~OmpThreads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace weft
