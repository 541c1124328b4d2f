// Runs on rented devices, hour by hour.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/rent_plan.h"

namespace weft {
namespace {

Offers offers_of(const std::string& toml) {
  return parse_offers(toml, "prices.toml", [](const std::string& name) { return preset_of(name); });
}

constexpr const char* kNights = R"(
[owned]
cluster = "A100-SXM-80GB"
devices = 1
per_device_hour = 0.5
gb_s = 0.1
[[offer]]
provider = "somebody"
region = "west"
cluster = "H100-SXM"
devices = 2
gb_s = 1.0
price_per_gb = 0.1
start_minutes = 6
[[offer.price]]
per_device_hour = 4.0
spot_per_device_hour = 2.0
preemptions_per_device_hour = 0.05
[[offer.price]]
hours = "22-6"
per_device_hour = 3.0
[[offer.price]]
days = "sat-sun"
hours = "8-20"
spot_per_device_hour = 1.0
)";

// An hour's work is 3600 steps on owned devices, four times as many on rented ones.
std::vector<RentSite> two_sites() {
  RentSite owned{.name = "owned", .step_s = 1, .failures = {.save_s = 60, .restart_s = 120}};
  RentSite rented{.name = "somebody", .step_s = 0.25, .failures = {.save_s = 30, .restart_s = 240}};
  return {owned, rented};
}

RentOutcome played(const RentWay& way, int64_t steps, const Offers& offers = offers_of(kNights)) {
  const auto outcome = play_rent(way, offers, two_sites(), 50e9, steps);
  EXPECT_TRUE(outcome.has_value());
  return outcome.value_or(RentOutcome());
}

TEST(Offers, HaveTheLastPriceOfAnHour) {
  const Offer somebody = offers_of(kNights).rented.at(0);
  EXPECT_EQ(somebody.hours[5].on_demand, 3);  // of Monday
  EXPECT_EQ(somebody.hours[5].spot, 0);
  EXPECT_EQ(somebody.hours[6].on_demand, 4);
  EXPECT_EQ(somebody.hours[21].spot, 2);
  EXPECT_EQ(somebody.hours[22].on_demand, 3);
  EXPECT_EQ(somebody.hours[5 * 24 + 7].on_demand, 4);
  EXPECT_EQ(somebody.hours[5 * 24 + 8].on_demand, 0);
  EXPECT_EQ(somebody.hours[6 * 24 + 19].spot, 1);
  EXPECT_EQ(somebody.name, "somebody, west");
}

TEST(Offers, BadOnesAreRefusedByKeyAndLine) {
  const auto refused = [](const std::string& more) {
    const std::string head = "[[offer]]\nprovider = \"a\"\ncluster = \"H100-SXM\"\ndevices = 8\n[[offer.price]]\n";
    return testing::error_of<ConfigError>([&] { offers_of(head + more); });
  };
  EXPECT_SAYS(refused(""), "a price is missing");
  EXPECT_SAYS(refused("per_device_hour = 0.0\n"), "per_device_hour");
  EXPECT_SAYS(refused("per_device_hour = 1.0\nhours = \"8-8\"\n"), "must be ranges of whole hours from 0 to 24");
  EXPECT_SAYS(refused("per_device_hour = 1.0\nhours = \"8-25\"\n"), "prices.toml:5:");
  EXPECT_SAYS(refused("per_device_hour = 1.0\ndays = \"monday\"\n"), "as mon-fri or sat,sun");
  EXPECT_SAYS(refused("per_device_hours = 1.0\n"), "the nearest is per_device_hour");
  EXPECT_SAYS(testing::error_of<ConfigError>([] { offers_of("[owned]\ncluster = \"H100-SXM\"\n"); }),
              "devices is missing");
  EXPECT_SAYS(testing::error_of<ConfigError>([] { offers_of(""); }), "has neither [[offer]] nor [owned]");
  const std::string one =
      "[[offer]]\nprovider = \"a\"\ncluster = \"H100-SXM\"\ndevices = 8\n[[offer.price]]\n"
      "per_device_hour = 1.0\n";
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { offers_of(one + one); }), "a second [[offer]] \"a\"");
}

TEST(Rent, OwnedDevicesAloneTakeTheirStepsAndCostTheirHours) {
  const RentOutcome o = played({.offer = {}, .owned = true}, 36000);
  EXPECT_EQ(o.name, "owned");
  EXPECT_NEAR(o.run_s, 36000, 1e-6);
  EXPECT_NEAR(o.price, 5, 1e-9);
  EXPECT_EQ(o.moves, 0);
}

TEST(Rent, OnDemandAllHoursCountWithTheirPrices) {
  // Ten hours of steps from Monday 0:00 on, behind six minutes of start: six hours at 3, the rest at 4.
  const RentOutcome o = played({.offer = 0}, 144000);
  EXPECT_NEAR(o.run_s, 36000 + 360, 1e-6);
  EXPECT_NEAR(o.price, 2 * (6 * 3 + 4.1 * 4), 1e-6);
  EXPECT_NEAR(o.rented_hours, 10.1, 1e-9);
}

TEST(Rent, DearerHoursAreWaitedFor) {
  // Six hours of Monday's night less the start; then from 22:00 on, behind a save, a start and a restart.
  const RentOutcome o = played({.offer = 0, .most_price = 3}, 144000);
  const double second = 36000 - (6 * 3600 - 360);
  EXPECT_NEAR(o.run_s, 22 * 3600 + 30 + 360 + 240 + second, 1e-6);
  EXPECT_NEAR(o.price, 2 * 3 * (6 + (630 + second) / 3600), 1e-6);
  EXPECT_EQ(o.moves, 0);
}

TEST(Rent, AMixMovesItsCheckpointAndPaysForIt) {
  // Six hours rented, then sixteen owned, then rented again: each way takes the slower end's 0.1 GB/s.
  const RentOutcome o = played({.offer = 0, .most_price = 3, .owned = true}, 144000);
  const double first = 6 * 3600 - 360, owned = 16 * 3600 - (30 + 120 + 500);
  const double left = 144000 - first * 4 - owned;
  ASSERT_GT(left, 0);
  EXPECT_NEAR(o.run_s, 22 * 3600 + (360 + 60 + 240 + 500) + left / 4, 1e-6);
  EXPECT_EQ(o.moves, 2);
  const double rented_hours = 6 + o.run_s / 3600 - 22;
  EXPECT_NEAR(o.price, 2 * 3 * rented_hours + 0.5 * o.run_s / 3600 + 50 * 0.1, 1e-6);  // one leaves the provider
  EXPECT_SAYS(o.name, "somebody, west, on demand, at most 3; else owned");
}

TEST(Rent, PreemptionsMakeSpotSlowerAsDalySays) {
  const RentOutcome o = played({.offer = 0, .spot = true, .most_price = 0}, 14400);
  // Monday's spot hours begin at 6:00; two devices are taken at 0.1 an hour.
  const FailureSpec f{.mean_s_between = 36000, .save_s = 30, .restart_s = 240 + 360};
  EXPECT_NEAR(o.run_s, 6 * 3600 + 360 + expected_run_s(3600, best_save_interval(f), f), 1e-3);
}

TEST(Rent, AWayThatNeverEndsIsNone) {
  Offers offers = offers_of(kNights);
  for (HourPrice& hour : offers.rented[0].hours) hour.preemptions_per_device_hour = 1000;
  EXPECT_FALSE(play_rent({.offer = 0, .spot = true}, offers, two_sites(), 50e9, 14400).has_value());
}

HfConfig rented_config() {
  HfConfig config;
  config.has_folder = false;
  config.spec = {.vocab_size = 1024,
                 .width = 256,
                 .num_layers = 2,
                 .num_heads = 4,
                 .num_kv_heads = 4,
                 .head_dim = 64,
                 .ffn_width = 1024,
                 .max_positions = 512};
  config.spec.rope = RopeSpec{};
  return config;
}

TEST(Rent, APlanHasEveryWayAndMarksWhatIsBeaten) {
  Recipe recipe;
  recipe.train.seq_length = 512;
  recipe.train.global_batch_size = 4;
  recipe.train.train_iters = 200000000;
  recipe.train.precision = PrecisionChoice::bf16;
  const RentPlan plan = plan_rent(recipe, rented_config(), offers_of(kNights), Profiles::built_in(), 1);
  ASSERT_EQ(plan.sites.size(), 2u);
  EXPECT_EQ(plan.sites[1].layout.num_devices(), 2);
  EXPECT_GT(plan.checkpoint_bytes, 1e6);
  // Owned; on demand at any price and at most 3, spot at any price and at most 1, each without and with owned ones.
  EXPECT_EQ(plan.outcomes.size() + plan.cannot.size(), 9u);
  ASSERT_FALSE(plan.outcomes.empty());
  EXPECT_FALSE(plan.outcomes[0].beaten);
  for (size_t i = 0; i < plan.outcomes.size(); ++i) {  // of ways that are alike in both the first counts
    const RentOutcome& o = plan.outcomes[i];
    bool beaten = false;
    for (size_t j = 0; j < plan.outcomes.size(); ++j) {
      const RentOutcome& other = plan.outcomes[j];
      const bool no_worse = other.price <= o.price && other.run_s <= o.run_s;
      beaten = beaten || (no_worse && (other.price < o.price || other.run_s < o.run_s || j < i));
    }
    EXPECT_EQ(o.beaten, beaten) << o.name;
  }
  EXPECT_EQ(to_json(plan)["ways"].size(), plan.outcomes.size());
  EXPECT_SAYS(to_string(plan), "a checkpoint to move is ");
  recipe.train.train_iters = 0;
  recipe.train.epochs = 1;
  EXPECT_SAYS(testing::error_of<ConfigError>(
                  [&] { plan_rent(recipe, rented_config(), offers_of(kNights), Profiles::built_in(), 1); }),
              "train.train_iters in the recipe");
}

}  // namespace
}  // namespace weft
