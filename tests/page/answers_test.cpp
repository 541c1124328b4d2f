// What the page is told: every number is one that the run's files say; hostile folders; Prometheus and the dashboard.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "apps/program.h"
#include "page/watched_runs.h"
#include "places.h"
#include "weft/apps/watch.h"
#include "weft/base/error.h"
#include "weft/base/version.h"
#include "weft/history/attempt_file.h"
#include "weft/page/access.h"
#include "weft/page/machine_look.h"
#include "weft/page/page_files.h"
#include "weft/page/prometheus.h"
#include "weft/page/run_json.h"
#include "weft/records/clock.h"
#include "weft/records/events.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::append_text;
using testing::asked;
using testing::lines_of;
using testing::MadeRun;
using testing::make_run;
using testing::OwnedRun;
using testing::spill;
using testing::TempDir;
using testing::watched;

void let_be_old(const fs::path& file) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(3));
}

class Page : public ::testing::Test {
 protected:
  TempDir dir_;
};

TEST_F(Page, TellsOfARunWhatItsFilesSay) {
  const fs::path run = make_run(dir_ / "first", {.train_iters = 10, .held_out = {{2, 1.5}, {4, 1.75}}});
  testing::make_saved(run, 4, 1.75);
  append_text(run / "metrics.jsonl",
              to_json(StepRecord{.step = 5,
                                 .loss = 2,
                                 .grad_norm = 3,
                                 .lr = 0.25,
                                 .tokens_per_s = 300,
                                 .step_time_s = 2,
                                 .mfu = 0.5,
                                 .memory_bytes = 1000,
                                 .data_s = 0.25,
                                 .waits_s = {{"tp", 0.5}, {"world", 0.125}},
                                 .eval_s = 4,
                                 .save_s = 8}) +
                  "\n" + to_json(TasksRecord{.step = 5, .results = {{"piqa.acc", 0.5}, {"piqa.acc_stderr", 0.01}}}) +
                  "\n");
  append_attempt(run, {.began_s = 100, .weft = kVersion, .host = "node", .machine = "cpu", .ranks = 4});
  append_attempt_end(run, {.time_s = 150, .status = 88, .reason = "the loss of step 6 is not finite"});
  append_event(run, "spike", {{"step", 3}, {"loss", 9.5}});

  LivePage page(watched({run}));
  const json told = asked(page, "/api/run", {{"run", "0"}});
  EXPECT_EQ(told["name"], "first");
  EXPECT_EQ(told["state"], "failed");
  EXPECT_EQ(told["reason"], "the loss of step 6 is not finite");
  EXPECT_EQ(told["step"], 5);
  EXPECT_EQ(told["total"], 10);
  EXPECT_TRUE(told["eta_s"].is_null()) << "nothing runs";
  EXPECT_EQ(told["began"], 100);
  EXPECT_EQ(told["running_s"], 50);
  EXPECT_EQ(told["latest"], json::parse(lines_of(testing::slurp(run / "metrics.jsonl"))[6]));
  EXPECT_EQ(told["held_out"]["loss"], 1.75);
  EXPECT_EQ(told["held_out"]["step"], 4);
  EXPECT_EQ(told["best_held_out"], (json{{"step", 2}, {"loss", 1.5}}));
  EXPECT_EQ(told["tasks"], json::array({{{"name", "piqa.acc"}, {"value", 0.5}, {"stderr", 0.01}, {"step", 5}}}));
  // Steps of 3, 1, 1, 1 and 2 s.
  EXPECT_EQ(told["time"], (json{{"steps", 5},
                                {"step_s", 8.0},
                                {"data_s", 0.25},
                                {"waits_s", {{"tp", 0.5}, {"world", 0.125}}},
                                {"eval_s", 4.0},
                                {"save_s", 8.0},
                                {"compute_s", 8 - 0.25 - 0.625}}));
  EXPECT_EQ(told["speed"]["tokens_per_s"], (3 * 100 + 3 * 200 + 2 * 300) / 8.0);
  EXPECT_EQ(told["speed"]["mfu"], 0.125);
  EXPECT_EQ(told["memory"]["used_bytes"], 1000);
  EXPECT_EQ(told["attempts"][0]["status"], 88);
  EXPECT_EQ(told["attempts"][0]["ranks"], 4);
  EXPECT_EQ(told["attempts"][0]["from_step"], 0);
  EXPECT_EQ("weft " + told["weft"].get<std::string>(), kVersion);
  EXPECT_EQ("weft " + asked(page, "/api/runs")["weft"].get<std::string>(), kVersion);
  EXPECT_EQ(told["events"][0]["event"], "spike");
  EXPECT_EQ(told["events"][0]["loss"], 9.5);
  EXPECT_EQ(told["checkpoints"][0]["held_out_loss"], 1.75);
  EXPECT_GT(told["checkpoints"][0]["bytes"], 0);
  EXPECT_NEAR(told["checkpoints"][0]["time"].get<double>(), wall_time_s(), 60);
  EXPECT_EQ(told["layout"]["dp"], 1);
  EXPECT_EQ(told["recipe"]["train.train_iters"], "10");
  EXPECT_EQ(told["problems"], json::array());
  EXPECT_TRUE(told["price"].is_null());

  const json curves = asked(page, "/api/curves", {{"names", "loss,held_out.loss,nothing"}, {"from", "2"}, {"to", "4"}});
  EXPECT_EQ(curves["curves"][0]["steps"], json({2, 3, 4}));
  EXPECT_EQ(curves["curves"][0]["values"], json({3.5, 3.0, 2.5}));
  EXPECT_EQ(curves["curves"][1]["values"], json({1.5, 1.75}));
  EXPECT_EQ(curves["curves"][1]["kind"], "held_out");
  EXPECT_EQ(curves["curves"][2]["values"], json::array());
  EXPECT_EQ(curves["last_step"], 5);
  std::map<std::string, json> last;
  const json names = asked(page, "/api/names");
  for (const json& name : names["names"]) last[name["name"]] = name["last"];
  EXPECT_EQ(last["waits_s.tp"], 0.5);
}

TEST_F(Page, HasAMapOfEachNumberOfTensorsThatWasRecorded) {
  const fs::path run = make_run(dir_ / "first");
  append_text(run / "grad_norms.jsonl", "{\"grad_norm\":{\"q\":3.5},\"step\":1}\n");
  append_text(run / "weight_norms.jsonl",
              "{\"step\":1,\"update_ratio\":{\"q\":0.25},\"weight_norm\":{\"q\":8.0}}\n"
              "{\"step\":4,\"update_ratio\":{\"q\":0.5},\"weight_norm\":{\"q\":16.0}}\n");
  LivePage page(watched({run, make_run(dir_ / "second")}));
  const auto map = [&](const std::string& of) { return asked(page, "/api/heat", {{"run", "0"}, {"of", of}}); };
  EXPECT_EQ(map("grad_norm")["values"], json::parse("[[3.5]]"));
  EXPECT_EQ(asked(page, "/api/heat")["values"], json::parse("[[3.5]]"));
  EXPECT_EQ(map("weight_norm")["values"], json::parse("[[8.0,16.0]]"));
  const json ratios = map("update_ratio");
  EXPECT_EQ(ratios["of"], "update_ratio");
  EXPECT_EQ(ratios["names"], json({"q"}));
  EXPECT_EQ(ratios["values"], json::parse("[[0.25,0.5]]"));
  EXPECT_EQ(ratios["steps"], json({1, 4}));
  EXPECT_EQ(ratios["ends"], json({1, 4}));
  const json none = asked(page, "/api/heat", {{"run", "1"}, {"of", "weight_norm"}});
  EXPECT_EQ(none["available"], false);
  EXPECT_SAYS(none["reason"].get<std::string>(), "train.log_weight_norms");
}

TEST_F(Page, TellsOfEachStateARunCanBeIn) {
  const fs::path finished = make_run(dir_ / "finished"), stopped = make_run(dir_ / "stopped", {.train_iters = 9});
  const fs::path lost = make_run(dir_ / "lost", {.train_iters = 9}), runs = make_run(dir_ / "runs", {.train_iters = 9});
  testing::make_saved(finished, 4, 1.75);
  append_attempt(stopped, {.began_s = 1});
  append_attempt_end(stopped, {.time_s = 2, .status = 130});
  append_attempt(lost, {.began_s = 1});
  append_attempt(runs, {.began_s = 1});
  LivePage page(watched({finished, stopped, lost, runs, dir_ / "not-there"}));
  const OwnedRun owner(runs);
  const auto states = [&] {
    std::vector<std::string> all;
    const json told = asked(page, "/api/runs");
    for (const json& run : told["runs"]) all.push_back(run["state"]);
    return all;
  };
  EXPECT_EQ(states(), (std::vector<std::string>{"finished", "stopped", "lost", "running", "away"}));
  const json run = asked(page, "/api/run", {{"run", "3"}});
  EXPECT_EQ(run["eta_s"], 5 * (3 + 1 + 1 + 1) / 4.0);
  let_be_old(runs / "metrics.jsonl");
  EXPECT_EQ(states()[3], "stalled");
  EXPECT_SAYS(asked(page, "/api/run", {{"run", "3"}})["reason"].get<std::string>(), "no record for 3:00:0");
}

TEST_F(Page, FollowsARunThatGoesBack) {
  const fs::path run = make_run(dir_ / "first");
  LivePage page(watched({run}));
  int64_t seen = 0;
  const std::string first = page.news(seen);
  EXPECT_SAYS(first, "\"step\":4");
  const auto generation = json::parse(first)["runs"][0]["generation"].get<int64_t>();
  EXPECT_EQ(page.news(seen), "");
  MetricsLog log(run / "metrics.jsonl", 1);
  log.append(StepRecord{.step = 2, .loss = 77});
  const json news = json::parse(page.news(seen))["runs"][0];
  EXPECT_EQ(news["generation"], generation + 1);
  EXPECT_EQ(asked(page, "/api/names")["generation"], generation + 1);
  EXPECT_EQ(news["step"], 2);
  EXPECT_EQ(news["latest"]["loss"], 77);
  EXPECT_EQ(asked(page, "/api/curves", {{"names", "loss"}})["curves"][0]["values"], json({4.0, 77.0}));
}

TEST_F(Page, TellsFromWhichStepAttemptsBeganWhereThatIsKnown) {
  const fs::path run = make_run(dir_ / "first");
  for (const double began : {100.0, 200.0, 300.0}) append_attempt(run, {.began_s = began});
  // Of the second attempt, and of none of them: nothing is to be guessed.
  append_text(run / "events.jsonl",
              "{\"event\":\"started\",\"time\":150,\"newest_step\":\"x\"}\n"
              "{\"event\":\"started\",\"time\":199.5,\"attempt\":1,\"newest_step\":2}\n"
              "{\"event\":\"started\",\"time\":400,\"newest_step\":4}\n{\"event\":\"started\"}\n");
  LivePage page(watched({run}));
  const json attempts = asked(page, "/api/run")["attempts"];
  EXPECT_EQ(attempts[0]["from_step"], 0);
  EXPECT_EQ(attempts[1]["from_step"], 2);
  EXPECT_TRUE(attempts[2]["from_step"].is_null());
}

TEST_F(Page, LooksIntoCheckpointsSomeAtATime) {
  const fs::path run = make_run(dir_ / "first", {.train_iters = 99});
  for (int step = 1; step <= 40; ++step) testing::make_saved(run, step);
  RunView view(run, "first");
  view.refresh(wall_time_s(), 1 << 20);
  EXPECT_TRUE(view.has_more());
  EXPECT_EQ(view.step(), 40) << "the newest come first";
  for (int i = 0; i < 2; ++i) view.refresh(wall_time_s(), 1 << 20);
  EXPECT_FALSE(view.has_more());
  std::vector<int64_t> steps;
  for (const CheckpointFacts& c : view.facts().checkpoints) steps.push_back(c.step);
  ASSERT_EQ(steps.size(), 40u);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
}

TEST_F(Page, TellsEachViewerTheTimeOfNow) {
  LivePage page(watched({make_run(dir_ / "first")}));
  int64_t one = 0, other = 0;
  const auto time_of = [&](int64_t& seen) { return json::parse(page.news(seen))["now"].get<double>(); };
  const double first = time_of(one);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(time_of(other), first);
}

TEST_F(Page, HasCurvesWhoseNamesHaveCommas) {
  const fs::path run = make_run(dir_ / "first");
  append_text(run / "metrics.jsonl", "{\"step\":5,\"loss\":1,\"a,b\":2}\n");
  LivePage page(watched({run}));
  const auto names = [&](const LivePage::Params& params) {
    std::vector<std::string> all;
    const json told = asked(page, "/api/curves", params);
    for (const json& curve : told["curves"]) all.push_back(curve["name"]);
    return all;
  };
  EXPECT_EQ(names({{"names", "loss,lr"}}), (std::vector<std::string>{"loss", "lr"}));
  EXPECT_EQ(names({{"names", "a,b"}}), (std::vector<std::string>{"a,b"}));
  EXPECT_EQ(names({{"names", "loss"}, {"names", "a,b"}, {"names", "loss"}}), (std::vector<std::string>{"loss", "a,b"}));
}

TEST_F(Page, LooksAtEachRunAtOnceHoweverLongOneIs) {
  const fs::path longest = make_run(dir_ / "long"), second = make_run(dir_ / "second");
  std::string text;
  for (int step = 5; step <= 60'000; ++step) text += "{\"step\":" + std::to_string(step) + ",\"loss\":2.5}\n";
  append_text(longest / "metrics.jsonl", text);
  LivePage page(watched({longest, second}));
  for (int tries = 0; tries < 100 && asked(page, "/api/run")["loaded"] != 1.0; ++tries)
    EXPECT_EQ(asked(page, "/api/run", {{"run", "1"}})["step"], 4);
  EXPECT_EQ(asked(page, "/api/run")["step"], 60'000);
}

TEST_F(Page, PlansOnlyUntilItIsStopped) {
  LivePage::Spec spec = watched({make_run(dir_ / "first")});
  spec.plan = [](const Recipe&, const std::atomic<bool>& stops) {
    while (!stops) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    throw Error("stopped");
    return nlohmann::ordered_json();
  };
  LivePage page(std::move(spec));
  std::thread viewer([&] { EXPECT_EQ(asked(page, "/api/plan")["available"], false); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  page.stop();
  viewer.join();
}

TEST_F(Page, LetsNoRunWaitForALargePlan) {
  Recipe recipe;
  recipe.run.dir = "runs/large";
  recipe.parallel.dp = kMostRanksInRun + 1;
  const auto error = [&](bool in_a_run) {
    return testing::error_of([&] { page_of_runs({dir_ / "first"}, in_a_run).plan(recipe, false); });
  };
  EXPECT_SAYS(error(true), "weft watch runs/large");
  EXPECT_EQ(error(false).find("weft watch"), std::string::npos);
}

TEST_F(Page, HasAnotherGenerationInEachServer) {
  const fs::path run = make_run(dir_ / "first");
  const auto generation = [&] {
    LivePage page(watched({run}));
    return asked(page, "/api/run")["generation"].get<int64_t>();
  };
  const int64_t first = generation();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(generation(), first) << "a page that stayed open would keep points that are gone";
}

TEST_F(Page, AnswersOthersWhileAPriceIsLookedUp) {
  LivePage::Spec spec = watched({make_run(dir_ / "first")});
  LivePage* page = nullptr;
  std::string meanwhile;
  spec.price_per_hour = [&](const Recipe&) {
    meanwhile = page->answer("/api/runs", {}).body;  // would wait for itself, or throw
    return std::optional(2.0);
  };
  LivePage made(std::move(spec));
  page = &made;
  EXPECT_EQ(asked(made, "/api/run")["price"]["per_hour"], 2.0);
  EXPECT_SAYS(meanwhile, "\"first\"");
}

TEST_F(Page, DoesNotWaitForAClusterThatIsNoFile) {
  ASSERT_EQ(::mkfifo((dir_ / "pipe.toml").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", dir_ / "endless.toml");
  spill(dir_ / "long.toml", std::string(2 << 20, '#'));
  const LivePage::Spec spec = page_of_runs({dir_ / "first"});
  for (const char* name : {"pipe.toml", "endless.toml", "long.toml"}) {
    Recipe recipe;
    recipe.fleet.cluster = (dir_ / name).string();
    EXPECT_FALSE(spec.price_per_hour(recipe).has_value()) << name;
  }
}

TEST_F(Page, RefusesQuestionsThatMakeNoSense) {
  LivePage page(watched({make_run(dir_ / "first")}));
  const auto status = [&](const std::string& path, const LivePage::Params& params = {}) {
    const PageAnswer answer = page.answer(path, params);
    if (answer.status != 200) { EXPECT_TRUE(json::parse(answer.body).contains("error")); }
    return answer.status;
  };
  EXPECT_EQ(status("/api/run", {{"run", "1"}}), 400);
  EXPECT_EQ(status("/api/run", {{"run", "-1"}}), 400);
  EXPECT_EQ(status("/api/run", {{"run", "0x"}}), 400);
  EXPECT_EQ(status("/api/run", {{"run", "99999999999999999999"}}), 400);
  EXPECT_EQ(status("/api/curves"), 400);
  EXPECT_EQ(status("/api/curves", {{"names", "loss"}, {"points", "4001"}}), 400);
  EXPECT_EQ(status("/api/curves", {{"names", "loss"}, {"from", "nan"}}), 400);
  EXPECT_EQ(status("/api/heat", {{"of", "loss"}}), 400);
  EXPECT_EQ(status("/etc/passwd"), 404);
  EXPECT_EQ(status("/../first/recipe.toml"), 404);
  EXPECT_EQ(status("/api/runs"), 200);
  EXPECT_EQ(status("/"), 200);
  if (page_files().empty()) { EXPECT_SAYS(page.answer("/", {}).body, "esbuild was missing"); }
}

TEST_F(Page, IsWholeWhateverAFolderHolds) {
  const fs::path run = dir_ / "<script>alert(1)";
  fs::create_directories(run / "checkpoints/step-3");
  fs::create_directory_symlink("/", run / "checkpoints/step-9");
  spill(run / "recipe.toml", "# weft wrote this\n[model\npath = 3\n\xff");
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  spill(run / "metrics.jsonl", "{\"step\":1,\"loss\":\"x\",\"a\":" + deep + "}\n" + deep +
                                   "\n{\"step\":2,\"loss\":{\"loss\":1},\"lr\":null,\"eval\":3}\nnull\n\n" +
                                   "{\"step\":3,\"eval\":{\"loss\":[1]}}\n{\"step\":2,\"loss\":1}\n" +
                                   std::string(300'000, 'x'));
  spill(run / "events.jsonl",
        "{\"event\":\"<b>\"}\n{\"event\":3}\n{\"event\":\"deep\",\"a\":" + deep + "}\n" + deep + "\n");
  spill(run / "attempts.jsonl", "{\"attempt\":\"begun\",\"time\":\"x\",\"ranks\":1e300,\"host\":\"<i>\"}\nx\n");
  spill(dir_ / "secret", "{\"event\":\"secret\"}\n");
  const fs::path links = dir_ / "links";
  fs::create_directory(links);
  fs::create_symlink(dir_ / "secret", links / "events.jsonl");
  fs::create_symlink("/etc/passwd", links / "recipe.toml");
  ASSERT_EQ(::mkfifo((links / "metrics.jsonl").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((links / "attempts.jsonl").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((links / "grad_norms.jsonl").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((links / "weight_norms.jsonl").c_str(), 0600), 0);
  for (const char* file : {"traffic.json", "trace.json", "samples.jsonl"})
    ASSERT_EQ(::mkfifo((links / file).c_str(), 0600), 0);

  LivePage page(watched({run, links}));
  for (const char* number : {"0", "1"})
    for (const char* path :
         {"/api/runs", "/api/run", "/api/names", "/api/heat", "/api/traffic", "/api/trace", "/api/plan"})
      EXPECT_EQ(page.answer(path, {{"run", number}}).status, 200) << path;
  for (const MapKind& kind : kMapKinds)
    EXPECT_EQ(page.answer("/api/heat", {{"run", "1"}, {"of", std::string(kind.key)}}).status, 200) << kind.key;
  EXPECT_EQ(page.answer("/api/curves", {{"names", "loss,lr,<script>"}}).status, 200);
  const json told = asked(page, "/api/run");
  EXPECT_EQ(told["name"], "<script>alert(1)");
  EXPECT_EQ(told["state"], "unreadable");
  EXPECT_EQ(told["step"], 3);
  EXPECT_EQ(told["events"].size(), 1u);
  EXPECT_EQ(told["problems"].size(), 4u) << told["problems"];
  EXPECT_EQ(told["checkpoints"].size(), 1u) << "a link is no checkpoint";
  const json linked = asked(page, "/api/run", {{"run", "1"}});
  EXPECT_EQ(linked["events"], json::array());
  EXPECT_EQ(linked["problems"].dump().find("root:"), std::string::npos);
  EXPECT_EQ(page.answer("/metrics", {}).status, 200);
}

TEST_F(Page, NamesRunsByAsMuchOfTheirPathsAsTheyNeed) {
  EXPECT_EQ(names_of_runs({"/a/b/first", "/a/b/second/"}), (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(names_of_runs({"/a/b/first", "/a/c/first"}), (std::vector<std::string>{"b/first", "c/first"}));
  EXPECT_EQ(names_of_runs({"/a/\xff", "/a/\xfe"}),
            (std::vector<std::string>{"a/\xef\xbf\xbd (0)", "a/\xef\xbf\xbd (1)"}))
      << "else Prometheus would have one series twice";
  EXPECT_EQ(names_of_runs({"/a/first", "/a/first"}), (std::vector<std::string>{"a/first (0)", "a/first (1)"}));
}

TEST(MachineLook, TellsRatesOfWhatTheKernelCounts) {
  TempDir root;
  const auto write = [&](const std::string& file, const std::string& text) {
    fs::create_directories((root / file).parent_path());
    spill(root / file, text);
  };
  write("proc/stat", "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 5\n");
  write("proc/loadavg", "1.50 0.25 0.75 1/2 3\n");
  write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable:   250 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n");
  write("proc/pressure/memory", "some avg10=2.50 avg60=0.00 avg300=0.00 total=1\n");
  write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
  write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "10000000\n");
  write("sys/class/powercap/intel-rapl:0/energy_uj", "9000000\n");
  write("sys/class/hwmon/hwmon0/name", "coretemp\n");
  write("sys/class/hwmon/hwmon0/temp1_input", "55500\n");
  write("sys/class/hwmon/hwmon0/temp1_label", "Package id 0\n");
  write("sys/block/sda/stat", "1 2 10 3 4 5 20 6\n");
  write("sys/class/net/eth0/statistics/rx_bytes", "1000\n");
  write("sys/class/net/eth0/statistics/tx_bytes", "2000\n");
  MachineLook look(root.path());
  const auto first = look.look(10);
  EXPECT_EQ(first["cores"], 2);
  EXPECT_TRUE(first["busy"].is_null());
  EXPECT_EQ(first["load"], nlohmann::ordered_json({1.5, 0.25, 0.75}));
  EXPECT_EQ(first["memory"]["available_bytes"], 250 * 1024);
  EXPECT_EQ(first["memory"]["swap_used_bytes"], 6 * 1024);
  EXPECT_EQ(first["pressure"][0]["some_10s"], 2.5);
  EXPECT_EQ(first["temperatures"][0]["name"], "coretemp Package id 0");
  EXPECT_EQ(first["temperatures"][0]["celsius"], 55.5);
  write("proc/stat", "cpu  150 0 150 900 0 0 0 0 0 0\ncpu0 1\ncpu1 1\n");
  write("sys/class/powercap/intel-rapl:0/energy_uj", "1000000\n");  // it has begun anew from 0
  write("sys/block/sda/stat", "1 2 30 3 4 5 24 6\n");
  write("sys/class/net/eth0/statistics/rx_bytes", "3000\n");
  EXPECT_EQ(look.look(10.5)["load"], first["load"]) << "not looked at again so soon";
  const auto second = look.look(12);
  EXPECT_EQ(second["busy"], 0.5);
  EXPECT_EQ(second["energy"][0]["watts"], 1);
  EXPECT_EQ(second["devices"][0]["read_bytes_per_s"], 20 * 512 / 2);
  EXPECT_EQ(second["devices"][0]["written_bytes_per_s"], 4 * 512 / 2);
  EXPECT_EQ(second["network"][0]["received_bytes_per_s"], 1000);
}

std::string metrics_of(const std::vector<fs::path>& runs) {
  LivePage page(watched(runs));
  return page.answer("/metrics", {}).body;
}

TEST(Prometheus, HasWhatTheRunsFilesSay) {
  TempDir dir;
  const fs::path run = make_run(dir / "first", {.held_out = {{2, 1.5}, {4, 1.75}}});
  append_text(run / "metrics.jsonl", to_json(StepRecord{.step = 5,
                                                        .loss = 2.25,
                                                        .grad_norm = std::nan(""),
                                                        .tokens_per_s = 100,
                                                        .step_time_s = 2,
                                                        .waits_s = {{"tp", 0.5}},
                                                        .terms = {{"kl", 0.125}}}) +
                                         "\n");
  append_event(run, "spike", {});
  append_event(run, "spike", {});
  testing::make_saved(run, 4, 1.75);
  const std::string text = metrics_of({run});
  for (const char* line :
       {"weft_loss_nats{run=\"first\"} 2.25", "weft_gradient_norm{run=\"first\"} NaN",
        "weft_steps_done{run=\"first\"} 5", "weft_steps_wanted{run=\"first\"} 4",
        "weft_held_out_loss_nats{run=\"first\"} 1.75", "weft_held_out_loss_best_nats{run=\"first\"} 1.5",
        "weft_record_value{run=\"first\",name=\"kl\"} 0.125", "weft_events_total{run=\"first\",event=\"spike\"} 2",
        "weft_run_wait_seconds_total{run=\"first\",axis=\"tp\"} 0.5",
        "weft_run_seconds_total{run=\"first\",part=\"compute\"} 7.5", "weft_run_tokens_total{run=\"first\"} 1100",
        "weft_run_steps_recorded_total{run=\"first\"} 5", "weft_run_state{run=\"first\",state=\"finished\"} 1",
        "weft_run_state{run=\"first\",state=\"failed\"} 0"})
    EXPECT_SAYS(text, std::string("\n") + line + "\n");
}

TEST(Prometheus, KeepsToItsFormatWhateverNamesAre) {
  TempDir dir;
  const fs::path run = make_run(dir / "a\"b\\c\n<script>");
  append_text(run / "metrics.jsonl", "{\"step\":5,\"a\\\"}\\n# TYPE\":1}\n");
  spill(run / "events.jsonl", "{\"event\":\"x\\\"\\n\"}\n");
  const std::string text = metrics_of({run, make_run(dir / "second")});
  EXPECT_SAYS(text, "run=\"a\\\"b\\\\c\\n<script>\"");
  const std::regex line(
      R"re(# (HELP|TYPE) weft_[a-z_]+ .+|weft_[a-z_]+\{([a-z]+="([^"\\\n]|\\[\\"n])*",?)+\} (NaN|[-+0-9.e]+))re");
  std::set<std::string> told, known;
  for (const MetricFamily& f : metric_families()) known.insert(f.name);
  for (const std::string& one : lines_of(text)) {
    EXPECT_TRUE(std::regex_match(one, line)) << one;
    if (one.starts_with("# TYPE ")) { EXPECT_TRUE(told.insert(one.substr(7, one.rfind(' ') - 7)).second) << one; }
  }
  for (const std::string& name : told) EXPECT_EQ(known.count(name), 1u) << name;
  EXPECT_EQ(label_value("\xff"), "\"\xef\xbf\xbd\"");
}

TEST(Prometheus, PassesPromtoolWhereThereIsOne) {
  TempDir dir;
  spill(dir / "metrics", metrics_of({make_run(dir / "first", {.held_out = {{2, 1.5}}})}));
  const testing::Finished f =
      testing::run({.args = {"-c", "command -v promtool >/dev/null || exit 99; promtool check metrics <" +
                                       (dir / "metrics").string()},
                    .program = "/bin/sh"});
  if (f.status == 99) GTEST_SKIP() << "promtool is not here (Debian: prometheus)";
  EXPECT_EQ(f.status, 0) << f.out << f.err;
}

TEST(Grafana, AsksForMetricsThatThereAre) {
  const std::string text = testing::slurp(fs::path(testing::kSourceDir) / "docs/grafana.json");
  const json dashboard = json::parse(text);
  std::set<std::string> known, used;
  for (const MetricFamily& f : metric_families()) known.insert(f.name);
  const std::regex name("weft_[a-z_]+");
  for (const json& panel : dashboard["panels"])
    for (const json& target : panel["targets"]) {
      const auto query = target["expr"].get<std::string>();
      std::sregex_iterator at(query.begin(), query.end(), name), end;
      EXPECT_NE(at, end) << query;
      for (; at != end; ++at) used.insert(at->str());
    }
  for (const std::string& one : used) EXPECT_EQ(known.count(one), 1u) << one;
  EXPECT_GT(used.size(), 12u);
  const std::string docs = testing::slurp(fs::path(testing::kSourceDir) / "docs/live.md");
  for (const std::string& one : known) EXPECT_SAYS(docs, "`" + one + "`");
}

TEST(PageAccess, KnowsTheNamesThatTheServerMayBeCalledBy) {
  for (const char* good :
       {"127.0.0.1", "127.0.0.1:80", "localhost:8080", "LOCALHOST", "[::1]:80", "10.0.0.7:1", "node-1", "Node-1:80"})
    EXPECT_TRUE(is_known_host(good, "127.0.0.1", "node-1")) << good;
  for (const char* bad : {"", "evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example",
                          "node-1.evil.example", "[::1", "x"})
    EXPECT_FALSE(is_known_host(bad, "127.0.0.1", "node-1")) << bad;
  EXPECT_TRUE(is_loopback("127.0.0.1") && is_loopback("127.8.0.1") && is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0") || is_loopback("::") || is_loopback("10.0.0.1") || is_loopback("127.evil"));
}

TEST(PageAccess, ComparesAndReadsTokens) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const char* other : {"", "abd", "ab", "abcc", "abcabc"}) {
    EXPECT_FALSE(equal_in_constant_time("abc", other));
    EXPECT_FALSE(equal_in_constant_time(other, "abc"));
  }
  EXPECT_EQ(cookie_in("a=1; weft_80=tok; b=2", "weft_80"), "tok");
  EXPECT_EQ(cookie_in("xweft_80=no;weft_8=no; weft_80=", "weft_80"), "");
  TempDir dir;
  const std::string file = (dir / "token").string();
  const std::string made = token_of_file(file);
  EXPECT_TRUE(is_token(made));
  EXPECT_EQ(token_of_file(file), made);
  EXPECT_NE(make_token(), make_token());
  fs::permissions(file, fs::perms::others_read, fs::perm_options::add);
  EXPECT_SAYS(testing::error_of([&] { token_of_file(file); }), "chmod 600");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  spill(file, "short\n");
  EXPECT_SAYS(testing::error_of([&] { token_of_file(file); }), "holds no token");
}

}  // namespace
}  // namespace weft
