// What a recipe says of loss spikes.
#include <gtest/gtest.h>

#include <algorithm>

#include "support.h"
#include "weft/base/error.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

std::string spikes_error(const std::vector<std::string>& overrides) {
  return testing::error_of<Error>([&] {
    check_supported(parse_recipe("[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n", "r.toml", overrides));
  });
}

TEST(RecipeSpikes, ARunGoesBackFromASpikeOnlyWhereItsWayIsPlain) {
  const auto refused = [](std::vector<std::string> more) {
    more.push_back("train.on_spike=rollback");
    return spikes_error(more);
  };
  EXPECT_EQ(spikes_error({"train.on_spike=skip", "train.rampup_batch_size=[4, 4, 9]"}), "");
  EXPECT_EQ(refused({"checkpoint.save_interval=100"}), "");
  EXPECT_SAYS(refused({}), "train.on_spike = \"rollback\" cannot run: with checkpoint.save_interval = 0 there is no");
  EXPECT_SAYS(refused({}), "checkpoint.save_interval = 100, or train.on_spike = \"skip\"");
  EXPECT_SAYS(refused({"checkpoint.save_interval=100", "train.rampup_batch_size=[4, 4, 9]"}),
              "train.on_spike = \"rollback\" cannot run: phases and a ramp");
  const std::vector<std::string> best{"checkpoint.save_interval=100", "checkpoint.keep_best=1", "data.valid=v"};
  const auto with_evals = [&](const std::string& every) {
    std::vector<std::string> all = best;
    all.push_back("train.eval_interval=" + every);
    return refused(all);
  };
  EXPECT_EQ(with_evals("200"), "");
  EXPECT_SAYS(with_evals("250"), "checkpoint.keep_best = 1 cannot run: train.on_spike = \"rollback\" goes back to");
  EXPECT_SAYS(with_evals("250"), "train.eval_interval = 200, or");
  EXPECT_SAYS(with_evals("30"), "train.eval_interval = 100, or");
}

TEST(RecipeSpikes, SettingsOfSpikesThatNothingLooksForAreRefused) {
  for (const char* setting : {"train.spike_sigma_factor = 4", "train.spike_window = 64", "train.max_spikes = 3"}) {
    std::string given = setting;
    given.erase(std::remove(given.begin(), given.end(), ' '), given.end());
    EXPECT_SAYS(spikes_error({given}), std::string(setting) + " has no effect: train.on_spike = \"none\"");
    EXPECT_EQ(spikes_error({given, "train.on_spike=skip"}), "");
  }
  EXPECT_SAYS(spikes_error({"train.on_spike=ignore"}), "one of \"none\", \"skip\", \"rollback\"");
}

}  // namespace
}  // namespace weft
