// Plans layouts whole, each once: as forecast_run forecasts them.
#pragma once
#include <map>
#include <mutex>
#include <optional>

#include "weft/forecast/layout_search.h"

namespace weft {

// May be asked by several threads, in any order.
class LayoutPlanner {
 public:
  // All four must outlive it.
  LayoutPlanner(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster, const Profiles& profiles)
      : recipe_(recipe), config_(config), cluster_(cluster), profiles_(profiles) {}

  // None: the layout cannot run. Bytes of the first stage, which mostly is the fullest, are found much sooner.
  std::optional<int64_t> first_stage_bytes(const LayoutChoice& choice);
  std::optional<FoundLayout> plan(const LayoutChoice& choice);

 private:
  struct Known {
    std::once_flag measured, planned;
    std::optional<int64_t> first_stage = {};
    std::optional<FoundLayout> whole = {};
  };
  Known& known_of(const LayoutChoice& choice);
  const Recipe& recipe_;
  const HfConfig& config_;
  const ClusterSpec& cluster_;
  const Profiles& profiles_;
  std::mutex mutex_;
  std::map<LayoutChoice, Known> known_;
};

// Why the layouts that differ from `found` in one setting are worse, in one sentence with numbers: "tp = 16 leaves the
// node: +212 ms exposed tp". `room`: bytes of a device.
std::string why_neighbours_are_worse(const FoundLayout& found, LayoutPlanner& planner, const ClusterSpec& cluster,
                                     double room);

}  // namespace weft
