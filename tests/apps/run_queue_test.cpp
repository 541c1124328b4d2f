// The queue of a machine's supervised runs, and what killed runs leave behind.
#include "weft/apps/run_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "apps/small_run.h"
#include "weft/apps/orphans.h"
#include "weft/base/descriptor.h"
#include "weft/base/error.h"
#include "weft/base/host_name.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;

// Which of them are to go on four cores, by name, in their order.
std::string turns_of(std::vector<QueuedRun> runs) {
  for (size_t i = 0; i < runs.size(); ++i) runs[i].number = int64_t(i) + 1, runs[i].of_cores = 4;
  take_turns(runs);
  std::string text;
  for (const QueuedRun& r : runs)
    if (r.has_turn) text += r.run;
  return text;
}

TEST(RunQueue, HigherPriorityGoesFirstAndThenWhoCameFirst) {
  EXPECT_EQ(turns_of({{.run = "a", .cores = 4}, {.run = "b", .cores = 4}}), "a");
  EXPECT_EQ(turns_of({{.run = "a", .cores = 4}, {.run = "b", .priority = 1, .cores = 4}}), "b");
  EXPECT_EQ(turns_of({{.run = "a", .cores = 4, .goes = true}, {.run = "b", .priority = 1, .cores = 4}}), "b");
  EXPECT_EQ(turns_of({{.run = "a", .cores = 4}, {.run = "b", .cores = 4, .goes = true}}), "b")
      << "an equal is not asked to give way, though it came later";
  EXPECT_EQ(turns_of({{.run = "a", .priority = -1, .cores = 1}, {.run = "b", .cores = 3}, {.run = "c", .cores = 1}}),
            "bc");
}

TEST(RunQueue, AsManyGoAsThereAreCoresForAndNoneOvertakes) {
  EXPECT_EQ(turns_of({{.run = "a", .cores = 2}, {.run = "b", .cores = 2}, {.run = "c", .cores = 1}}), "ab");
  EXPECT_EQ(turns_of({{.run = "a", .cores = 2, .goes = true}, {.run = "b", .cores = 3}, {.run = "c", .cores = 1}}), "a")
      << "c would keep b waiting for ever";
  EXPECT_EQ(turns_of({{.run = "a", .cores = 2, .goes = true},
                      {.run = "b", .cores = 2, .goes = true},
                      {.run = "c", .priority = 1, .cores = 2}}),
            "ca")
      << "of equals the last one gives way, and no more than are needed";
  EXPECT_EQ(turns_of({{.run = "a", .priority = 5, .cores = 3, .goes = true},
                      {.run = "b", .cores = 1, .goes = true},
                      {.run = "c", .priority = 3, .cores = 4}}),
            "ab")
      << "c would not get enough if b gave way";
}

class Places : public ::testing::Test {
 protected:
  std::unique_ptr<QueuePlace> place(const std::string& run, int64_t priority = 0) {
    return std::make_unique<QueuePlace>(dir_ / "queue", (dir_ / run).string(), priority);
  }
  size_t num_entries() {
    return size_t(std::distance(fs::directory_iterator(dir_ / "queue"), fs::directory_iterator())) - 1;  // the lock
  }
  static constexpr int64_t kAll = 4096;
  testing::TempDir dir_;
};

TEST_F(Places, AreTakenInTurnAndGivenBack) {
  auto a = place("a"), b = place("b"), c = place("c");
  EXPECT_TRUE(a->try_take(kAll));
  EXPECT_FALSE(b->try_take(kAll));
  EXPECT_FALSE(c->try_take(kAll));
  EXPECT_FALSE(a->who_needs_it());
  EXPECT_TRUE(a->try_take(kAll)) << "it has it already";
  ASSERT_EQ(runs_in_queue(dir_ / "queue").size(), 3u);
  EXPECT_EQ(runs_in_queue(dir_ / "queue")[1].run, (dir_ / "b").string());
  a.reset();
  EXPECT_FALSE(c->try_take(kAll));
  EXPECT_TRUE(b->try_take(kAll));
  b.reset();
  c.reset();
  EXPECT_EQ(num_entries(), 0u);
}

TEST_F(Places, AreGivenBackToOneOfHigherPriorityAndTheTurnIsKept) {
  auto low = place("low"), later = place("later"), high = place("high", 3);
  ASSERT_TRUE(low->try_take(kAll));
  EXPECT_FALSE(later->try_take(kAll));
  EXPECT_FALSE(high->try_take(kAll)) << "low has to save first";
  ASSERT_TRUE(low->who_needs_it());
  EXPECT_EQ(low->who_needs_it()->run, (dir_ / "high").string());
  low->give_back();
  EXPECT_FALSE(low->try_take(kAll));
  EXPECT_TRUE(high->try_take(kAll));
  EXPECT_FALSE(low->try_take(kAll));
  high.reset();
  EXPECT_FALSE(later->try_take(kAll));
  EXPECT_TRUE(low->try_take(kAll)) << "it came before the later one";
}

TEST_F(Places, OfAKilledSupervisorIsTaken) {
  auto a = place("a");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto killed = place("killed");
    const char taken = killed->try_take(kAll) ? 'y' : 'n';
    if (write(ready[1], &taken, 1) == 1) pause();
    _exit(1);
  }
  char taken = 'n';
  ASSERT_EQ(read(ready[0], &taken, 1), 1);
  EXPECT_EQ(taken, 'y');
  EXPECT_FALSE(a->try_take(kAll));
  EXPECT_TRUE(a->take_reclaimed().empty());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  testing::spill(dir_ / "queue/run-0.entry", "");  // of one that was killed before it was written
  EXPECT_TRUE(a->try_take(kAll));
  const std::vector<QueuedRun> reclaimed = a->take_reclaimed();
  ASSERT_EQ(reclaimed.size(), 2u);
  EXPECT_TRUE(std::any_of(reclaimed.begin(), reclaimed.end(), [&](const QueuedRun& r) {
    return r.run == (dir_ / "killed").string() && r.process == child;
  }));
  EXPECT_EQ(num_entries(), 1u);
  close(ready[0]), close(ready[1]);
}

TEST_F(Places, ThatSomebodyHasClearedAwayAreMadeAnew) {
  auto a = place("a"), b = place("b");
  ASSERT_TRUE(a->try_take(kAll));
  fs::remove_all(dir_ / "queue");
  EXPECT_THROW(a->who_needs_it(), FileError);
  EXPECT_THROW(b->try_take(kAll), FileError);
  fs::create_directory(dir_ / "queue");
  EXPECT_FALSE(a->who_needs_it());
  EXPECT_FALSE(b->try_take(kAll));
}

TEST_F(Places, BesideARunOfAnotherWeftAreRefusedAndItsFileIsNamed) {
  fs::create_directory(dir_ / "queue");
  const fs::path entry = dir_ / "queue/run-1.entry";
  testing::spill(entry, R"({"format": 1000})");
  const Descriptor held(open(entry.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0);
  const std::string error = testing::error_of<ConfigError>([&] { place("a"); });
  EXPECT_SAYS(error, entry.string());
  EXPECT_SAYS(error, "a process holds it: let that run end, or name another folder");
  EXPECT_EQ(error.find("that you may write to"), std::string::npos) << error;
  EXPECT_TRUE(fs::exists(entry));
}

TEST_F(Places, AreRefusedWhereTheyCannotBe) {
  testing::spill(dir_ / "queue", "");
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { place("a"); }), "queue\": ");
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { runs_in_queue(dir_ / "queue"); }), "is no folder");
  fs::remove(dir_ / "queue");
  auto a = place("a"), again = place("a/");
  ASSERT_TRUE(a->try_take(1));
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { again->try_take(1); }), "is in the queue already, by process ");
  EXPECT_EQ(runs_in_queue(dir_ / "queue").size(), 1u);
}

TEST(Orphans, AreProcessesWhoseSupervisorIsGone) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  const auto attempt_of = [](pid_t supervisor, const std::string& host = name_of_host()) {
    return testing::Command{.args = {fmt::format("WEFT_HEARTBEAT=/proc/{}/fd/5", supervisor),
                                     "WEFT_SUPERVISOR_HOST=" + host, "sleep", "100"},
                            .program = "env"};
  };
  testing::Process supervised(attempt_of(getpid())), elsewhere(attempt_of(gone, "elsewhere"));
  const auto says_so = [](const testing::Process& p) {
    const std::string environment = testing::slurp(fmt::format("/proc/{}/environ", p.id()));
    return environment.find("WEFT_HEARTBEAT=") != std::string::npos;
  };
  ASSERT_TRUE(testing::wait_until([&] { return says_so(supervised) && says_so(elsewhere); }));
  testing::Process orphan(attempt_of(gone));
  const testing::TempDir none;
  const pid_t expected = orphan.id();
  std::vector<pid_t> ended;
  ASSERT_TRUE(testing::wait_until([&] {
    const Orphans found = reclaim_orphans({.shared_memory = none.path(), .temporary = none.path(), .grace_s = 0});
    ended.insert(ended.end(), found.processes.begin(), found.processes.end());
    return !orphan.running();
  }));
  EXPECT_NE(std::find(ended.begin(), ended.end(), expected), ended.end());
  EXPECT_TRUE(supervised.running());
  EXPECT_TRUE(elsewhere.running()) << "that number is another process's there";
}

TEST(Orphans, AreFilesOfMpiThatNoProcessUses) {
  const testing::TempDir dir;
  const std::string of = fmt::format("{}.{}", name_of_host(), geteuid());
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  const fs::path left = dir / ("vader_segment." + of + ".5e0001.0"), used = dir / ("vader_segment." + of + ".5e0001.1");
  const fs::path young = dir / ("vader_segment." + of + ".5e0001.2");
  const fs::path others = dir / fmt::format("vader_segment.elsewhere.{}.5e0001.0", geteuid());
  const fs::path session = dir / fmt::format("ompi.{}/pid.{}", of, gone),
                 going = dir / fmt::format("ompi.{}/pid.{}", of, getpid());
  for (const fs::path& file : {left, used, young, others}) testing::spill(file, std::string(4096, 'x'));
  for (const fs::path& folder : {session, going}) fs::create_directories(folder / "0");
  for (const fs::path& one : {left, used, others, session, going})
    fs::last_write_time(one, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const int fd = open(used.c_str(), O_RDWR);
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  std::vector<std::string> removed =
      reclaim_orphans({.shared_memory = dir.path(), .temporary = dir.path(), .grace_s = 0}).files;
  munmap(mapped, 4096);
  std::sort(removed.begin(), removed.end());
  std::vector<std::string> expected{left.string(), session.string()};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(removed, expected);
  EXPECT_FALSE(fs::exists(left) || fs::exists(session));
  EXPECT_TRUE(fs::exists(used) && fs::exists(young) && fs::exists(others) && fs::exists(going));
}

// Runs of one thread on one core: one of them goes at a time.
class QueueOfRuns : public testing::SupervisedRun {
 protected:
  void SetUp() override {
    SupervisedRun::SetUp();
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  void TearDown() override {
    sched_setaffinity(0, sizeof before_, &before_);
    SupervisedRun::TearDown();
  }
  std::string queue() { return (dir_ / "queue").string(); }
  std::vector<std::string> queued(const std::string& name, std::vector<std::string> more = {}) {
    more.push_back("run.queue=" + queue());
    return words(name, more);
  }

 private:
  cpu_set_t before_ = {};
};

TEST_F(QueueOfRuns, ALowerOneSavesAndWaitsForAHigherOneAndComesToTheSameBits) {
  const std::string whole = whole_weights();
  fail_by("slow@step:0:3,slow@step:0:5,slow@step:0:7,slow@step:0:9");  // of the first attempt
  testing::Process low({.args = queued("low")});
  ASSERT_TRUE(testing::wait_until([&] { return records_of("low") >= 3; }));
  fail_by("");
  testing::Process high({.args = queued("high", {"run.priority=5"})});
  const Finished first = high.wait(), second = low.wait();
  ASSERT_EQ(first.status, 0) << first.err;
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(causes_of("low"), (std::vector<std::string>{"yielded", "finished"}));
  EXPECT_EQ(causes_of("high"), std::vector<std::string>{"finished"});
  const nlohmann::json ended = events_of("low", "ended")[0];
  EXPECT_EQ(ended["saved_step"], ended["step"]) << "no step is lost";
  ASSERT_EQ(events_of("low", "yielding").size(), 1u);
  EXPECT_EQ(events_of("low", "yielding")[0]["to"], (dir_ / "high").string());
  ASSERT_EQ(events_of("low", "queued").size(), 1u);
  EXPECT_EQ(events_of("low", "queued")[0]["behind"], std::vector<std::string>{(dir_ / "high").string()});
  ASSERT_EQ(events_of("low", "placed").size(), 2u);
  ASSERT_EQ(events_of("high", "finished").size(), 1u);
  EXPECT_LE(double(events_of("high", "finished")[0]["time"]), double(events_of("low", "placed")[1]["time"]));
  EXPECT_SAYS(second.err, "gives way to " + (dir_ / "high").string() + ", of priority 5");
  EXPECT_EQ(weights_of("low"), whole);
  EXPECT_EQ(weights_of("high"), whole);
}

TEST_F(QueueOfRuns, ThePlaceOfAKilledOneIsTakenAndItGoesOnLater) {
  const std::string whole = whole_weights();
  fail_by("hang@step:0:5");
  testing::Process killed({.args = queued("killed", {"run.priority=9"})});
  ASSERT_TRUE(testing::wait_until([&] { return records_of("killed") >= 5; }));
  fail_by("");
  const Finished twice = testing::weft(queued("killed"));
  EXPECT_EQ(twice.status, 2);
  EXPECT_SAYS(twice.err, "is in use by another weft, process ");
  testing::Process next({.args = queued("next")});
  ASSERT_TRUE(testing::wait_until([&] { return runs_in_queue(queue()).size() == 2; }));
  const Finished list = testing::weft({"runs", "queue", queue(), "--json"});
  const nlohmann::json runs = nlohmann::json::parse(list.out)["runs"];
  ASSERT_EQ(runs.size(), 2u) << list.out;
  EXPECT_EQ(runs[0]["state"], "goes");
  EXPECT_EQ(runs[1]["state"], "waits");
  EXPECT_EQ(runs[1]["run"], (dir_ / "next").string());
  EXPECT_SAYS(testing::weft({"runs", "queue", queue()}).out, (dir_ / "next").string());
  killed.send(SIGKILL);
  killed.wait();
  const Finished f = next.wait();
  ASSERT_EQ(f.status, 0) << f.err;
  std::vector<nlohmann::json> places = events_of("next", "reclaimed");  // and what other programs have left here
  std::erase_if(places, [](const nlohmann::json& e) { return !e.contains("place_of"); });
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0]["place_of"], (dir_ / "killed").string());
  ASSERT_EQ(testing::weft(queued("killed")).status, 0);
  EXPECT_EQ(weights_of("killed"), whole);
  EXPECT_EQ(testing::weft({"runs", "queue", queue()}).out, "no run is in this queue\n");
}

TEST_F(QueueOfRuns, OneThatWaitsIsStoppedAndLeaves) {
  QueuePlace other(queue(), (dir_ / "other").string(), 0);
  ASSERT_TRUE(other.try_take(1));
  testing::spill(dir_ / "queue/run-0.entry", "");  // of one that was killed before it was written
  testing::Process waits({.args = queued("r")});
  ASSERT_TRUE(testing::wait_until([&] { return runs_in_queue(queue()).size() == 2; }));
  waits.send(SIGTERM);
  const Finished f = waits.wait();
  EXPECT_SAYS(f.err, "takes " + queue() + "/run-0.entry out of the queue: it cannot be read, and no process has it");
  EXPECT_EQ(f.status, 75) << f.err;
  EXPECT_SAYS(f.err, "waits in the queue " + queue() + " for 1 core, behind " + (dir_ / "other").string());
  EXPECT_EQ(runs_in_queue(queue()).size(), 1u);
  EXPECT_FALSE(fs::exists(dir_ / "r"));
}

TEST_F(QueueOfRuns, WhatCannotBeQueuedIsRefused) {
  const Finished alone = testing::weft(words("r", {"run.priority=5"}));
  EXPECT_EQ(alone.status, 2);
  EXPECT_SAYS(alone.err, "run.priority = 5 says which run goes first in the queue of run.queue, which is empty");
  const Finished unsupervised = run("train", {"run.queue=" + queue()}, "r");
  EXPECT_EQ(unsupervised.status, 2);
  EXPECT_SAYS(unsupervised.err, "a run waits and gives way only under `weft supervise`");
  testing::spill(dir_ / "queue", "");
  const Finished no_folder = testing::weft(queued("r"));
  EXPECT_EQ(no_folder.status, 2);
  EXPECT_SAYS(no_folder.err, "name a folder of this machine that you may write to");
  EXPECT_EQ(testing::weft({"runs", "queue", queue()}).status, 2);
  EXPECT_FALSE(fs::exists(dir_ / "r"));
}

}  // namespace
}  // namespace weft
