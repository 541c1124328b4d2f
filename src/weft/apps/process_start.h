// What the program does before it reads its command line.
#pragma once

namespace weft {

// Call it first in main: it may begin the program anew, once, since the OpenMP runtime reads its settings before main.
// Then standard input, output and error are open, and a write beyond a file-size limit fails instead of ending the
// process.
void start_process(char** argv);

}  // namespace weft
