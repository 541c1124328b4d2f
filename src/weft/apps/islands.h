// Islands: the command that is their hub, and the secret by which they know each other (docs/islands.md).
#pragma once
#include <string>
#include <vector>

#include "weft/recipe/islands.h"

namespace weft {

struct HubOptions {
  std::string recipe;
  std::vector<std::string> overrides;
};
// Serves until all islands have done their steps (0), or a signal asks it to stop.
int run_islands(const HubOptions& options);

// Of islands.secret_file, which must be its owner's alone, or else of the environment's WEFT_ISLANDS_SECRET; without
// spaces around it. Throws ConfigError, which does not show it: also where it is shorter than kLeastSecretBytes.
std::string secret_of_islands(const Islands& islands);

}  // namespace weft
