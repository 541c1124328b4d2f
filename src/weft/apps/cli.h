// The command line.
#pragma once

namespace weft {

// Parses, runs the subcommand, and turns every Error into a message on standard error and an exit status: 0 done, 1
// failed, 2 wrong usage or recipe, 130 interrupted.
int run_cli(int argc, char** argv);

}  // namespace weft
