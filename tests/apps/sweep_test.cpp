// Sweeps: what is tried, what came of it, and a real one.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "apps/small_run.h"
#include "weft/apps/sweep_children.h"
#include "weft/apps/sweep_draft.h"
#include "weft/apps/sweep_results.h"
#include "weft/apps/sweep_trials.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;

// What parsing the words, or their grid, complains about; "": nothing.
std::string complaint_of(const std::vector<std::string>& words) {
  try {
    grid_trials(parse_sweep_words(words).swept);
  } catch (const ConfigError& e) { return e.what(); }
  return "";
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Sweep, AGridIsAllCombinations) {
  const SweepWords words = parse_sweep_words({"a.x=1,2", "a.y=[3,4],\"5,6\"", "a.z=7"});

  EXPECT_EQ(words.settings, std::vector<std::string>{"a.z=7"}) << "one value is no choice";
  EXPECT_EQ(
      grid_trials(words.swept),
      (Trials{{"a.x=1", "a.y=[3,4]"}, {"a.x=1", "a.y=\"5,6\""}, {"a.x=2", "a.y=[3,4]"}, {"a.x=2", "a.y=\"5,6\""}}));
}

TEST(Sweep, DrawsRepeatAndLieWithinTheRangeEvenlyByItsLogarithm) {
  const auto swept = parse_sweep_words({"lr=1e-5..1e-3", "n=2..9", "kind=p,q"}).swept;
  const Trials trials = random_trials(swept, 1000, 7);

  EXPECT_EQ(trials, random_trials(swept, 1000, 7));
  EXPECT_NE(trials, random_trials(swept, 1000, 8));
  int below = 0;
  std::set<std::string> n, kinds;
  for (const auto& trial : trials) {
    const double lr = std::stod(trial[0].substr(3));
    EXPECT_GE(lr, 1e-5);
    EXPECT_LE(lr, 1e-3);
    below += lr < 1e-4;
    n.insert(trial[1]), kinds.insert(trial[2]);
  }
  EXPECT_NEAR(below, 500, 80) << "half of them lie below the geometric mean";
  EXPECT_EQ(n, (std::set<std::string>{"n=2", "n=3", "n=4", "n=5", "n=6", "n=7", "n=8", "n=9"})) << "whole numbers";
  EXPECT_EQ(kinds, (std::set<std::string>{"kind=p", "kind=q"}));
}

TEST(Sweep, FewerDrawsAreTheFirstOfMore) {
  const auto swept = parse_sweep_words({"lr=1e-5..1e-3"}).swept;
  Trials more = random_trials(swept, 9, 7);
  more.resize(4);
  EXPECT_EQ(more, random_trials(swept, 4, 7));
}

TEST(Sweep, WordsThatSayNoValuesAreRefused) {
  EXPECT_TRUE(says(complaint_of({"optimizer.lr"}), "expected KEY=VALUE"));
  EXPECT_TRUE(says(complaint_of({"optimizer.lr="}), "a value is empty"));
  EXPECT_TRUE(says(complaint_of({"optimizer.lr=1e-4,,1e-3"}), "a value is empty"));
  EXPECT_TRUE(says(complaint_of({"optimizer.lr=1e-4,1e-4"}), "twice"));
  EXPECT_TRUE(says(complaint_of({"optimizer.lr=1e-4", "optimizer.lr=1e-3"}), "given twice"));
  for (const char* no_range : {"1e-3..1e-5", "0..1", "1..x", "1..", "a..b", "1..2,3"})
    EXPECT_TRUE(says(complaint_of({std::string("optimizer.lr=") + no_range}), "this is no range")) << no_range;
  EXPECT_TRUE(says(complaint_of({"optimizer.lr=1e-5..1e-3"}), "--random"));
  EXPECT_EQ(complaint_of({"data.train=../a.txt,../b.txt"}), "") << "a path is no range";
  std::string many = "a.x=0";
  for (int i = 1; i < 101; ++i) many += "," + std::to_string(i);
  EXPECT_TRUE(says(complaint_of({many, "a.y" + many.substr(3)}), "more than 10000 trials"));
}

TEST(Sweep, RungsTrainLongerWithFewerTrials) {
  EXPECT_EQ(halving_rungs(9, 900, 100, 3), (std::vector<Rung>{{100, 9}, {300, 3}, {900, 1}}));
  EXPECT_EQ(halving_rungs(5, 1000, 300, 2), (std::vector<Rung>{{300, 5}, {600, 2}, {1000, 1}}));
  EXPECT_EQ(halving_rungs(2, 80, 10, 2), (std::vector<Rung>{{10, 2}, {20, 1}, {40, 1}, {80, 1}}));
}

TEST(Sweep, PlacesShareTheCoresAndNoneHasAnothers) {
  const std::vector<int> cores{0, 1, 4, 5, 6};
  EXPECT_EQ(cores_of_place(cores, 0, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(cores_of_place(cores, 1, 2), (std::vector<int>{4, 5, 6}));
}

TrialResult result(int64_t trial, std::optional<double> held_out, std::optional<double> train,
                   std::string failed = "") {
  return {
      .stage = "full", .trial = trial, .steps = 12, .held_out = held_out, .train = train, .failed = std::move(failed)};
}

TEST(Sweep, TheBestIsFirstByHeldOutLossIfAllHaveIt) {
  std::vector<TrialResult> all{result(1, {}, {}, "exit status 1"), result(2, 3.0, 1.0), result(3, 2.0, 2.0)};
  sort_by_metric(all);
  EXPECT_EQ(all[0].trial, 3);
  EXPECT_EQ(all[2].trial, 1);

  all[0].held_out.reset();
  sort_by_metric(all);
  EXPECT_EQ(all[0].trial, 2) << "losses of other texts are not compared";
}

TEST(Sweep, TheStateSaysWhatHasEndedAndATornLineDoesNotCount) {
  const testing::TempDir dir;
  const fs::path folder = dir / "s";
  const nlohmann::json identity{{"trials", {"a=1"}}};
  const TrialResult done = result(1, 2.5, {}), failed = result(2, {}, {}, "exit status 1");
  {
    SweepState state(folder, identity);
    EXPECT_EQ(state.find("full", 1, 0), nullptr);
    state.add(done);
    state.add(failed);
    EXPECT_THROW(SweepState(folder, identity), ConfigError) << "another process has it";
  }
  std::ofstream(folder / "sweep.jsonl", std::ios::app) << "{\"stage\":\"fu";

  { SweepState(folder, identity).add(result(3, 2.0, {})); }
  SweepState state(folder, identity);
  EXPECT_EQ(state.results(), (std::vector<TrialResult>{done, failed, result(3, 2.0, {})}));
  EXPECT_EQ(state.find("full", 1, 1), nullptr) << "a later rung has not ended";
  EXPECT_EQ(state.find("draft", 1, 0), nullptr);
  state.forget_failed();
  EXPECT_EQ(state.find("full", 2, 0), nullptr);
  ASSERT_NE(state.find("full", 1, 0), nullptr);
  EXPECT_NO_THROW(state.add(result(2, {}, {}, "caf\xe9: no such file"))) << "the words of a trial are any bytes";
}

TEST(Sweep, AFolderOfAnotherSweepOrOfOtherThingsIsRefused) {
  const testing::TempDir dir;
  { const SweepState state(dir / "s", {{"eta", 3}}); }
  try {
    const SweepState other(dir / "s", {{"eta", 2}});
    FAIL() << "another sweep";
  } catch (const ConfigError& e) {
    EXPECT_TRUE(says(e.what(), "another sweep: eta is 3 there, and 2 here")) << e.what();
  }
  fs::create_directory(dir / "t");
  std::ofstream(dir / "t" / "a.txt") << "a";
  EXPECT_THROW(SweepState(dir / "t", {{"eta", 2}}), ConfigError);
}

SweepTable small_table() {
  return {.keys = {"optimizer.lr"},
          .log = {true},
          .settings = {{"optimizer.lr=1e-05"}, {"optimizer.lr=0.0001"}, {"optimizer.lr=0.001"}},
          .results = {result(1, {}, 3.0), result(2, {}, 2.0), result(3, {}, {}, "exit status 88: <not> finite")}};
}

TEST(Sweep, TheTableHasTheBestFirstAndFailedOnesLastWithTheirReason) {
  SweepTable table = small_table();
  table.results.push_back(result(1, {}, 2.5));
  table.results.back().rung = 1;
  EXPECT_EQ(sweep_table_text(table),
            "at full size:\n"
            "trial  steps  held-out  train   optimizer.lr\n"
            "1      12     -         2.5000  1e-05\n"
            "2      12     -         2.0000  0.0001\n"
            "3      12     -         -       0.001         failed: exit status 88: <not> finite\n")
      << "who went further is before who was left behind";
  table.results.push_back(result(2, {}, 2.75));
  table.results.back().stage = "draft";
  EXPECT_TRUE(sweep_table_text(table).starts_with("on the draft:\n"));
}

TEST(Sweep, ThePictureHasADotForEachTrialOnALogarithmicAxis) {
  SweepTable table = small_table();
  table.results[2] = result(3, {}, 1.0);
  const std::string svg = sweep_svg(table, "a <b>");
  std::vector<double> x;
  for (size_t at = 0; (at = svg.find("cx=\"", at)) != svg.npos; ++at) x.push_back(std::stod(svg.substr(at + 4)));
  ASSERT_EQ(x.size(), 3u);
  std::sort(x.begin(), x.end());
  EXPECT_NEAR(x[1], (x[0] + x[2]) / 2, 0.2) << "1e-4 is in the middle";
  EXPECT_TRUE(says(svg, "a &lt;b&gt;"));
  EXPECT_FALSE(says(svg, "<b>"));
}

TEST(Sweep, ADraftIsTheConfigWithOtherValues) {
  const testing::TempDir dir;
  std::ofstream(dir / "config.json") << R"({"num_hidden_layers": 3, "layer_types": ["a", "b", "c"], "hidden_size": 8})";
  Recipe recipe;
  recipe.model.path = dir.path().string();
  EXPECT_THROW(draft_config(recipe, {"layers=1"}), ConfigError) << "its weights are of another model";
  recipe.model.init = InitChoice::random;
  EXPECT_EQ(
      draft_config(recipe, {"layers=1", "hidden_size=4"}),
      (nlohmann::json{{"num_hidden_layers", 1}, {"layer_types", nlohmann::json::array({"a"})}, {"hidden_size", 4}}));
  EXPECT_THROW(draft_config(recipe, {"hiden_size=4"}), ConfigError);
  EXPECT_THROW(draft_config(recipe, {"layers"}), ConfigError);
}

// Of a model that begins at random, in the folder "s".
class SweepSlow : public testing::SmallRun {
 protected:
  std::vector<std::string> words(std::vector<std::string> more) {
    std::vector<std::string> all{"sweep", (dir_ / "r.toml").string(), "--folder", (dir_ / "s").string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Finished sweep(std::vector<std::string> more) { return testing::weft(words(std::move(more))); }
  size_t num_ended() {
    const std::string state = testing::slurp(dir_ / "s" / "sweep.jsonl");
    return size_t(std::count(state.begin(), state.end(), '\n'));
  }
};

TEST_F(SweepSlow, OfFourTrialsThatIsKilledGoesOnToTheSameResults) {
  const std::vector<std::string> four{"optimizer.lr=1e-3,1e-2", "train.seed=1,2"};
  {
    testing::Process killed({.args = words(four)});
    ASSERT_TRUE(testing::wait_until([&] { return fs::exists(dir_ / "s/sweep.jsonl") && num_ended() >= 2; }, 20000));
    killed.send(SIGKILL);
    killed.wait();
  }
  const size_t records = num_ended();
  const fs::path first = dir_ / "s/trial-1/metrics.jsonl";
  const auto written = fs::last_write_time(first);
  const Finished resumed = sweep(four);

  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_LE(records, 5u);
  EXPECT_EQ(num_ended(), 5u) << "the head and four trials, each once";
  EXPECT_EQ(fs::last_write_time(first), written) << "a trial that has ended is not run again";
  EXPECT_EQ(testing::slurp(dir_ / "s/sweep.txt"), resumed.out);
  EXPECT_TRUE(says(testing::slurp(dir_ / "s/sweep.svg"), "train.seed"));
  ASSERT_EQ(run("train", {"optimizer.lr=1e-2", "train.seed=2"}, "alone").status, 0);
  EXPECT_EQ(weights_of("s/trial-4"), weights_of("alone"));
}

TEST_F(SweepSlow, WithHalvingAndADraftConfirmsTheWinner) {
  const std::vector<std::string> halving{"optimizer.lr=1e-3,1e-2", "model.init=random", "--halving", "--eta=2",
                                         "--least-steps=4",        "--draft=layers=1",  "--jobs=1"};
  const Finished done = sweep(halving);

  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(done.out.starts_with("on the draft:\n")) << done.out;
  EXPECT_TRUE(says(done.out, "at full size:\n")) << done.out;
  EXPECT_EQ(num_ended(), 6u) << "the head; two trials of 4 steps, one of 8 and of 12 on the draft; the winner";
  const int winner = fs::exists(dir_ / "s/trial-1") ? 1 : 2;
  const std::string name = "s/draft/trial-" + std::to_string(winner);
  EXPECT_EQ(records_of(name), 12u) << "went on from its rungs";
  EXPECT_EQ(records_of("s/draft/trial-" + std::to_string(3 - winner)), 4u);
  // The learning rate of a rung's last step is the whole run's.
  EXPECT_GT(steps_of(name)[3].at("lr").get<double>(), 0.5 * steps_of(name)[0].at("lr").get<double>());
}

TEST_F(SweepSlow, AskedToStopSavesAndOneThatFailsEndsNothing) {
  testing::Process stopped({.args = words({"optimizer.lr=1e-3,1e-2", "train.train_iters=100000"})});
  ASSERT_TRUE(testing::wait_until(
      [&] { return fs::exists(dir_ / "s/trial-1/metrics.jsonl") && records_of("s/trial-1") >= 3; }, 20000));
  stopped.send(SIGTERM);
  EXPECT_EQ(stopped.wait().status, 75);
  EXPECT_EQ(num_ended(), 1u) << "a trial under way has no result";
  EXPECT_FALSE(fs::exists(dir_ / "s/trial-2"));

  fs::remove_all(dir_ / "s");
  const Finished failed = sweep({"model.path=" + (dir_ / "gone").string() + "," +
                                 (fs::path(testing::kSourceDir) / "tests/golden/llama-gqa").string()});
  EXPECT_EQ(failed.status, 0) << failed.err;
  EXPECT_TRUE(says(failed.out, "failed: exit status")) << failed.out;
}

TEST_F(SweepSlow, RefusesWhatCannotBeRunBeforeTheFirstTrial) {
  const auto refused = [&](std::vector<std::string> more, const std::string& why) {
    const Finished f = sweep(std::move(more));
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_TRUE(says(f.err, why)) << f.err;
    EXPECT_FALSE(fs::exists(dir_ / "s"));
  };
  refused({"optimizer.lrr=1,2"}, "optimizer.lrr");
  refused({"optimizer.lr=1e-3,-1"}, "trial 2 (optimizer.lr=-1)");
  refused({"optimizer.lr=1e-3"}, "no key has several values");
  refused({"run.dir=a,b"}, "--folder");
  refused({"optimizer.lr=1e-3..1e-2"}, "--random");
  refused({"optimizer.lr=1,2", "--halving", "--least-steps=12"}, "one rung");
  refused({"optimizer.lr=1,2", "--jobs=4096"}, "--jobs");
  refused({"optimizer.lr=1,2", "--draft=layers=1"}, "model.init=random");
  refused({"optimizer.lr=1,2", "model.init=random", "--draft=layers=0"}, "--draft layers=0: config.json");
}

}  // namespace
}  // namespace weft
