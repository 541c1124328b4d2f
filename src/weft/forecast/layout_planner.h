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

// A layout that differs from another one in one setting (an axis: and in dp, so that there are as many devices) and is
// slower than it, or does not fit into `room` bytes of a device.
struct WorseNeighbour {
  std::string key;  // "tp"
  bool fits = true;
  double by = 0;     // seconds of a step; of one that does not fit, its bytes
  std::string text;  // "tp = 16 leaves the node: +212 ms a step (+190 ms exposed tp)"
};
// Those that fit first, the nearest of each first.
std::vector<WorseNeighbour> worse_neighbours(const FoundLayout& found, LayoutPlanner& planner,
                                             const ClusterSpec& cluster, double room);
// The fastest of those that are faster and fit; none where none is.
struct BetterNeighbour {
  std::string key;  // "tp"
  FoundLayout found = {};
  std::string text = {};  // "tp = 2: -0.1 s a step (-0.2 s bubble)"
};
std::optional<BetterNeighbour> best_neighbour(const FoundLayout& from, LayoutPlanner& planner, double room);

// What a layout leaves unused of the devices it has, and of `room` bytes of each.
RightSize right_size(const FoundLayout& found, LayoutPlanner& planner, double room);
// "5.7 of 72.5 GiB of each device; 8 devices take 1.94 x as long"
std::string to_string(const RightSize& right, const FoundLayout& found, double room);

// The same layout with its ranks numbered in the order that is forecast to be fastest: what is near each other shares
// the fast links. The layout itself where no order gains.
FoundLayout best_order(const FoundLayout& found, LayoutPlanner& planner, const ClusterSpec& cluster, double room);

// Why neighbours are worse, in one sentence: the one that nearly fits, and those that are nearly as fast.
std::string why_neighbours_are_worse(const FoundLayout& found, LayoutPlanner& planner, const ClusterSpec& cluster,
                                     double room);

}  // namespace weft
