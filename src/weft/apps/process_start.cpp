#include "weft/apps/process_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace weft {
namespace {

// By default, idle threads of the OpenMP runtime spin some milliseconds before they sleep, and take the cores from
// other processes meanwhile. The runtime reads its settings before main: so set them and begin anew. If that fails,
// the program just goes on.
void let_idle_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  ::setenv("GOMP_SPINCOUNT", "2000", 1);
  ::execv("/proc/self/exe", argv);
}

// A file opened later must not become standard output or error.
void open_standard_files() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int same = ::open("/dev/null", O_RDWR);
}

}  // namespace

void start_process(char** argv) {
  let_idle_threads_sleep(argv);
  open_standard_files();
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit then fails the write, which is reported, and not the process
}

}  // namespace weft
