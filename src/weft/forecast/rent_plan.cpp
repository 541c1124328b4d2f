#include "weft/forecast/rent_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "weft/base/error.h"
#include "weft/forecast/best_layouts.h"

namespace weft {
namespace {

constexpr double kSecondsOfHour = 3600, kMostHours = 20 * 365 * 24;
constexpr double kHopeless = 1e6;  // times the steps' own time

const Offer& offer_at(const Offers& offers, size_t site) {
  if (!offers.owned) return offers.rented[site];
  return site == 0 ? *offers.owned : offers.rented[site - 1];
}
size_t site_of_offer(const Offers& offers, size_t offer) { return offer + (offers.owned ? 1 : 0); }

// By how much failures, and what takes spot devices away, make steps slower.
double slower_on(const RentSite& site, double preemptions_per_s, double start_s) {
  FailureSpec f = site.failures;
  const double failures_per_s = f.mean_s_between > 0 ? 1 / f.mean_s_between : 0,
               all = failures_per_s + preemptions_per_s;
  if (all == 0) return 1;
  f.restart_s += start_s * preemptions_per_s / all;  // only what was taken away is asked for again
  f.mean_s_between = 1 / all;
  return expected_run_s(1, best_save_interval(f), f);
}

// A run on its way through the hours of a week.
class Play {
 public:
  Play(const RentWay& way, const Offers& offers, const std::vector<RentSite>& sites, double checkpoint_bytes)
      : way_(way), offers_(offers), sites_(sites), bytes_(checkpoint_bytes) {}

  std::optional<RentOutcome> run(int64_t steps) {
    double left = double(steps);
    for (int64_t hour = 0; double(hour) < kMostHours; ++hour) {
      const size_t of_week = size_t(hour % kHoursOfWeek);
      go_to(site_in(of_week), left == double(steps));
      const double rate = rate_in(of_week), runs_s = std::max(0.0, kSecondsOfHour - stall_s_);
      const double needs_s = rate > 0 ? left / rate : HUGE_VAL;
      const bool ends = needs_s <= runs_s;
      const double spent_s = ends ? stall_s_ + needs_s : kSecondsOfHour;
      pay(of_week, spent_s);
      if (ends) {
        out_.run_s = double(hour) * kSecondsOfHour + spent_s;
        return out_;
      }
      left -= rate > 0 ? runs_s * rate : 0;
      stall_s_ = std::max(0.0, stall_s_ - kSecondsOfHour);
    }
    return std::nullopt;
  }

 private:
  double rented_price(size_t of_week) const {
    if (!way_.offer) return 0;
    const HourPrice& price = offers_.rented[*way_.offer].hours[of_week];
    const double here = way_.spot ? price.spot : price.on_demand;
    return way_.most_price == 0 || here <= way_.most_price ? here : 0;
  }
  std::optional<size_t> site_in(size_t of_week) const {
    if (rented_price(of_week) > 0) return site_of_offer(offers_, *way_.offer);
    if (way_.owned) return 0;
    return std::nullopt;
  }

  // A run that waits leaves its checkpoint where it was.
  void go_to(std::optional<size_t> site, bool begins) {
    if (site == now_) return;
    now_ = site;
    if (!site) return;
    const Offer& there = offer_at(offers_, *site);
    stall_s_ = there.start_s;
    if (!begins) {
      stall_s_ += sites_[*last_].failures.save_s + sites_[*site].failures.restart_s;
      if (*last_ != *site) {
        const Offer& from = offer_at(offers_, *last_);
        stall_s_ += bytes_ / std::min(from.bytes_per_s, there.bytes_per_s);
        out_.price += bytes_ * from.price_per_byte;
        ++out_.moves;
      }
    }
    last_ = site;
  }

  // Steps a second; 0: the run waits.
  double rate_in(size_t of_week) {
    if (!now_) return 0;
    const RentSite& site = sites_[*now_];
    const Offer& there = offer_at(offers_, *now_);
    double preemptions = 0;
    if (way_.spot && is_rented())
      preemptions = there.hours[of_week].preemptions_per_device_hour * there.cluster.num_devices / kSecondsOfHour;
    if (preemptions != known_preemptions_ || now_ != known_site_) {
      slower_ = slower_on(site, preemptions, there.start_s);
      known_preemptions_ = preemptions;
      known_site_ = now_;
    }
    return slower_ < kHopeless ? 1 / (site.step_s * slower_) : 0;
  }
  bool is_rented() const { return now_ && way_.offer && *now_ == site_of_offer(offers_, *way_.offer); }

  void pay(size_t of_week, double spent_s) {
    const double hours = spent_s / kSecondsOfHour;
    if (is_rented()) {
      out_.rented_hours += hours;
      out_.price += hours * rented_price(of_week) * offer_at(offers_, *now_).cluster.num_devices;
    }
    if (way_.owned) out_.price += hours * offers_.owned->hours[0].on_demand * offers_.owned->cluster.num_devices;
  }

  const RentWay& way_;
  const Offers& offers_;
  const std::vector<RentSite>& sites_;
  double bytes_;
  RentOutcome out_ = {};
  std::optional<size_t> now_ = {}, last_ = {};  // where the run is, where its checkpoint is
  double stall_s_ = 0;                          // until steps go on
  double slower_ = 1, known_preemptions_ = -1;
  std::optional<size_t> known_site_ = {};
};

std::string name_of(const RentWay& way, const Offers& offers) {
  if (!way.offer) return "owned";
  return offers.rented[*way.offer].name + (way.spot ? ", spot" : ", on demand") +
         (way.most_price > 0 ? fmt::format(", at most {:g}", way.most_price) : "") + (way.owned ? "; else owned" : "");
}

std::vector<RentWay> ways_to_rent(const Offers& offers) {
  std::vector<RentWay> ways;
  if (offers.owned) ways.push_back({.offer = {}, .owned = true});
  for (size_t i = 0; i < offers.rented.size(); ++i)
    for (const bool spot : {false, true}) {
      std::set<double> prices;
      bool always = true;
      for (const HourPrice& hour : offers.rented[i].hours) {
        const double price = spot ? hour.spot : hour.on_demand;
        if (price > 0) prices.insert(price);
        always = always && price > 0;
      }
      for (const double price : prices) {
        const bool any = price == *prices.rbegin();
        ways.push_back({.offer = i, .spot = spot, .most_price = any ? 0 : price});
        if (offers.owned && !(any && always)) {  // else the run is never on them
          ways.push_back(ways.back());
          ways.back().owned = true;
        }
      }
    }
  return ways;
}

RentSite site_of(const Offer& offer, const Recipe& recipe, const HfConfig& config, const Profiles& profiles,
                 int threads) {
  RentSite site{.name = offer.name};
  const SearchResult result = best_layouts(recipe, config, offer.cluster, profiles,
                                           {.device_counts = {offer.cluster.num_devices},
                                            .most = 1,
                                            .reserve_bytes = usual_reserve(offer.cluster),
                                            .threads = threads});
  if (result.best.empty()) {
    site.why_not = result.nearest.empty() ? "the model cannot be cut to so many devices" : result.nearest;
    return site;
  }
  site.layout = result.best[0].layout;
  const RunForecast forecast = forecast_run(with_choice(recipe, site.layout), config, offer.cluster, profiles);
  site.step_s = forecast.step.step_s;
  site.failures = {.save_s = forecast.save_s(), .restart_s = offer.cluster.restart_s};
  if (offer.cluster.failures_per_device_hour > 0) site.failures = forecast.failures();
  return site;
}

// Weights and optimizer state, as a rank that has all of them would keep them.
double checkpoint_bytes_of(const Recipe& recipe, const HfConfig& config, const Offers& offers,
                           const Profiles& profiles) {
  LayoutChoice one;
  one.sequence_parallel = true;  // which cuts nothing on one rank
  const Offer& any = offer_at(offers, 0);
  return double(forecast_run(with_choice(recipe, one), config, any.cluster, profiles).work.kinds[0].saved_bytes);
}

void mark_beaten(std::vector<RentOutcome>& all) {
  std::stable_sort(all.begin(), all.end(), [](const RentOutcome& a, const RentOutcome& b) {
    return std::pair(a.price, a.run_s) < std::pair(b.price, b.run_s);
  });
  double soonest = HUGE_VAL;
  for (RentOutcome& o : all) {
    o.beaten = o.run_s >= soonest;
    soonest = std::min(soonest, o.run_s);
  }
}

}  // namespace

std::optional<RentOutcome> play_rent(const RentWay& way, const Offers& offers, const std::vector<RentSite>& sites,
                                     double checkpoint_bytes, int64_t steps) {
  auto outcome = Play(way, offers, sites, checkpoint_bytes).run(steps);
  if (!outcome) return std::nullopt;
  outcome->way = way;
  outcome->name = name_of(way, offers);
  return outcome;
}

RentPlan plan_rent(const Recipe& recipe, const HfConfig& config, const Offers& offers, const Profiles& profiles,
                   int threads) {
  if (recipe.train.epochs > 0 || recipe.train.train_iters == 0)
    throw ConfigError("what a run costs needs its length: train.train_iters in the recipe, not train.epochs");
  require_priced(recipe);
  RentPlan plan{.steps = recipe.train.train_iters, .sites = {}, .outcomes = {}};
  plan.checkpoint_bytes = checkpoint_bytes_of(recipe, config, offers, profiles);
  for (size_t i = 0; i < offers.rented.size() + (offers.owned ? 1 : 0); ++i)
    plan.sites.push_back(site_of(offer_at(offers, i), recipe, config, profiles, threads));
  for (const RentWay& way : ways_to_rent(offers)) {
    const auto fits = [&](size_t site) { return plan.sites[site].why_not.empty(); };
    if ((way.owned && !fits(0)) || (way.offer && !fits(site_of_offer(offers, *way.offer)))) continue;
    if (auto outcome = play_rent(way, offers, plan.sites, plan.checkpoint_bytes, plan.steps))
      plan.outcomes.push_back(std::move(*outcome));
    else
      plan.cannot.push_back(name_of(way, offers) + ": takes more than 20 years");
  }
  mark_beaten(plan.outcomes);
  return plan;
}

}  // namespace weft
