// What a run takes and costs on rented devices, whose price and presence change from hour to hour, beside owned ones.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/forecast/layout_search.h"
#include "weft/forecast/offers.h"

namespace weft {

// A place where the run can be: its best layout there.
struct RentSite {
  std::string name;
  LayoutChoice layout = {};
  double step_s = 0;          // without failures
  FailureSpec failures = {};  // of devices that nobody takes away; no mean time: none are known
  std::string why_not = {};   // where no layout fits
};

// A way to rent: where, which devices, in which hours.
struct RentWay {
  std::optional<size_t> offer;  // none: owned devices alone
  bool spot = false;
  double most_price = 0;  // of a device and hour: dearer hours are waited for; 0: every hour that is offered
  bool owned = false;     // meanwhile the run is on the owned devices, to which its checkpoint goes
};

struct RentOutcome {
  RentWay way;
  std::string name;  // "somebody, eu-west, spot, at most 1.2; else owned"
  double run_s = 0, price = 0;
  double rented_hours = 0;
  int64_t moves = 0;    // of the checkpoint
  bool beaten = false;  // another one is no later and no dearer
};

struct RentPlan {
  int64_t steps = 0;
  double checkpoint_bytes = 0;
  std::vector<RentSite> sites;           // the owned one first, if there is one; then the offers
  std::vector<RentOutcome> outcomes;     // the cheapest first
  std::vector<std::string> cannot = {};  // ways that never end, and why
};

// Plays a run of `steps` steps hour by hour, from Monday 0:00 UTC on. Sites are those of `offers`, in the order of
// RentPlan. None: it takes longer than 20 years. Failures and preemptions make it slower as expected (Daly 2006); a
// change of place costs the way of the checkpoint, what leaving costs, and the start of devices.
std::optional<RentOutcome> play_rent(const RentWay& way, const Offers& offers, const std::vector<RentSite>& sites,
                                     double checkpoint_bytes, int64_t steps);

// Searches a layout for each site, and plays: owned devices alone; each offer on demand and as spot, in all of its
// hours and in those up to each of its prices, without and with the owned devices meanwhile. Throws ConfigError where
// the recipe does not say how many steps there are, and what searches throw.
RentPlan plan_rent(const Recipe& recipe, const HfConfig& config, const Offers& offers, const Profiles& profiles,
                   int threads);

std::string to_string(const RentPlan& plan);
nlohmann::json to_json(const RentPlan& plan);

}  // namespace weft
