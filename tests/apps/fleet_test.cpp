// Ranks that come and go: what is available, which layout is taken, and runs that go on with others.
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/small_run.h"
#include "weft/apps/child_command.h"
#include "weft/apps/fleet.h"
#include "weft/apps/fleet_layout.h"
#include "weft/apps/hosts.h"
#include "weft/base/host_name.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;

std::string host_refusal(const std::string& text, bool may_be_number = true) {
  try {
    available_of(text, "hosts", may_be_number);
    return "";
  } catch (const ConfigError& e) { return e.what(); }
}

TEST(Hosts, AreReadLineByLineOrAsANumber) {
  const Available two = available_of("# nodes\n10.0.0.1 slots=4\n\nb  # no slots\n10.0.0.1 slots=2\n", "hosts", false);
  EXPECT_EQ(two.hosts, (std::vector<Host>{{"10.0.0.1", 6}, {"b", 1}}));
  EXPECT_EQ(two.ranks, 7);
  EXPECT_EQ(available_of(" 12 \n", "hosts", true), Available{.ranks = 12});
  EXPECT_EQ(available_of("0\n", "hosts", true).ranks, 0);
  EXPECT_SAYS(host_refusal("a slots=x"), "hosts, line 1: \"a slots=x\" is no host");
  EXPECT_SAYS(host_refusal("a\nb:3,c"), "hosts, line 2: \"b:3,c\" is no host");
  EXPECT_SAYS(host_refusal("--mca"), "is no host");
  EXPECT_SAYS(host_refusal("-1"), "is no host");
  EXPECT_EQ(available_of("", "hosts", true).ranks, 0);
}

TEST(Hosts, AreUsedFromThisOneOnAsFarAsRanksNeed) {
  const std::vector<Host> all{{"elsewhere.invalid", 2}, {name_of_host(), 1}, {"c.invalid", 4}};
  const std::vector<Host> ordered = this_host_first(all, "hosts");
  EXPECT_EQ(to_string(ordered), name_of_host() + ":1,elsewhere.invalid:2,c.invalid:4");
  EXPECT_EQ(to_string(first_slots(ordered, 4)), name_of_host() + ":1,elsewhere.invalid:2,c.invalid:1");
  EXPECT_EQ(to_string(first_slots(ordered, 1)), name_of_host() + ":1");
  EXPECT_EQ(hosts_of(to_string(ordered)), ordered);
  EXPECT_TRUE(is_this_host("127.0.0.1"));
  EXPECT_THROW(this_host_first({{"elsewhere.invalid", 2}}, "hosts"), ConfigError);
}

TEST(ChildCommand, GivesWhatIsPrintedOrWhyNot) {
  const auto never = [] { return false; };
  const auto answer = [&](const char* text, double limit_s = 10) {
    return ChildCommand({"sh", "-c", text}, limit_s).wait(never);
  };
  EXPECT_EQ(answer("echo 3").text, "3\n");
  EXPECT_TRUE(answer("echo 3").good);
  EXPECT_EQ(answer("echo 3; exit 4").text, "ended with status 4");
  EXPECT_EQ(answer("kill -9 $$").text, "was ended by signal 9");
  EXPECT_EQ(answer("sleep 100", 0.05).text, "gave no answer within 0.05 s");
  EXPECT_FALSE(ChildCommand({"sleep", "100"}, 10).wait([] { return true; }).good);
  const std::string long_text(300000, 'x');
  EXPECT_EQ(ChildCommand({"cat"}, 10, false, long_text).wait(never).text, long_text);
  EXPECT_EQ(ChildCommand({"cat"}, 10).wait(never).text, "");
}

Recipe fleet_recipe(const std::string& more) {
  return parse_recipe("[model]\npath = \"" + (fs::path(testing::kSourceDir) / "tests/golden/llama-gqa").string() +
                          "\"\n[data]\ntrain = [\"a.bin\"]\n[train]\nseq_length = 8\nglobal_batch_size = 8\n"
                          "micro_batch_size = 1\n" +
                          more,
                      "r.toml", {});
}
const std::string kFour = "[parallel]\ndp = 4\n[fleet]\navailable = \"cat n\"\nmin_ranks = 1\nmax_ranks = 8\n";

std::string layout_chosen(
    const Recipe& recipe, int64_t available,
    const DoesNotFit& does_not_fit = [](const Recipe&) { return std::string(); }) {
  const auto found = choose_layout(recipe, available, does_not_fit);
  return found ? words_of_layout(found->recipe) : "none";
}

TEST(FleetLayout, IsTheFastestThatTheRecipeAllows) {
  const Recipe four = fleet_recipe(kFour), dp_alone = fleet_recipe(kFour + "may_change = [\"dp\"]\n");
  EXPECT_EQ(layout_chosen(four, 4), "dp 4, micro-batch 1");
  EXPECT_EQ(layout_chosen(four, 9), "dp 8, micro-batch 1");
  EXPECT_EQ(layout_chosen(four, 1), "dp 1, micro-batch 1");
  EXPECT_EQ(layout_chosen(four, 3), "dp 1, pp 3 (1f1b), micro-batch 1") << "2.4 times as fast as one rank, dp 2 twice";
  EXPECT_EQ(layout_chosen(dp_alone, 3), "dp 2, micro-batch 1") << "of a batch of 8 none have a third";
  EXPECT_EQ(layout_chosen(dp_alone, 0), "none");
  EXPECT_EQ(layout_chosen(fleet_recipe("[parallel]\ndp = 4\n[fleet]\navailable = \"cat n\"\n"), 3), "none")
      << "no less than the layout has";
  const Recipe tp = fleet_recipe("[parallel]\ndp = 2\ntp = 2\n[fleet]\navailable = \"cat n\"\nmin_ranks = 1\n");
  EXPECT_EQ(layout_chosen(tp, 3), "dp 1, tp 2, micro-batch 1") << "tp stays, as may_change does not name it";
  EXPECT_EQ(layout_chosen(tp, 1), "none");
}

// Which a layout of fewer ranks would be fitted to.
TEST(FleetLayout, LeavesATeachersOwnAxesUnlessItMayChangeThem) {
  const auto beside_teacher = [](const std::string& more) {
    Recipe r = fleet_recipe(kFour + more);
    r.train.objective = ObjectiveKind::distill;
    r.objective.teacher = r.model.path;
    r.objective.top_k = 16;
    r.parallel.teacher_tp = 2;
    return r;
  };
  const Recipe no_tp = beside_teacher("may_change = [\"dp\"]\n");
  EXPECT_EQ(layout_chosen(no_tp, 2), "dp 2, micro-batch 1");
  EXPECT_EQ(layout_chosen(no_tp, 1), "none");
  const auto found =
      choose_layout(beside_teacher("may_change = [\"dp\", \"tp\"]\n"), 1, [](const Recipe&) { return std::string(); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->recipe.parallel.teacher_tp, 1);
}

TEST(FleetLayout, TakesWhatFitsIntoMemory) {
  const Recipe four = fleet_recipe(kFour + "may_change = [\"dp\", \"zero_stage\", \"recompute\"]\n");
  const auto needs_shards = [](const Recipe& r) { return std::string(r.parallel.zero_stage < 1 ? "too much" : ""); };
  EXPECT_EQ(layout_chosen(four, 2, needs_shards), "dp 2, micro-batch 1, zero 1");
  const auto needs_more = [](const Recipe& r) {
    return std::string(r.parallel.recompute == RecomputeKind::full ? "" : "too much");
  };
  EXPECT_EQ(layout_chosen(four, 1, needs_more), "dp 1, micro-batch 1, recompute full");
  EXPECT_EQ(layout_chosen(four, 2, [](const Recipe&) { return std::string("too much"); }), "none");
}

TEST(FleetLayout, IsChosenByForecastWhereThereIsACluster) {
  const auto found =
      choose_layout(fleet_recipe(kFour + "cluster = \"H100-SXM\"\n"), 2, [](const Recipe&) { return ""; });
  ASSERT_TRUE(found);
  EXPECT_SAYS(found->why, "by the forecast for H100-SXM");
  EXPECT_EQ(found->ranks, 2);
  EXPECT_THROW(choose_layout(fleet_recipe(kFour + "cluster = \"H1000\"\n"), 2, [](const Recipe&) { return ""; }),
               Error);
}

// Eight ranks have one sample each: it stays what the run began with.
TEST(FleetLayout, MayLeaveAutotuneNothingToTry) {
  Recipe four = fleet_recipe(kFour);
  four.train.autotune = true;
  const auto found = choose_layout(four, 8, [](const Recipe&) { return ""; });
  ASSERT_TRUE(found);
  EXPECT_EQ(settings_between(four, found->recipe), std::vector<std::string>{"parallel.dp=8"});
}

TEST(FleetLayout, ChangesNothingButTheLayout) {
  const Recipe four = fleet_recipe(kFour);
  const auto found = choose_layout(four, 3, [](const Recipe&) { return ""; });
  ASSERT_TRUE(found);
  EXPECT_EQ(settings_between(four, found->recipe), (std::vector<std::string>{"parallel.dp=1", "parallel.pp=3"}));
  EXPECT_TRUE(settings_between(four, four).empty());
}

TEST(Fleet, KeepsTheAnswerBeforeWhereTheCommandFails) {
  const testing::TempDir dir;
  const std::string file = (dir / "n").string();
  Fleet fleet(fleet_recipe("[fleet]\navailable = \"cat " + file + "\"\npoll_seconds = 0.001\n"));
  const auto never = [] { return false; };
  EXPECT_THROW(fleet.ask(never), Error);
  testing::spill(file, "4");
  EXPECT_EQ(fleet.ask(never)->ranks, 4);
  bool changed = false;
  const auto looks = [&] { return changed = changed || fleet.has_changed(); };
  EXPECT_FALSE(testing::wait_until(looks, 20));
  testing::spill(file, "3");
  EXPECT_TRUE(testing::wait_until(looks));
  EXPECT_EQ(fleet.ask_last().ranks, 3);
  fs::remove(file);
  EXPECT_EQ(fleet.ask(never)->ranks, 3);
  EXPECT_SAYS(fleet.problem(), "ended with status 1");
  testing::spill(file, "a slots=2");
  EXPECT_EQ(fleet.ask(never)->ranks, 3);
  EXPECT_SAYS(fleet.problem(), "ranks are threads of this process");
}

// The first question may be under way then: it is not an answer that is missing.
TEST(Fleet, ARunThatIsToStopWaitsForNoAnswer) {
  Fleet fleet(fleet_recipe("[fleet]\navailable = \"sleep 30\"\n"));
  EXPECT_FALSE(fleet.ask([] { return true; }));
}

// Runs of a small model on two ranks or one.
class FleetRun : public testing::SupervisedRun {
 protected:
  // With the bits of any dp.
  std::vector<std::string> settings(const std::string& command) {
    return {"train.numerics=invariant", "parallel.dp=2", "fleet.min_ranks=1", "fleet.available='" + command + "'"};
  }
  std::string whole_weights() {
    EXPECT_EQ(run("train", {"train.numerics=invariant", "parallel.dp=2"}, "whole").status, 0);
    return weights_of("whole");
  }
  std::vector<int64_t> ranks_of_attempts() {
    std::vector<int64_t> ranks;
    for (const auto& e : events_of("r", "started")) ranks.push_back(e["ranks"]);
    return ranks;
  }
};

using FleetRunSlow = FleetRun;

TEST_F(FleetRun, WaitsForRanksAndGoesOnWithFewerToTheSameBits) {
  const std::string whole = whole_weights(), asked = (dir_ / "asked").string(),
                    saved = (dir_ / "r/checkpoints").string();
  testing::spill(dir_ / "n.sh", "if ! test -e " + asked + "; then touch " + asked + "; echo 0\n" + "elif test -e " +
                                    saved + "/step-2; then echo 1; else echo 2; fi\n");
  std::vector<std::string> more = settings("sh " + (dir_ / "n.sh").string());
  more.push_back("fleet.poll_seconds=0");
  const Finished f = supervise("r", "kill@step:0:3", more);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(ranks_of_attempts(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(events_of("r", "waiting").size(), 1u);
  ASSERT_EQ(events_of("r", "layout").size(), 1u);
  EXPECT_EQ(events_of("r", "layout")[0]["layout"], "dp 1, micro-batch 1");
  EXPECT_SAYS(f.err, "0 ranks are there, for which there is no layout");
  EXPECT_SAYS(f.err, "1 rank is there: 1 of them as dp 1");
  EXPECT_EQ(weights_of("r"), whole);
}

TEST_F(FleetRunSlow, MovesToMoreRanksWhileItGoesOn) {
  const std::string whole = whole_weights(), saved = (dir_ / "r/checkpoints").string();
  const std::string more_now = (dir_ / "more").string();
  testing::spill(dir_ / "n.sh", "test -e " + saved + "/step-2 && touch " + more_now + "\ntest -e " + more_now +
                                    " && echo 2 || echo 1\n");
  std::vector<std::string> more = settings("sh " + (dir_ / "n.sh").string());
  more.insert(more.end(), {"fleet.poll_seconds=0.01", "--attempts", "1"});
  const Finished f = supervise("r", "slow@step:0:5", more);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(ranks_of_attempts(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"moved", "finished"}));
  const nlohmann::json moved = events_of("r", "ended")[0];
  EXPECT_EQ(moved["saved_step"], moved["step"]) << "no step is lost";
  EXPECT_EQ(weights_of("r"), whole);
}

TEST_F(FleetRunSlow, KilledAtRandomOnEverOtherRanksItComesToTheSameBits) {
  const std::vector<std::string> wide{"train.numerics=invariant", "parallel.dp=4", "train.global_batch_size=8",
                                      "train.train_iters=40"};
  ASSERT_EQ(run("train", wide, "whole").status, 0);
  testing::spill(dir_ / "n.sh", "n=$(cat " + (dir_ / "n").string() + " || echo 0); echo $((n + 1)) >" +
                                    (dir_ / "n").string() + "\nset -- 2 4 1 3 8 5; shift $((n % 6)); echo $1\n");
  std::vector<std::string> more = wide;
  more.insert(more.end(), {"fleet.min_ranks=1", "fleet.max_ranks=8", "fleet.poll_seconds=0",
                           "fleet.available='sh " + (dir_ / "n.sh").string() + "'"});
  std::string faults;
  for (const int attempt : {1, 2, 3, 4, 5, 6, 7})
    faults += fmt::format("{}kill@step:0:{}:{}", attempt > 1 ? "," : "", 5 * attempt - attempt % 3, attempt);
  const Finished f = supervise("r", faults, more);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(ranks_of_attempts().size(), 8u);
  EXPECT_EQ(weights_of("r", 40), weights_of("whole", 40));
}

TEST_F(FleetRun, IsSupervisedByTrainWhereTheRecipeSaysSo) {
  fail_by("kill@step:0:3");
  const Finished f = run("train", {"run.supervise=true"}, "r");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"killed", "finished"}));
  const Finished from = run("train", {"run.supervise=true", "--from", (dir_ / "r/checkpoints/step-2").string()}, "s");
  EXPECT_EQ(from.status, 2);
  EXPECT_SAYS(from.err, "--from cannot run with run.supervise = true");
}

}  // namespace
}  // namespace weft
