// A run's folder: one recipe, its records and its checkpoints.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "weft/base/number_locks.h"
#include "weft/comm/communicator.h"
#include "weft/recipe/islands.h"
#include "weft/recipe/recipe.h"

namespace weft {

// How the recipe.toml of a run folder begins: weft wrote it.
inline constexpr std::string_view kRunRecipeMark = "# weft wrote this: the whole recipe of the run in this folder.\n";

// For a run that goes on from a checkpoint of another run, or from an older one of its own, in a folder of its own.
// Throws ConfigError or FileError where `checkpoint` is none, is of a run whose recipe differs in more than a resumed
// run's may, is beyond the recipe's last step, or is damaged (it is read, all of it); and where the recipe's run folder
// has a run already. Changes nothing. Collective: the ranks share the reading, so that none waits for another for as
// long as a large checkpoint takes.
void judge_chosen(const Recipe& recipe, const std::filesystem::path& checkpoint, Communicator& ranks, int num_threads,
                  const Islands& islands = {});

// Makes the checkpoint RUN/checkpoints/step-N of the recipe's run, from which it then goes on as from one of its own.
// Weights are not copied where the file system can give them a second name, else by all ranks, each a part. Collective,
// when the run's folder is the first rank's own. Throws the same FileError on all.
void take_chosen(const Recipe& recipe, const std::filesystem::path& checkpoint, Communicator& ranks);

// For the first rank, of a run whose folder it made and which failed since: removes the folder, but for texts that
// were tokenized, unless the run has begun to write its records. The rank holds the folder's lock.
void drop_run_folder(const Recipe& recipe);

// Makes run.dir the folder of this recipe: creates it with recipe.toml, or, where that is there already, checks that it
// is the same run (only settings that do not change the result may differ) and updates it. Throws ConfigError that
// names every difference, or who may write there (run_access.h); nothing is overwritten then. `islands`: as the
// recipe's file has them.
RunLock claim_run_folder(const Recipe& recipe, const Islands& islands = {});

// Throws ConfigError that names every difference between a recipe and that of a run (a file that weft wrote) which this
// run may not have: all but settings that do not change the result, the length of the run (run_length.h), and phases
// that begin after the steps that are done. `what` begins the message.
void refuse_another_recipe(const Recipe& recipe, const std::filesystem::path& file, const std::string& what,
                           int64_t steps_done, const Islands& islands);

// Writes recipe.toml anew, for the owner of the folder.
void write_run_recipe(const Recipe& recipe, const Islands& islands = {});

}  // namespace weft
