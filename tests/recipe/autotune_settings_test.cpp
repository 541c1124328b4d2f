// Which settings train.autotune tries, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>

#include "support.h"
#include "weft/base/error.h"
#include "weft/recipe/autotune_settings.h"

namespace weft {
namespace {

using AskedSettings = std::vector<TunedSettings>;

// All that is tried where a step takes what `seconds` says; none: it does not fit.
template <class Seconds>
std::pair<AskedSettings, TunedSettings> tuned_by(const Recipe& recipe, Seconds seconds) {
  Tuner tuner(recipe);
  AskedSettings asked;
  while (const auto trial = tuner.next()) {
    asked.push_back(*trial);
    tuner.tell(*trial, seconds(*trial));
  }
  return {asked, tuner.best()};
}

std::vector<int64_t> sizes_of(const AskedSettings& asked) {
  std::vector<int64_t> sizes;
  for (const TunedSettings& s : asked) sizes.push_back(s.micro_batch_size);
  return sizes;
}

Recipe recipe_to_try(int64_t micro_batch, int64_t batch) {
  Recipe r;
  r.train.autotune = true;
  r.train.micro_batch_size = micro_batch;
  r.train.global_batch_size = batch;
  return r;
}

std::optional<double> as_large(const TunedSettings& s) { return 10 - double(s.micro_batch_size); }
std::optional<double> as_small(const TunedSettings& s) { return 10 + double(s.micro_batch_size); }

TEST(Tuner, GrowsMicroBatchesAsLongAsThatGains) {
  const Recipe r = recipe_to_try(1, 8);
  const auto [larger, best] = tuned_by(r, as_large);
  EXPECT_EQ(sizes_of(larger), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(best.micro_batch_size, 8);
  const auto [smaller, least] = tuned_by(recipe_to_try(4, 8), as_small);
  EXPECT_EQ(sizes_of(smaller), (std::vector<int64_t>{4, 8, 2, 1}));
  EXPECT_EQ(least.micro_batch_size, 1);
}

TEST(Tuner, TakesNothingThatDoesNotFitOrGainsAsMuchAsNoise) {
  const auto [asked, best] = tuned_by(recipe_to_try(1, 8), [](const TunedSettings& s) -> std::optional<double> {
    if (s.micro_batch_size > 1) return {};
    return 1.0;
  });
  EXPECT_EQ(sizes_of(asked), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(best.micro_batch_size, 1);
  const auto [noisy, kept] = tuned_by(recipe_to_try(1, 8), [](const TunedSettings& s) -> std::optional<double> {
    return s.micro_batch_size == 1 ? 1.0 : 0.99;
  });
  EXPECT_EQ(kept.micro_batch_size, 1);
}

// train.eval_iters counts micro-batches: held-out losses of all trials are over the same data.
TEST(Tuner, EvaluationsKeepTheirDataWithMicroBatchesOfAnotherSize) {
  Recipe r = recipe_to_try(2, 24);
  r.train.eval_iters = 6;
  const auto [asked, best] = tuned_by(r, as_large);
  EXPECT_EQ(sizes_of(asked), (std::vector<int64_t>{2, 4})) << "8 divides the batch, and not the 12 samples";
  for (const TunedSettings& s : asked) {
    const Recipe tried = with_settings(r, s);
    EXPECT_EQ(tried.train.eval_iters * tried.train.micro_batch_size, 12);
  }
  r = recipe_to_try(1, 8);
  r.train.eval_iters = 3;
  EXPECT_TRUE(settings_to_tune(r).empty());
  r.train.eval_iters = 0;
  EXPECT_EQ(with_settings(r, {.micro_batch_size = 8}).train.eval_iters, 0);  // all of the data
}

TEST(Autotune, SettingsThatNoTrialHasCannotHaveBeenChosen) {
  const Recipe r = recipe_to_try(2, 8);
  EXPECT_TRUE(may_be_chosen(r, tuned_settings_of(r)));
  EXPECT_TRUE(may_be_chosen(r, {.micro_batch_size = 8}));
  EXPECT_FALSE(may_be_chosen(r, {.micro_batch_size = 3}));
  EXPECT_FALSE(may_be_chosen(r, {.micro_batch_size = 2, .pipeline_schedule = ScheduleKind::zb_h1}));
  EXPECT_FALSE(may_be_chosen(r, {.micro_batch_size = 2, .cp_comm_type = CpCommType::a2a}));
  Recipe invariant = r;
  invariant.train.numerics = NumericsChoice::invariant;
  EXPECT_FALSE(may_be_chosen(invariant, {.micro_batch_size = 4}));
}

TEST(Tuner, AnInvariantRunTriesWhatChangesNoBit) {
  Recipe r = recipe_to_try(1, 8);
  r.train.numerics = NumericsChoice::invariant;
  r.parallel.pp = 2;
  const auto [asked, best] = tuned_by(r, [](const TunedSettings& s) -> std::optional<double> {
    return s.pipeline_schedule == ScheduleKind::zb_h1 ? 1 : 2;
  });
  EXPECT_EQ(sizes_of(asked), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(best, (TunedSettings{1, ScheduleKind::zb_h1, CpCommType::p2p}));
  EXPECT_EQ(with_settings(r, best).parallel.pipeline_schedule, ScheduleKind::zb_h1);
  EXPECT_EQ(settings_text(best, r), "parallel.pipeline_schedule = \"zb_h1\"");
}

TEST(Tuner, TriesEachSettingBesideTheBestOfTheOthers) {
  Recipe r = recipe_to_try(2, 8);
  r.parallel.pp = r.parallel.cp = 2;
  const auto [asked, best] = tuned_by(r, [](const TunedSettings& s) -> std::optional<double> {
    return double(s.pipeline_schedule == ScheduleKind::zb_h1 ? 1 : 2) * (s.cp_comm_type == CpCommType::a2a ? 1 : 2) *
           double(s.micro_batch_size);
  });
  EXPECT_EQ(best, (TunedSettings{1, ScheduleKind::zb_h1, CpCommType::a2a}));
  EXPECT_LE(asked.size(), kMostTrials);
  EXPECT_EQ(asked[0], tuned_settings_of(r));
  for (const TunedSettings& s : asked) EXPECT_EQ(std::count(asked.begin(), asked.end(), s), 1);
}

TEST(Autotune, RefusesByNameWhatItCannotTry) {
  const auto refusal_of = [](std::vector<std::string> settings) {
    settings.insert(settings.begin(), "train.autotune=true");
    return testing::error_of<Error>([&] {
      check_supported(parse_recipe("[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n", "r.toml", settings));
    });
  };
  EXPECT_EQ(refusal_of({}), "");
  EXPECT_SAYS(refusal_of({"train.train_iters=10"}), "10 steps are over before two settings have been tried");
  EXPECT_SAYS(refusal_of({"train.epochs=1", "train.train_iters=0"}), "train.epochs");
  EXPECT_SAYS(refusal_of({"train.rampup_batch_size=[32,16,64]"}), "steps that differ");
  EXPECT_SAYS(refusal_of({"train.numerics=invariant"}), "leaves none of them open");
  EXPECT_SAYS(refusal_of({"train.on_spike=rollback", "checkpoint.save_interval=10"}),
              "train.autotune counts its trials");
  EXPECT_EQ(refusal_of({"train.numerics=invariant", "parallel.pp=2"}), "");
  // Where a run may come to other layouts, one of them may leave something to try.
  EXPECT_EQ(refusal_of({"train.numerics=invariant", "fleet.available=n", "fleet.max_ranks=2"}), "");
}

}  // namespace
}  // namespace weft
