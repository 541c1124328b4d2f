// Who may read and write a run's folder: with run.private its owner alone.
#pragma once
#include <string>

#include "weft/recipe/recipe.h"

namespace weft {

// With run.private: throws ConfigError where the run folder is there already, and
//   others than its owner may write to it, or, where they may enter it, to what is directly in it; or
//   it is another user's, unless this process is root's.
// The message names which, and what to do. Changes nothing.
void refuse_open_run_folder(const Recipe& recipe);
// With run.private: a warning where the run folder is there already and others may read it; else empty.
std::string warn_of_readers(const Recipe& recipe);

// Makes the run folder where it is missing: of mode 700 with run.private, else as the umask says, but never for
// everybody to write. Its parents are made as the umask says. Then throws as refuse_open_run_folder, which finds a file
// system that keeps no modes; FileError where the folder cannot be made.
void make_run_folder(const Recipe& recipe);

}  // namespace weft
