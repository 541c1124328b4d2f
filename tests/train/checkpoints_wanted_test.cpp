// How many checkpoints a run comes to have at once: counted beforehand, and by a run's saves.
#include "weft/train/checkpoints_wanted.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "weft/base/error.h"
#include "weft/train/checkpoint_folders.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<int64_t>;

std::vector<fs::path> folders_of(const Steps& steps) {
  std::vector<fs::path> all;
  for (const int64_t step : steps) all.emplace_back(fmt::format("run/checkpoints/step-{}", step));
  return all;
}

Recipe saving_recipe(int64_t last, int64_t every, int64_t latest) {
  Recipe r;
  r.train.train_iters = last;
  r.checkpoint.save_interval = every;
  r.checkpoint.keep_latest = latest;
  r.checkpoint.keep_best = 0;
  return r;
}

// A run that saves and removes as Trainer does where the disk is short, from `there` on: how many more there are at
// once than at first.
int64_t most_more(const Recipe& r, const Steps& there, const Steps& for_phases) {
  std::vector<fs::path> all = folders_of(there);
  const int64_t last = r.train.train_iters, every = r.checkpoint.save_interval;
  const KeptCheckpoints kept{.latest = r.checkpoint.keep_latest, .whatever_age = folders_of(for_phases)};
  size_t most = 0;
  for (int64_t step = there.empty() ? 1 : there.back() + 1; step <= last; ++step) {
    const bool for_phase = std::find(for_phases.begin(), for_phases.end(), step) != for_phases.end();
    if (step != last && !for_phase && (every == 0 || step % every != 0)) continue;
    all.push_back(folders_of({step})[0]);
    most = std::max(most, all.size());
    for (const fs::path& gone : surplus_of(all, kept)) std::erase(all, gone);
  }
  return int64_t(most) - int64_t(there.size());
}

// A phase's reference may also have a head that it drops: such a step is named twice.
TEST(CheckpointsWanted, AreAsManyAsSavesMakeThem) {
  int cases = 0;
  for (const Steps& for_phases : {Steps{}, Steps{3}, Steps{3, 3}, Steps{2, 3, 7}, Steps{1, 2, 3, 4}, Steps{5, 9}})
    for (const Steps& there : {Steps{}, Steps{1}, Steps{3}, Steps{3, 4}, Steps{5}})
      for (const int64_t every : {0, 1, 2, 4, 20})
        for (const int64_t last : {6, 10, 11})
          for (const int64_t latest : {0, 1}) {
            const Recipe r = saving_recipe(last, every, latest);
            std::vector<fs::path> staying = folders_of(there);
            const KeptCheckpoints kept{.latest = latest, .whatever_age = folders_of(for_phases)};
            if (!surplus_of(staying, kept).empty()) continue;  // which may go at once
            Steps reached;
            for (const int64_t step : for_phases)
              if (step < last) reached.push_back(step);
            const int64_t more = most_more(r, there, reached);
            const WantedCheckpoints wanted =
                wanted_checkpoints(r, {.staying = staying, .for_phases = folders_of(for_phases)});
            const std::string which =
                fmt::format("phases keep {}, there are {}, a save every {} steps of {}, keep_latest = {}",
                            for_phases.size(), there.size(), every, last, latest);
            EXPECT_EQ(wanted.count, more) << which << " from " << (there.empty() ? 0 : there.back());
            ++cases;
          }
  EXPECT_GT(cases, 500);
}

TEST(CheckpointsWanted, SayWhatTheyAreFor) {
  const Recipe r = saving_recipe(10, 1, 1);
  EXPECT_EQ(wanted_checkpoints(r, {}).name, "two");
  EXPECT_EQ(wanted_checkpoints(r, {.staying = {}, .for_phases = folders_of({2, 5})}).name, "4 (phases keep 2 of them)");
  EXPECT_EQ(wanted_checkpoints(saving_recipe(10, 4, 0), {.staying = {}, .for_phases = folders_of({2, 4})}).name,
            "the 4 that are to be kept");
}

// One that is there for a phase is not one of the best.
TEST(CheckpointsWanted, BestOnesAreWantedBesideThoseOfPhases) {
  Recipe r = saving_recipe(100, 1, 1);
  r.checkpoint.keep_best = 3;
  EXPECT_EQ(wanted_checkpoints(r, {}).count, 4);
  const WantedCheckpoints wanted =
      wanted_checkpoints(r, {.staying = folders_of({2, 9}), .for_phases = folders_of({2, 50})});
  EXPECT_EQ(wanted.count, 4) << "three more: step-9 is one of four";
  EXPECT_EQ(wanted.name, "4 (checkpoint.keep_best = 3, 1 that phases keep, and the one that is being saved)");
}

}  // namespace
}  // namespace weft
