// From a recipe to a finished run: a Trainer on each rank.
#pragma once
#include "weft/train/trainer.h"

namespace weft {

// Trains as the recipe says, on as many ranks as its layout has: threads of this process, one of which is the caller's
// where there is one rank. Returns true when all steps are done, false when stopped before. Throws what the first rank
// to fail has thrown; the others end too.
struct RanksSetup {
  const Recipe& recipe;
  const Machine& machine;  // of one rank
  const std::atomic<bool>& stop;
  int terminal_fd = 2;
};
bool train_on_ranks(const RanksSetup& setup);

}  // namespace weft
