// The best layouts of a recipe on a cluster, out of all that fit. The same answer every time, whatever the threads.
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/forecast/forecast.h"
#include "weft/forecast/layout_space.h"

namespace weft {

// time: seconds of a step; price and energy of a step; ranks: as few devices as possible, then time.
enum class SearchObjective : uint8_t { time, price, energy, ranks };
constexpr auto names_of(SearchObjective) { return std::array{"time"sv, "price"sv, "energy"sv, "ranks"sv}; }

struct SearchSpec {
  std::vector<int64_t> device_counts;  // ascending
  SearchObjective objective = SearchObjective::time;
  double deadline_s = 0, budget = 0;  // of `steps` steps; 0: none
  int64_t steps = 0;
  size_t most = 5;           // of the best
  double reserve_bytes = 0;  // of a device's memory that a layout must leave
  int threads = 1;
};

// A layout planned whole: as forecast_run says it.
struct FoundLayout {
  LayoutChoice layout = {};
  StepForecast step = {};
  int64_t memory_bytes = 0;  // of the fullest rank
  double tokens_per_s = 0, mfu = 0;
  double price = 0, joules = 0;  // of a step; 0: not known
  std::string neighbours = {};   // why those that differ in one setting are worse, in a sentence
};

// What a layout leaves unused.
struct RightSize {
  double unused_bytes = 0;                 // of each device's room
  std::optional<FoundLayout> half = {};    // the fastest that fits of those with one axis half as large
  std::optional<FoundLayout> enough = {};  // so on, the fewest devices on which a step takes at most 5 % longer
};

struct SearchCounts {
  size_t layouts = 0;         // in all
  int64_t refused = 0;        // cuts of the model that there cannot be; not among `layouts`
  size_t cannot_run = 0;      // refused when planned
  size_t too_large = 0;       // more than fits by the bound of its first stage ...
  size_t measured_large = 0;  // ... or as planned
  size_t too_slow = 0;        // beyond deadline or budget
  size_t beaten = 0;          // cannot be better than the best
  size_t planned = 0;         // whole
};

struct SearchResult {
  ClusterSpec cluster;
  std::vector<FoundLayout> best;  // the best first
  // For each number of devices the fastest within the room of a device, and within half of it; but for those
  // that another is better than in one of step, price, devices and memory, and nowhere worse.
  std::vector<FoundLayout> front;
  SearchCounts counts = {};
  double room_bytes = 0;     // of a device
  std::string nearest = {};  // where there is none: the one that comes nearest, and what it lacks
  RightSize right = {};      // of the best
};

// Of a device's memory, for contexts, communication and libraries: 2 GiB, but at most a twentieth.
double usual_reserve(const ClusterSpec& cluster);

// Throws ConfigError where an objective, deadline or budget needs a figure that cluster or recipe do not say, and what
// prepare_run throws for the recipe on one rank.
SearchResult search_layouts(const Recipe& recipe, const HfConfig& config, const ClusterSpec& cluster,
                            const Profiles& profiles, const SearchSpec& spec);

// The numbers of devices that "8..1024" means on a cluster: parts of a node, and nodes in powers of two, with both
// ends; "64" is itself. Throws ConfigError.
std::vector<int64_t> device_counts_of(const std::string& text, const ClusterSpec& cluster);
// Seconds of "90m", "36h", "12.5d". Throws ConfigError.
double seconds_of_duration(const std::string& text);

std::string to_string(const SearchResult& result, const SearchSpec& spec);
nlohmann::json to_json(const SearchResult& result, const SearchSpec& spec);

}  // namespace weft
