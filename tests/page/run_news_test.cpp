// What happens to runs is told once: states, events, and that they have become slow.
#include "weft/page/run_news.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "apps/program.h"
#include "page/watched_runs.h"
#include "places.h"
#include "weft/base/error.h"
#include "weft/history/attempt_file.h"
#include "weft/history/run_facts.h"
#include "weft/records/events.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::append_text;
using testing::asked;
using testing::lines_of;
using testing::make_run;
using testing::OwnedRun;
using testing::TempDir;

// A run, and what is told of it at each look.
class News : public ::testing::Test {
 protected:
  explicit News(std::vector<std::string> kinds = RunNews::all_kinds()) : news_(std::move(kinds)) {
    append_attempt(run_, {.began_s = 1});
    LivePage::Spec spec = testing::watched({run_});
    spec.on_look = [this](const RunView& run) { news_.look(run); };
    page_.emplace(std::move(spec));
  }

  json told() {
    asked(*page_, "/api/runs");
    json all = json::array();
    for (nlohmann::ordered_json event = news_.take(); !event.is_null(); event = news_.take())
      all.push_back(json(event));
    return all;
  }
  void steps(int64_t from, int64_t to, double tokens_per_s) {
    for (int64_t s = from; s <= to; ++s)
      append_text(run_ / "metrics.jsonl",
                  to_json(StepRecord{.step = s, .loss = 2, .tokens_per_s = tokens_per_s, .step_time_s = 1}) + "\n");
  }

  TempDir dir_;
  fs::path run_ = make_run(dir_ / "first", {.train_iters = 1000});
  RunNews news_;
  std::optional<LivePage> page_;
};

TEST_F(News, TellsOfStatesWithTheirReasons) {
  {
    const OwnedRun owner(run_);
    EXPECT_EQ(told(), json::array()) << "it ran when one looked first";
    EXPECT_EQ(told(), json::array());
  }
  append_attempt_end(run_, {.time_s = 2, .status = 88, .reason = "the loss of step 5 is not finite"});
  const json failed = told();
  ASSERT_EQ(failed.size(), 1);
  EXPECT_EQ(failed[0]["event"], "failed");
  EXPECT_EQ(failed[0]["was"], "running");
  EXPECT_EQ(failed[0]["run"], "first");
  EXPECT_EQ(failed[0]["path"], fs::canonical(run_).string());
  EXPECT_EQ(failed[0]["step"], 4);
  EXPECT_EQ(failed[0]["text"], "first: failed at step 4: the loss of step 5 is not finite, was running");
  EXPECT_EQ(told(), json::array()) << "once";
}

TEST_F(News, TellsOfEventsThatCame) {
  append_event(run_, "spike", {{"step", 2}, {"loss", 9.0}});
  EXPECT_EQ(told(), json::array()) << "it was there before";
  append_event(run_, "spike", {{"step", 3}, {"loss", 9.5}, {"ranks", {1, 2}}, {"run", 7}});
  append_event(run_, "finished", {{"status", 0}});
  append_text(run_ / "events.jsonl", "{\"event\":\"hang\",\"time\":5,\"step\":{},\"reason\":[3]}\n");
  const json came = told();
  ASSERT_EQ(came.size(), 2) << "that it has finished its state would tell";
  EXPECT_EQ(came[0]["text"], "first: spike at step 3: loss 9.5");
  EXPECT_EQ(came[0]["ranks"], (json{1, 2}));
  EXPECT_EQ(came[1]["text"], "first: hang");
  EXPECT_EQ(came[1]["time"], 5);
  EXPECT_EQ(told(), json::array());
}

TEST_F(News, TellsOnceThatARunIsSlow) {
  EXPECT_EQ(told(), json::array());
  steps(5, 80, 1000);
  EXPECT_EQ(told(), json::array());
  steps(81, 96, 450);
  const json slow = told();
  ASSERT_EQ(slow.size(), 1);
  EXPECT_EQ(slow[0]["event"], "slow");
  EXPECT_EQ(slow[0]["step"], 96);
  EXPECT_EQ(slow[0]["reason"], "its last 16 steps had 450 tokens/s, of the 1000 that are usual");
  steps(97, 112, 460);
  EXPECT_EQ(told(), json::array()) << "it still is";
  steps(113, 130, 900);
  EXPECT_EQ(told(), json::array()) << "it recovered";
  steps(131, 150, 300);
  EXPECT_EQ(told().size(), 1);
}

TEST_F(News, ARunThatWasSlowWhenOneLookedFirstIsNotTold) {
  steps(5, 80, 1000);
  steps(81, 96, 450);
  EXPECT_EQ(told(), json::array());
  append_text(run_ / "metrics.jsonl", "{\"step\":97,\"loss\":2.0,\"tokens_per_s\":null}\n");
  steps(98, 98, 450);
  EXPECT_EQ(told(), json::array());
}

TEST_F(News, NeitherFewStepsNorAShortPauseMakeARunSlow) {
  EXPECT_EQ(told(), json::array());
  steps(5, 40, 1000);
  steps(41, 56, 100);
  EXPECT_EQ(told(), json::array()) << "too few to know what is usual";
  steps(57, 200, 1000);
  EXPECT_EQ(told(), json::array());
  steps(201, 207, 10);
  EXPECT_EQ(told(), json::array()) << "most of the last 16 were as usual";
}

class UrgentNews : public News {
 protected:
  UrgentNews() : News(RunNews::urgent_kinds()) {}
};

TEST_F(UrgentNews, LeavesOutWhatIsNotAskedFor) {
  EXPECT_EQ(told(), json::array());
  append_event(run_, "local_saved", {{"step", 3}});
  append_event(run_, "corrupted", {{"step", 3}, {"tensor", "w"}});
  const json came = told();
  ASSERT_EQ(came.size(), 1);
  EXPECT_EQ(came[0]["text"], "first: corrupted at step 3: tensor w");
}

TEST(RunNews, RefusesKindsThatThereAreNot) {
  try {
    const RunNews news({"failed", "faild"});
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_SAYS(std::string(e.what()), "\"faild\": no event has this name; there are running, stalled");
  }
}

// Every event that docs/operations.md names can be asked for, every state, and no other.
TEST(RunNews, KnowsTheEventsOfTheDocuments) {
  std::set<std::string> documented;
  bool is_table = false;
  for (const std::string& line : lines_of(testing::slurp(fs::path(testing::kSourceDir) / "docs/operations.md"))) {
    if (line.starts_with("| event |")) is_table = true;
    if (is_table && line.empty()) break;
    if (!is_table || !line.starts_with("| `")) continue;
    std::string names = line.substr(2, line.find(" | ") - 2);
    for (size_t at = 0; (at = names.find('`', at)) != std::string::npos;) {
      const size_t end = names.find('`', at + 1);
      documented.insert(names.substr(at + 1, end - at - 1));
      at = end + 1;
    }
  }
  EXPECT_GT(documented.size(), 10);
  for (const std::string& kind : documented)
    EXPECT_NE(std::find(RunNews::all_kinds().begin(), RunNews::all_kinds().end(), kind), RunNews::all_kinds().end())
        << kind;
  for (const std::string& state : run_status_names()) documented.insert(state);
  documented.insert({"stalled", "slow"});
  for (const std::string& kind : RunNews::all_kinds()) EXPECT_EQ(documented.count(kind), 1) << kind;
  for (const std::string& kind : RunNews::urgent_kinds())
    EXPECT_NE(std::find(RunNews::all_kinds().begin(), RunNews::all_kinds().end(), kind), RunNews::all_kinds().end())
        << kind;
}

// `weft watch` runs the command, one event after the other, with the event's JSON as its input.
TEST(WatchOnEvent, RunsTheCommand) {
  TempDir dir;
  const fs::path run = make_run(dir / "first", {.train_iters = 9}), heard = dir / "heard";
  append_attempt(run, {.began_s = 1});
  testing::Process watch({.args = {"watch", run, "--events", "spike,nonfinite", "--on-event",
                                   fmt::format("cat >>{}; echo end >>{}; exit 3", heard.string(), heard.string())}});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto lines = [&] { return fs::exists(heard) ? lines_of(testing::slurp(heard)) : std::vector<std::string>(); };
  append_event(run, "spike", {{"step", 0}});  // so that there is always something to tell behind the first look
  for (int64_t step = 1; lines().size() < 4 && std::chrono::steady_clock::now() < until; ++step) {
    append_event(run, "hang", {{"step", step}});
    append_event(run, "spike", {{"step", step}});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::vector<std::string> all = lines();
  ASSERT_GE(all.size(), 4);
  const json first = json::parse(all[0]), second = json::parse(all[2]);
  EXPECT_EQ(first["event"], "spike");
  EXPECT_EQ(all[1], "end");
  EXPECT_EQ(second["step"].get<int64_t>(), first["step"].get<int64_t>() + 1) << "in their order, none left out";
  watch.send(SIGTERM);
  const testing::Finished ended = watch.wait();
  EXPECT_EQ(ended.status, 0);
  EXPECT_SAYS(ended.err, "note: the command of --on-event: ended with status 3, for \"first: spike at step");
}

TEST(WatchOnEvent, RefusesKindsWithoutACommand) {
  TempDir dir;
  const fs::path run = make_run(dir / "first");
  const testing::Finished ended = testing::weft({"watch", run, "--events", "spike"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_SAYS(ended.err, "--events says which events --on-event gets: name its command too");
}

}  // namespace
}  // namespace weft
