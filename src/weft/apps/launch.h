// How this process was started.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/recipe/recipe.h"

namespace weft {

// In the environment of ranks: behind how many steps the layout begins that they have (in_layout_at), where phases
// change it.
inline constexpr const char* kStepsDone = "WEFT_STEPS_DONE";

// One variable of the environment; none where it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> environment(const char* name);

// In the environment of ranks that weft's own launcher has started (launcher.h).
inline constexpr const char* kHasLauncher = "WEFT_HAS_LAUNCHER";

// What a launcher of parallel programs has said in the environment.
struct Launched {
  std::string by;           // "mpirun", "srun"; empty: started plainly
  int rank = 0, world = 1;  // among the processes that it has started
  bool can_join = false;    // they can find each other by Open MPI
  bool allocated = false;   // within hosts that a batch system has given, which mpirun asks it for
};
Launched launched_as(const Environment& env);

inline constexpr int kMostThreadRanks = 4096;

// The processes that a launcher has started are not the ranks of the layout.
class WorldError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// Throws WorldError where the processes that were started are not the ranks of this layout, or cannot find each other;
// ConfigError where it has too many ranks to be threads.
void check_launch(const Recipe& recipe, int layout_ranks, const Launched& launched);

// The words that this process was started with, the program by its full path.
std::vector<std::string> this_command();

}  // namespace weft
