#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "weft/apps/cli.h"

namespace {

// A file opened later must not become standard output or error.
void open_standard_files() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int same = ::open("/dev/null", O_RDWR);
}

// Idle threads of the OpenMP runtime spin some milliseconds before they sleep, by default, and take the cores from
// other processes meanwhile. It reads its settings before main: so set them and begin anew. Nothing is lost where that
// fails.
void let_idle_threads_sleep(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  ::setenv("GOMP_SPINCOUNT", "2000", 1);
  ::execv("/proc/self/exe", argv);
}

}  // namespace

int main(int argc, char** argv) {
  let_idle_threads_sleep(argv);
  open_standard_files();
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit then fails the write, which is reported, and not the process
  return weft::run_cli(argc, argv, WEFT_MISSING);
}
