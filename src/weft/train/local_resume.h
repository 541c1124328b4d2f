// Going on from a local copy (local_copies.h), where it is newer than every checkpoint.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/train/checkpoint_folders.h"

namespace weft {

// The state that a run goes on from: as find_checkpoint_to_resume, but where a local copy is newer and whole (each of
// its shares is on a host of these ranks, as its rank left it there or as a neighbour's, and nothing in it has
// changed), the ranks first make the checkpoint of its step from it, RUN/checkpoints/step-N, with the bytes that a save
// would have written. What is newer and passed over is in the notes, with the reason. Collective. Throws a
// NoCheckpointError where there are checkpoints and neither one of them nor a copy is whole; ConfigError where the copy
// is of another recipe; FileError where the checkpoint of a copy cannot be written, as on a full disk: the copy stays,
// and nothing has changed.
FoundCheckpoint find_state_to_resume(const Recipe& recipe, Communicator& ranks, int num_threads);

// What this host has of a run's local copies, oldest first; nothing has been read of it but its names.
struct LocalCopyHere {
  int64_t step = 0;
  int ranks = 1;                   // that wrote it
  std::vector<int> here;           // who has written a share here
  std::vector<int> of_neighbours;  // whose shares this host holds for others
  int64_t bytes = 0;               // of these
};
std::vector<LocalCopyHere> local_copies_here(const std::filesystem::path& run, const std::string& local_dir);

}  // namespace weft
