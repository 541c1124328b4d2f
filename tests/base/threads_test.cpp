// Loops over threads do all of their work once, and say so where the system gives no threads.
#include "weft/base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string_view>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/base/tasks.h"

namespace weft {
namespace {

constexpr int kMany = 64;

// Sums 0 to 999 on threads.
int64_t sum_in_ranges(int threads) {
  std::atomic<int64_t> sum{0};
  parallel_for(1000, threads, 7, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  return sum;
}
int64_t sum_in_tasks(int threads) {
  std::atomic<int64_t> sum{0};
  int64_t i = 0;
  for_each_task(
      threads, [&] { return i < 1000 ? std::optional(i++) : std::nullopt; }, [&](int64_t task) { sum += task; });
  return sum;
}

TEST(Threads, LoopsDoEachPartOnce) {
  for (const int threads : {1, 3, kMany}) {
    EXPECT_EQ(sum_in_ranges(threads), 499500);
    EXPECT_EQ(sum_in_tasks(threads), 499500);
  }
}

TEST(Threads, TheFirstFailureIsRethrown) {
  EXPECT_THROW(parallel_for(9, 3, 1, [](int64_t, int64_t) { throw FileError("broken"); }), FileError);
  int given = 0;
  EXPECT_THROW(for_each_task(
                   1, [&] { return std::optional(given++); },
                   [](int task) {
                     if (task == 3) throw FileError("broken");
                   }),
               FileError);
  EXPECT_EQ(given, 4);
}

// Whether the loop ends with an Error that says what to do, in a child whose memory is too small for many threads.
bool says_so_without_threads(int64_t (*loop)(int threads)) {
  const pid_t child = fork();
  if (child == 0) {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = rlim_t(pages) * rlim_t(sysconf(_SC_PAGESIZE)) + (rlim_t{40} << 20);  // a stack has 8 MiB
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_AS, &limit);
    try {
      loop(kMany);
      _exit(1);
    } catch (const Error& e) {
      _exit(std::string_view(e.what()).find("take fewer threads") != std::string_view::npos ? 0 : 2);
    }
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Threads, ThatCannotBeStartedEndALoopWithAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more memory than this test leaves it";
#endif
  EXPECT_TRUE(says_so_without_threads(sum_in_ranges));
  EXPECT_TRUE(says_so_without_threads(sum_in_tasks));
}

}  // namespace
}  // namespace weft
