// What is wrong with how processes were started, said once.
#pragma once
#include <functional>
#include <optional>

#include "weft/apps/launch.h"
#include "weft/apps/ranks.h"

namespace weft {

// Runs a check of the recipe or of the launch that fails on all processes alike, before they have found each other. The
// first one throws its ConfigError, which is then said; the others wait for that (let_the_first_rank_speak) and get
// `status` to exit with. None: all is well.
inline std::optional<int> first_rank_says(const Launched& launched, int status, const std::function<void()>& check) {
  try {
    check();
  } catch (const ConfigError&) {
    if (launched.rank == 0) throw;
    let_the_first_rank_speak(launched.rank);
    return status;
  }
  return {};
}

}  // namespace weft
