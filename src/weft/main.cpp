#include <csignal>

#include "weft/apps/cli.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit then fails the write, which is reported, and not the process
  return weft::run_cli(argc, argv);
}
