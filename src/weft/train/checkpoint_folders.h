// RUN/checkpoints: which checkpoint a run resumes from, which ones stay and which are removed
// (docs/formats/checkpoint.md).
//   step-N           a checkpoint, whole, as far as its name says
//   step-N.tmp       a save that is going on or was cut off      step-N.removing   a removal that was
//   step-N.damaged   a checkpoint that was found damaged when a run went on from an older one
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/recipe/recipe.h"

namespace weft {

// A run has checkpoints, and none of them is whole.
class NoCheckpointError : public FileError {
 public:
  using FileError::FileError;
};

// N of a folder named step-N; -1 of any other.
int64_t step_of(const std::filesystem::path& folder);
// All of that name, oldest first, whether they are whole or not.
std::vector<std::filesystem::path> checkpoint_folders(const std::filesystem::path& run);

// Of the newest of these; 0: there is none.
int64_t steps_of_newest(const std::filesystem::path& run);

struct FoundCheckpoint {
  std::optional<std::filesystem::path> path;  // none: the run has none
  std::vector<std::string> notes;             // for the user: what was passed over, what could not be checked
};
// The newest checkpoint that is what was saved, to the last byte; the same on all ranks, which share the reading.
// Collective. Throws a NoCheckpointError that names each and says why where there are checkpoints and none is whole.
FoundCheckpoint find_checkpoint(const std::filesystem::path& run, CheckpointPart part, Communicator& ranks,
                                int num_threads);
// The same for a run that goes on, whose folder this process and the other ranks own: what a crash left behind is
// removed, and newer checkpoints that are damaged become step-N.damaged, so that they are not in the way of new ones.
FoundCheckpoint find_checkpoint_to_resume(const std::filesystem::path& run, Communicator& ranks, int num_threads);

// Called before each change on the disk: tests stop the program there, as a kill would.
using BeforeChange = std::function<void()>;

// Which checkpoints of a run stay.
struct KeptCheckpoints {
  int64_t latest = 0;  // so many of the newest; 0: all stay
  // These too: the best, references of phases, those with the last values of a head that a phase drops, and the newest
  // that a run goes back to after a spike. Some may not be there yet (kept_checkpoints).
  std::vector<std::filesystem::path> whatever_age;
};
// Which of a run's checkpoints (oldest first, the last one whole) to remove, oldest first. Never the newest.
std::vector<std::filesystem::path> surplus_of(const std::vector<std::filesystem::path>& all,
                                              const KeptCheckpoints& kept);
// After a save: removes what is surplus, checkpoints set aside as damaged that are not newer than the newest, and what
// a crash left behind. A checkpoint loses its name before anything of it goes. What cannot be removed now is tried
// again next time.
void prune_checkpoints(const std::filesystem::path& run, const KeptCheckpoints& kept, const BeforeChange& before = {});

// Before a save: removes what a crash left behind and surplus checkpoints. If `bytes` are not free then, it also
// removes damaged and older checkpoints, as many as needed, even those within `kept.latest` (unless that is 0), but
// never the newest whole one nor `kept.whatever_age`. It checks hashes first, newest first; the ranks share the
// reading. Collective. Returns notes for the user, on the first rank, whose `kept` and `bytes` count. Throws the same
// FileError on all; where none is whole, before anything is removed for room.
std::vector<std::string> make_room(const std::filesystem::path& run, const KeptCheckpoints& kept, int64_t bytes,
                                   Communicator& ranks, int num_threads);

// Which checkpoints of a run have the least held-out loss.

struct HeldOut {
  double loss = 0;     // nats per counted target, finite
  int64_t tokens = 0;  // counted targets
};
struct ScoredCheckpoint {
  std::filesystem::path path;
  HeldOut held_out;
};
// The at most `most` checkpoints of RUN/checkpoints with the least held-out loss, as they say it themselves: best
// first, the older first where two are equal. What cannot be read, and what does not say its loss, is left out.
std::vector<ScoredCheckpoint> best_checkpoints(const std::filesystem::path& run, int64_t most);
// Whether the checkpoint of that step is one that checkpoint.save_interval makes, however often the run is stopped.
bool is_regular(const Recipe& recipe, int64_t step);
// Which of its checkpoints a run of this recipe keeps: the newest, of those that are there now the best, those that are
// the reference of a phase, those with the last values of a head that a phase drops, and, with train.on_spike =
// "rollback", the newest regular one.
KeptCheckpoints kept_checkpoints(const Recipe& recipe);

}  // namespace weft
