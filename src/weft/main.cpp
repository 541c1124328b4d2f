#include "weft/apps/cli.h"
#include "weft/apps/process_start.h"

int main(int argc, char** argv) {
  weft::start_process(argv);
  return weft::run_cli(argc, argv, WEFT_MISSING);
}
