// The command line.
#pragma once
#include <string_view>

namespace weft {

// Parses, runs the subcommand, and turns every Error into a message on standard error and an exit status: 0 done, 1
// failed, 2 wrong usage or recipe, 130 interrupted. `missing`: which parts this build of weft leaves out, a line for
// each, for --version; empty: none.
int run_cli(int argc, char** argv, std::string_view missing);

}  // namespace weft
