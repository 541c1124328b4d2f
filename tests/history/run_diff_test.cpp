// Two runs compared: what is said to matter first.
#include "weft/history/run_diff.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "history/run_folders.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::facts_of;
using testing::MadeRun;
using testing::make_run;
using testing::TempDir;

using Whats = std::vector<std::string>;

class RunDiffs : public ::testing::Test {
 protected:
  RunDiff diff(const MadeRun& a, const MadeRun& b) {
    return diff_runs(facts_of(dir_ / "a", a), facts_of(dir_ / "b", b));
  }
  static Whats whats(const RunDiff& diff) {
    Whats all;
    for (const RunDifference& d : diff.differences) all.push_back(d.what);
    return all;
  }
  TempDir dir_;
};

TEST_F(RunDiffs, RunsThatWereToldTheSameDifferInNothing) {
  const RunDiff same = diff({}, {});  // in folders of their own
  EXPECT_EQ(whats(same), Whats());
  EXPECT_EQ(same.notes, Whats());
  ASSERT_FALSE(same.results.empty());
  for (const ResultDifference& r : same.results) EXPECT_EQ(r.a, r.b) << r.name;
}

TEST_F(RunDiffs, WhatLikelyMattersStandsFirst) {
  const RunDiff all = diff({}, {.settings = "seed = 7\nprecision = \"bf16\"\nlog_interval = 3\n",
                                .model = "other",
                                .train_iters = 9,
                                .contents = "beef",
                                .more = "[optimizer]\nweight_decay = 0.3\nlr = 0.1\n[parallel]\ndp = 2\n"});
  EXPECT_EQ(whats(all),
            (Whats{"data files", "model.path", "train.train_iters", "optimizer.lr", "optimizer.weight_decay",
                   "train.seed", "parallel.dp", "train.precision", "train.log_interval"}));
  EXPECT_EQ(all.differences[0].bearing, Bearing::data);
  EXPECT_EQ(all.differences[3].a, "0.0003");
  EXPECT_EQ(all.differences[3].b, "0.1");
  EXPECT_EQ(all.differences[5].bearing, Bearing::chance);
}

TEST_F(RunDiffs, OtherNamesOfTheSameBytesMatterLittle) {
  RunFacts a = facts_of(dir_ / "a"), b = facts_of(dir_ / "b");
  b.recipe["data.train"] = "[\"copied.bin\"]";
  b.data[0].path = "copied.bin";
  const RunDiff named = diff_runs(a, b);
  ASSERT_EQ(whats(named), Whats{"data.train"});
  EXPECT_EQ(named.differences[0].bearing, Bearing::names);
  a.data.clear();  // not known: it may be other data
  b.data.clear();
  EXPECT_EQ(diff_runs(a, b).differences.at(0).bearing, Bearing::data);
}

// One name, seen from two folders; and where somebody began.
TEST_F(RunDiffs, TheSameNameOfAnotherModelIsADifference) {
  const RunFacts a = facts_of(dir_ / "p1/a"), b = facts_of(dir_ / "p2/b");
  ASSERT_EQ(a.recipe.at("model.path"), b.recipe.at("model.path"));
  const RunDiff d = diff_runs(a, b);
  EXPECT_EQ(whats(d), (Whats{"model.path", "data.train"}));
  EXPECT_EQ(d.differences.at(0).bearing, Bearing::task);
  EXPECT_EQ(d.differences.at(1).bearing, Bearing::names);
  EXPECT_SAYS(d.differences.at(0).a, "/p1/base-model");
  RunFacts from = a;
  from.inputs.push_back({.role = "--from", .path = "/r/checkpoints/step-1"});
  ASSERT_EQ(whats(diff_runs(a, from)), Whats{"--from"});
  EXPECT_EQ(diff_runs(a, from).differences[0].a, "none");
}

TEST_F(RunDiffs, WhatARunDoesNotSayIsNotKnownAndNotTheSame) {
  RunFacts a = facts_of(dir_ / "a");
  a.attempts = {{.weft = "weft 1", .host = "x"}};
  EXPECT_EQ(diff_runs(a, a).not_known, Whats());
  RunFacts b = a;
  b.data.clear();
  b.attempts.clear();
  b.inputs = {{.role = "model.path", .path = "base-model"}};
  EXPECT_EQ(diff_runs(b, b).not_known, (Whats{"data files", "code, machine", "from which folder model.path is seen"}));
}

TEST_F(RunDiffs, ResultsOfOtherMomentsAndTextsAreSaid) {
  const RunFacts a = facts_of(dir_ / "a", {.held_out = {{4, 2.25}}});
  RunFacts b = facts_of(dir_ / "b", {.steps = 3});
  b.recipe["data.valid"] = "[\"held.bin\"]";
  const RunDiff d = diff_runs(a, b);
  ASSERT_FALSE(d.notes.empty());
  EXPECT_SAYS(d.notes.at(0), "data.valid differs");
  EXPECT_SAYS(d.notes.back(), "after 4 and 3 steps");
  for (const ResultDifference& r : d.results)
    if (r.name == "held_out.loss") {
      EXPECT_TRUE(r.a);
      EXPECT_FALSE(r.b);
    }
}

TEST_F(RunDiffs, CodeAndMachineAreThoseOfTheLastAttempts) {
  RunFacts a = facts_of(dir_ / "a"), b = facts_of(dir_ / "b");
  a.attempts = {{.weft = "weft 1", .program = "aa", .host = "x", .machine = "cpu, 1 thread"},
                {.weft = "weft 2", .program = "bb", .host = "x", .machine = "cpu, 2 threads"}};
  b.attempts = {{.weft = "weft 2", .program = "cc", .host = "x", .machine = "cpu, 2 threads"}};
  const RunDiff d = diff_runs(a, b);
  ASSERT_EQ(whats(d), Whats{"code"});
  EXPECT_SAYS(d.differences[0].a, "build bb");
  b.attempts[0].host = "y";
  b.attempts[0].weft = "weft 3";
  EXPECT_EQ(whats(diff_runs(a, b)), (Whats{"code", "host"}));
  b.attempts.clear();
  EXPECT_EQ(diff_runs(a, b).differences.at(0).b, "not known");
}

TEST_F(RunDiffs, PhasesAreComparedKeyByKey) {
  const std::string phase = "[[phase]]\nfrom_step = 2\noptimizer.lr = ";
  RunFacts a = facts_of(dir_ / "a", {.settings = phase + "1e-4\n"}),
           b = facts_of(dir_ / "b", {.settings = phase + "1e-5\n"});
  ASSERT_EQ(a.problems, Whats());
  const RunDiff d = diff_runs(a, b);
  ASSERT_EQ(whats(d), Whats{"phase 1: optimizer.lr"});
  EXPECT_EQ(d.differences[0].bearing, Bearing::learning);
}

// Every key of a recipe bears on something that somebody has chosen: only in these sections it is learning unless more
// is known. The layout never bears on more than rounding.
TEST(Bearing, OfEveryKeyIsKnown) {
  const std::map<std::string, std::set<Bearing>> sections = {
      {"model", {Bearing::task}},
      {"data", {Bearing::data, Bearing::manner}},
      {"train",
       {Bearing::learning, Bearing::task, Bearing::length, Bearing::chance, Bearing::rounding, Bearing::manner}},
      {"objective", {Bearing::task}},
      {"optimizer", {Bearing::learning, Bearing::rounding}},
      {"adapter", {Bearing::task}},
      {"moe", {Bearing::task}},
      {"eval", {Bearing::manner}},
      {"parallel", {Bearing::rounding}},
      {"checkpoint", {Bearing::manner}},
      {"run", {Bearing::manner, Bearing::rounding}},
      {"fleet", {Bearing::manner}},
      {"islands", {Bearing::learning, Bearing::manner}}};
  for (const KeyHelp& key : recipe_help()) {
    const auto section = sections.find(key.key.substr(0, key.key.find('.')));
    ASSERT_NE(section, sections.end()) << key.key << ": of which section nothing was decided";
    EXPECT_TRUE(section->second.contains(bearing_of_key(key.key))) << key.key;
  }
}

}  // namespace
}  // namespace weft
