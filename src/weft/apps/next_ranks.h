// The layout and the hosts of a supervised run's next attempt.
#pragma once
#include <optional>
#include <vector>

#include "weft/apps/fleet_layout.h"
#include "weft/apps/hosts.h"
#include "weft/train/room.h"

namespace weft {

struct NextRanks {
  FleetLayout layout;
  std::vector<Host> hosts = {};  // with the slots that are used; none: this host, or as a batch system says
};

// The best that the recipe allows on what is available (choose_layout), in memory that was free here before the run
// began; `force`: in any memory. None: there is no layout for so few ranks.
std::optional<NextRanks> next_ranks(const Recipe& recipe, const Available& available, const HostMemory& memory,
                                    bool force);

bool is_same_start(const NextRanks& a, const NextRanks& b);

}  // namespace weft
