// Several processes at one pipeline: who makes which shard, what becomes of it when one is killed, and the same bytes.
#include "weft/pipeline/team.h"

#include <csignal>
#include <future>
#include <thread>

#include "apps/program.h"
#include "pipeline/dirty_case.h"
#include "weft/base/json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using testing::bytes_of_folder;
using testing::config_of;
using testing::differing;
using testing::DirtyCase;
using testing::error_of;
using testing::Harness;
using testing::Process;
using testing::spill;
using testing::TempDir;

constexpr int64_t kSources = 4;

// A pipeline whose sources are a shard each, and a helper of whoever leads it.
struct Shared {
  Shared() {
    toml = "[run]\ndir = \"" + out().string() + "\"\nshard_mb = 1\ncompression = \"none\"\n";
    for (int64_t i = 0; i < kSources; ++i) {
      spill(dir / fmt::format("{}.txt", i), fmt::format("some text of number {}", i));
      toml += fmt::format("[[source]]\nname = \"s{}\"\nfiles = [\"{}/{}.txt\"]\n", i, dir.path().string(), i);
    }
    toml += "[length]\nmin_words = 2\n";
  }
  fs::path out() const { return dir / "out"; }
  // The read stage's folder as a leader has begun it.
  void begin() const {
    Harness stopped;
    stopped.stop = true;
    EXPECT_THROW(stopped.run(config_of(toml)), Interrupted);
    ASSERT_TRUE(fs::exists(out() / "read/stage.json"));
  }
  // A leader that does nothing by itself.
  std::unique_ptr<Team> lead(const std::atomic<bool>& stop) const {
    return std::make_unique<Team>(out(), Team::Spec{.work = read_json_file(out() / "run.json"), .stop = stop});
  }
  std::unique_ptr<Team> help(const std::atomic<bool>& stop) const {
    return std::make_unique<Team>(out(),
                                  Team::Spec{.helps = true, .work = read_json_file(out() / "run.json"), .stop = stop});
  }
  TempDir dir;
  std::string toml;
};

// `weft data run --join` in a thread.
class Helper {
 public:
  explicit Helper(const std::string& toml) : config_(config_of(toml)) {
    harness_.helps = true;
    end_ = std::async(std::launch::async, [this] { return error_of([&] { harness_.run(config_); }); });
  }
  ~Helper() { harness_.stop = true; }
  StageProgress::View view() const { return harness_.progress.view(); }
  int64_t shards_made() const { return view().shards_made; }
  std::string shown() const { return view().stage; }
  // "" where it ends without an error.
  std::string wait() { return end_.get(); }

 private:
  PipelineConfig config_;
  Harness harness_;
  std::future<std::string> end_;
};

template <class Condition>
bool comes_true(const Condition& condition) {
  for (int i = 0; i < 20'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

const std::atomic<bool> kNobodyStops{false};

TEST(Team, AHelperMakesTheShardsOfThePassThatIsOpenAndEndsWithItsLeader) {
  const Shared s;
  s.begin();
  auto leader = s.lead(kNobodyStops);
  Helper helper(s.toml);
  ASSERT_TRUE(comes_true([&] { return helper.shown().find("read: waiting") == 0; }));
  EXPECT_EQ(helper.shards_made(), 0);
  leader->open(pass_of("read", 1));
  EXPECT_TRUE(comes_true([&] { return helper.shards_made() == kSources; }));
  leader->close();
  leader.reset();
  EXPECT_NE(helper.wait().find("the run that this one helped has ended"), std::string::npos);
  EXPECT_FALSE(fs::exists(s.out() / "read/manifest.json"));
  const auto made = fs::last_write_time(s.out() / "read/00000.jsonl");
  Harness next;
  next.run(config_of(s.toml));
  EXPECT_EQ(fs::last_write_time(s.out() / "read/00000.jsonl"), made);
  const auto helped = bytes_of_folder(s.out());
  fs::remove_all(s.out());
  Harness alone;
  alone.run(config_of(s.toml));
  EXPECT_EQ(differing(bytes_of_folder(s.out()), helped), (std::set<std::string>{}));
}

TEST(Team, AShardWhoseProcessIsGoneFallsToAnother) {
  const Shared s;
  s.begin();
  auto leader = s.lead(kNobodyStops);
  auto killed = s.help(kNobodyStops);
  leader->open(pass_of("read", 1));
  ASSERT_TRUE(killed->take(2));
  Helper helper(s.toml);
  ASSERT_TRUE(comes_true([&] { return helper.shards_made() == kSources - 1; }));
  EXPECT_FALSE(fs::exists(s.out() / "read/00002.json"));
  fs::remove(s.dir / "3.txt");  // nobody looks for anything behind what was lost
  killed.reset();
  EXPECT_TRUE(comes_true([&] { return helper.shown().find("read: waiting for the run that leads to complete") == 0; }));
  EXPECT_EQ(helper.shards_made(), kSources);
  EXPECT_TRUE(fs::exists(s.out() / "read/00002.json"));
}

TEST(Team, WhatOthersFinishCountsAsDoneInThisRun) {
  const Shared s;
  Harness alone;
  alone.run(config_of(s.toml), "read");
  const auto whole = bytes_of_folder(s.out() / "read");
  fs::remove_all(s.out());
  s.begin();
  const auto leader = s.lead(kNobodyStops);
  auto first = s.help(kNobodyStops);
  const auto second = s.help(kNobodyStops);
  leader->open(pass_of("read", 1));
  ASSERT_TRUE(first->take(0) && second->take(1));
  const Helper helper(s.toml);
  ASSERT_TRUE(comes_true([&] { return helper.shards_made() == kSources - 2; }));
  EXPECT_TRUE(comes_true([&] { return helper.view().waits_for == "others at 2 shards, first 00000"; }));
  for (const char* file : {"00000.jsonl", "00000.json"}) spill(s.out() / "read" / file, whole.at(file));
  first.reset();
  EXPECT_TRUE(comes_true([&] { return helper.view().counts.documents_in == kSources - 1; }));
  const StageProgress::View view = helper.view();
  const auto each = int64_t(fs::file_size(s.dir / "0.txt"));
  EXPECT_EQ(view.bytes, (kSources - 1) * each);
  EXPECT_EQ(view.work_done, (kSources - 1) * each);
  EXPECT_EQ(view.work, kSources * each);
  EXPECT_EQ(view.shards_made, kSources - 2);
}

TEST(Team, ALeaderTouchesNothingWhileAHelperOfTheOneBeforeIsAtWork) {
  const Shared s;
  s.begin();
  auto first = s.lead(kNobodyStops);
  auto stale = s.help(kNobodyStops);
  first->open(pass_of("read", 1));
  ASSERT_TRUE(stale->take(0));
  first.reset();  // killed, while its helper is at work
  Harness next;
  std::future<std::string> end =
      std::async(std::launch::async, [&] { return error_of([&] { next.run(config_of(s.toml)); }); });
  ASSERT_TRUE(comes_true([&] { return stale->turn(1) == Team::Turn::kNotYet; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(stale->turn(pass_of("read", 0)), Team::Turn::kNotYet);  // no pass is open
  EXPECT_FALSE(fs::exists(s.out() / "read/00001.json"));
  stale.reset();
  EXPECT_EQ(end.get(), "");
  EXPECT_TRUE(audit_dataset(s.out()).problems.empty());
}

TEST(Team, OneLeadsEvenWhereItsRunLockIsGone) {
  const Shared s;
  s.begin();
  const auto first = s.lead(kNobodyStops);
  const std::string work = testing::slurp(s.out() / "run.json");
  for (const int pass : {pass_of("read", 1), 0}) {
    if (pass != 0) first->open(pass);
    if (pass == 0) first->close();
    fs::remove(s.out() / "run.lock");
    const Team::Spec other{.work = {{"other", "work"}}, .stop = kNobodyStops};
    EXPECT_NE(error_of([&] { Team(s.out(), other); }).find("another weft leads here"), std::string::npos) << pass;
    EXPECT_EQ(testing::slurp(s.out() / "run.json"), work);
  }
}

TEST(Team, AHelperWritesNothingForALeaderOfAnotherPipeline) {
  const Shared s;
  s.begin();
  auto leader = s.lead(kNobodyStops);
  auto other = s.help(kNobodyStops);
  leader->open(pass_of("read", 1));
  for (int64_t i = 0; i < kSources; ++i) ASSERT_TRUE(other->take(i));
  Helper helper(s.toml);
  ASSERT_TRUE(comes_true([&] { return helper.shown() == "read"; }));
  spill(s.out() / "read/stage.json", "{\"of\": \"another run\"}");
  other.reset();
  EXPECT_NE(helper.wait().find("has ended"), std::string::npos);
  for (const auto& one : bytes_of_folder(s.out() / "read")) EXPECT_EQ(one.first, "stage.json");
}

TEST(Team, AHelperOfOtherWorkIsRefused) {
  Shared s;
  const std::string source = "[[source]]\n";
  for (size_t at = 0; (at = s.toml.find(source, at)) != std::string::npos;)
    s.toml.insert(at += source.size(), "weight = 1\n");
  s.toml += "[tokens]\ntokenizer = \"byte\"\n";
  const auto help = [&](const std::string& toml) {
    Harness helper;
    helper.helps = true;
    return error_of([&] { helper.run(config_of(toml)); });
  };
  EXPECT_NE(help(s.toml).find("no weft data run is at work here that could be helped"), std::string::npos);
  EXPECT_FALSE(fs::exists(s.out()));
  s.begin();
  EXPECT_NE(help(s.toml).find("no weft data run is at work here"), std::string::npos);
  const auto leader = s.lead(kNobodyStops);
  std::string other = s.toml;
  other.replace(other.find("min_words = 2"), 13, "min_words = 3");
  EXPECT_NE(help(other).find("pipeline: length.min_words is \"2\" for it, and \"3\" for this one"), std::string::npos)
      << help(other);
  other = s.toml;
  other.replace(other.find("weight = 1"), 10, "weight = 2");
  EXPECT_NE(help(other).find("pipeline: weights/s0 is 1.0 for it, and 2.0 for this one"), std::string::npos)
      << help(other);
  leader->open(pass_of("read", 1));
  spill(s.dir / "3.txt", "a text that has changed");
  const std::string changed = help(s.toml);
  EXPECT_SAYS(changed, "read: the run that leads makes it otherwise than this one would: inputs/3/bytes of \"");
  EXPECT_SAYS(changed, "3.txt\" is ");
  EXPECT_SAYS(changed, " for it, and 23 for this one");
  EXPECT_FALSE(fs::exists(s.out() / "read/00000.json"));
}

TEST(Team, AHelperThatComesAfterTheEndHasNothingToDo) {
  const Shared s;
  Harness alone, late;
  alone.run(config_of(s.toml));
  late.helps = true;
  const auto nobody = [](const StageResult&) { ADD_FAILURE(); };
  EXPECT_FALSE(run_pipeline(config_of(s.toml), "", late.context(), nobody));
  std::string other = s.toml;
  other.replace(other.find("min_words = 2"), 13, "min_words = 3");
  EXPECT_NE(error_of([&] { late.run(config_of(other)); }).find("no weft data run is at work"), std::string::npos);
  // One that is refused leaves no trace.
  EXPECT_NE(error_of([&] { alone.run(config_of(other)); }).find("length.min_words was \"2\", and is \"3\" now"),
            std::string::npos);
  EXPECT_FALSE(run_pipeline(config_of(s.toml), "", late.context(), nobody));
  // A run that began after the dataset was complete, and was killed.
  fs::last_write_time(s.out() / "run.json", fs::last_write_time(s.out() / "manifest.json") + std::chrono::seconds(1));
  EXPECT_NE(error_of([&] { late.run(config_of(s.toml)); }).find("no weft data run is at work"), std::string::npos);
}

// The dataset is complete, but its run.json comes from a run that asked for more samples.
TEST(Team, AHelperMayJoinWhoMakesLostFilesAnew) {
  const Shared s;
  Harness before;
  before.run(config_of(s.toml));
  fs::remove(s.out() / "filter/00001.jsonl");
  std::string toml = s.toml;
  toml.replace(toml.find("shard_mb = 1"), 12, "shard_mb = 1\nsamples = 7");
  Harness stopped;
  stopped.stop = true;
  EXPECT_THROW(stopped.run(config_of(toml)), Interrupted);
  EXPECT_EQ(read_json_file(s.out() / "run.json").at("run.samples"), 7);
  Harness late;
  late.helps = true;
  EXPECT_SAYS(error_of([&] { late.run(config_of(toml)); }), "no weft data run is at work");
}

TEST(Team, ALeaderWaitsForOthersAndSweepsWhatAKilledOneLeft) {
  const Shared s;
  Harness alone, run;
  alone.run(config_of(s.toml));
  const auto whole = bytes_of_folder(s.out());
  fs::remove_all(s.out());
  std::unique_ptr<Team> killed;
  const auto hold_one = [&](const StageResult& stage) {
    if (stage.folder.filename() != "read") return;
    killed = s.help(kNobodyStops);
    EXPECT_TRUE(killed->take(3));
  };
  std::future<std::string> end = std::async(std::launch::async, [&] {
    return error_of([&] { run_pipeline(config_of(s.toml), "", run.context(), hold_one); });
  });
  EXPECT_TRUE(comes_true([&] { return run.progress.view().shards_made == 2 * kSources - 1; }));
  EXPECT_FALSE(fs::exists(s.out() / "filter/00003.json"));
  EXPECT_TRUE(comes_true([&] { return run.progress.view().waits_for == "helpers at shard 00003"; }));
  spill(s.out() / "filter/00003.jsonl.tmp-abcdef", "half of a sh");
  killed.reset();
  EXPECT_EQ(end.get(), "");
  EXPECT_EQ(differing(bytes_of_folder(s.out()), whole), (std::set<std::string>{}));
}

TEST(Team, ALeaderMakesAShardAgainThatWasCutElsewhere) {
  const Shared s;
  Harness alone, again;
  alone.run(config_of(s.toml));
  const auto whole = bytes_of_folder(s.out());
  fs::remove(s.out() / "read/manifest.json");
  nlohmann::json report = read_json_file(s.out() / "read/00001.json");
  report["counts"]["bytes_in"] = 3;
  spill(s.out() / "read/00001.json", report.dump());
  spill(s.out() / "read/broken-00001.jsonl", "{}\n");
  again.run(config_of(s.toml), "read");
  EXPECT_EQ(again.progress.view().shards_made, 1);
  EXPECT_EQ(differing(bytes_of_folder(s.out()), whole), (std::set<std::string>{}));
}

TEST(Team, CtrlCIsSeenWhileALeaderWaitsForOthers) {
  const Shared s;
  s.begin();
  auto leader = s.lead(kNobodyStops);
  const auto helper = s.help(kNobodyStops);
  ASSERT_TRUE(helper->take(0));
  leader.reset();
  std::atomic<bool> stop{false};
  std::future<std::string> end = std::async(std::launch::async, [&] { return error_of([&] { s.lead(stop); }); });
  EXPECT_TRUE(comes_true([&] { return helper->turn(1) == Team::Turn::kNotYet; }));
  stop = true;
  EXPECT_EQ(end.get(), "stopped; the same command goes on from here");
}

// What the program says of the shards that it made.
int64_t shards_made(const testing::Finished& end) {
  const size_t at = end.out.find("helped: ");
  return at == std::string::npos ? -1 : std::stoll(end.out.substr(at + 8));
}

struct Processes : DirtyCase {
  explicit Processes(int documents) : DirtyCase(documents) {
    spill(dir / "whole.toml", toml("whole"));
    EXPECT_EQ(testing::weft({"data", "run", (dir / "whole.toml").string()}).status, 0);
    spill(dir / "out.toml", toml("out"));
  }
  std::unique_ptr<Process> start(bool helps, const std::string& stage = "") const {
    std::vector<std::string> args = {"data", "run", (dir / "out.toml").string()};
    if (helps) args.emplace_back("--join");
    if (!stage.empty()) args.insert(args.end(), {"--stage", stage});
    return std::make_unique<Process>(testing::Command{.args = args});
  }
  std::set<std::string> differences() const { return differing(result("whole"), result("out")); }
};

TEST(TeamSlow, TwoAndThreeProcessesGiveTheBytesOfOne) {
  const Processes p(4000);
  for (const int helpers : {1, 2}) {
    fs::remove_all(p.dir / "out");
    std::vector<std::unique_ptr<Process>> all;
    for (int i = 0; i < helpers; ++i) all.push_back(p.start(true, i == 1 ? "dedup" : ""));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // they wait for the one that leads
    EXPECT_EQ(p.start(false)->wait().status, 0);
    int64_t made = 0;
    for (int i = 0; i < helpers; ++i) {
      const testing::Finished end = all[size_t(i)]->wait();
      EXPECT_EQ(end.status, 0) << end.err;
      EXPECT_GE(shards_made(end), 0) << end.out;
      made += shards_made(end);
      EXPECT_EQ(end.out.find("tokens  ") == std::string::npos, i == 1) << end.out;  // only up to its stage
    }
    EXPECT_GT(made, 0);
    EXPECT_EQ(p.differences(), (std::set<std::string>{}));
  }
}

TEST(TeamSlow, HelpersThatAreKilledCostNothing) {
  const Processes p(4000);
  const auto leader = p.start(false);
  std::mt19937 random(3);
  int killed = 0;
  while (leader->running()) {
    const auto helper = p.start(true);
    EXPECT_TRUE(comes_true([&] { return fs::exists(p.dir / "out/read/00001.json"); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
    if (helper->running() && leader->running()) ++killed;
    helper->send(SIGKILL);
    helper->wait();
  }
  EXPECT_EQ(leader->wait().status, 0);
  EXPECT_GE(killed, 1);
  EXPECT_EQ(p.differences(), (std::set<std::string>{}));
}

TEST(TeamSlow, HelpersEndWithTheirLeaderAndAnotherGoesOn) {
  const Processes p(8000);
  std::vector<std::unique_ptr<Process>> helpers;
  int lost = 0;
  const auto collect = [&](Process& helper) {
    const testing::Finished end = helper.wait();
    EXPECT_EQ(end.status, 130) << end.err;
    lost += end.err.find("the run that this one helped has ended") != std::string::npos;
  };
  const fs::path keys = fs::path("dedup") / "work" / "00008.keys";
  for (const fs::path& file :
       {fs::path("read/00008.json"), fs::path("filter/00008.json"), keys, fs::path("tokens/00008.json")}) {
    const auto leader = p.start(false);
    while (helpers.size() < 2) helpers.push_back(p.start(true));
    EXPECT_TRUE(comes_true([&] { return fs::exists(p.dir / "out" / file) || !leader->running(); }));
    EXPECT_TRUE(leader->running()) << file;
    leader->send(SIGKILL);
    leader->wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (auto& helper : std::exchange(helpers, {}))
      if (helper->running())
        helpers.push_back(std::move(helper));  // it found no leader yet
      else
        collect(*helper);
  }
  for (auto& helper : helpers) {
    helper->send(SIGINT);
    collect(*helper);
  }
  EXPECT_GE(lost, 2);
  EXPECT_EQ(testing::weft({"data", "run", (p.dir / "out.toml").string()}).status, 0);
  EXPECT_EQ(p.differences(), (std::set<std::string>{}));
}

}  // namespace
}  // namespace weft
