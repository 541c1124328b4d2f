// How ranks as processes come to be and come to an end, where something is wrong: each ends, in time, with one message.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "mpi/train_case.h"
#include "weft/apps/launch.h"
#include "weft/apps/launcher_words.h"
#include "weft/apps/rank_processes.h"
#include "weft/apps/stop_signal.h"
#include "weft/base/host_name.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::train_words;
using testing::with;

using Clock = std::chrono::steady_clock;
double since_s(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }
void sleep_s(double s) { std::this_thread::sleep_for(std::chrono::duration<double>(s)); }

// --- what mpirun and the ranks write ---

TEST(LauncherWords, AnErrorThatARankTellsIsKeptAndTheFirstOneCounts) {
  const std::string text = "step 1\n" + record_of_start() + "step 2\n" +
                           record_of_error("train", "no bread\nand no butter") +
                           record_of_error("train, rank 1", "rank 0 has failed") + "step 3\n";
  for (size_t piece : {size_t{1}, size_t{7}, text.size()}) {
    LauncherWords words;
    std::string shown;
    for (size_t i = 0; i < text.size(); i += piece) shown += words.pass(text.substr(i, piece));
    EXPECT_EQ(shown + words.rest(), "step 1\nstep 2\nstep 3\n") << piece;
    EXPECT_TRUE(words.started());
    ASSERT_TRUE(words.error());
    EXPECT_EQ(words.error()->command, "train");
    EXPECT_EQ(words.error()->message, "no bread\nand no butter");
  }
}

TEST(LauncherWords, WhatIsNoRecordIsShownInTheEnd) {
  LauncherWords words;
  EXPECT_EQ(words.pass("a\x1e half a record") + words.rest(), "a\x1e half a record");
  EXPECT_FALSE(words.started());
  EXPECT_FALSE(words.error());
  LauncherWords marks;
  (void)marks.pass(record_of_error("train", "a path with \x1e and \x1f in it"));
  EXPECT_EQ(marks.error()->message, "a path with ? and ? in it");
}

TEST(LauncherWords, WhatMpirunSaysOfAbortsAndOfSignalsThatItForwardsIsNotShown) {
  const std::string dashes = std::string(74, '-') + "\n";
  const std::string noise =
      "mpirun: Forwarding signal 10 to job\n" + dashes +
      "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 2.\n" + dashes +
      "[a:12] 1 more process has sent help message help-mpi-api.txt / mpi-abort\n"
      "[a:12] Set MCA parameter \"orte_base_help_aggregate\" to 0 to see all help / error messages\n";
  const std::string own = "mpirunning\n[a:12] of its own trouble\n";
  for (size_t piece : {size_t{1}, size_t{5}, noise.size()}) {
    LauncherWords words;
    std::string shown;
    const std::string text = "begin\n" + noise + own + noise;
    for (size_t i = 0; i < text.size(); i += piece) shown += words.pass(text.substr(i, piece));
    EXPECT_EQ(shown + words.rest(), "begin\n" + own) << piece;
  }
}

TEST(StopSignal, ASecondInterruptOrTermEndsAtOnceButNotOneThatComesWithTheFirst) {
  EXPECT_TRUE(is_second_wish(SIGINT, 0.01));
  EXPECT_TRUE(is_second_wish(SIGTERM, 0.5));
  EXPECT_FALSE(is_second_wish(SIGTERM, 0.001)) << "`timeout` sends it twice";
  EXPECT_FALSE(is_second_wish(SIGTERM, 0)) << "after SIGHUP";
  EXPECT_FALSE(is_second_wish(SIGHUP, 10));
}

TEST(StoppedWatch, OnlyAProcessThatStaysStoppedIsNamed) {
  StoppedWatch watch(2);
  const std::vector<RankProcessHere> runs{{.id = 7, .stopped = false, .rank = 1}},
      stopped{{.id = 7, .stopped = true, .rank = 1}, {.id = 8, .stopped = false, .rank = 0}};
  EXPECT_EQ(watch.look(stopped), "");
  EXPECT_EQ(watch.look(stopped), "");
  EXPECT_EQ(watch.look(runs), "");
  EXPECT_EQ(watch.look(stopped), "");
  EXPECT_EQ(watch.look(stopped), "");
  EXPECT_EQ(watch.look(stopped),
            "rank 1 (process 7 on host " + name_of_host() + ") has been stopped by a signal for 2 s");
}

TEST(StoppedWatch, AProcessThatRunsBetweenTwoLooksIsNotNamed) {
  StoppedWatch watch(2);
  for (int64_t cpu = 0; cpu < 10; ++cpu)
    EXPECT_EQ(watch.look({{.id = 7, .stopped = true, .cpu = cpu, .rank = 1}}), "") << cpu;
  (void)watch.look({{.id = 7, .stopped = true, .cpu = 9, .rank = 1}});
  EXPECT_SAYS(watch.look({{.id = 7, .stopped = true, .cpu = 9, .rank = 1}}), "rank 1 (process 7 ");
}

TEST(StoppedWatch, TheTimeThatAProcessHasComputedIsKnown) {
  const auto mine = [] {
    const std::vector<RankProcessHere> all = processes_here();
    const auto me = std::find_if(all.begin(), all.end(), [](const auto& p) { return p.id == getpid(); });
    return me == all.end() ? -1 : me->cpu;
  };
  const int64_t before = mine();
  ASSERT_GE(before, 0);
  const clock_t until = std::clock() + CLOCKS_PER_SEC / 20;  // of the same time, 50 ms
  while (std::clock() < until) continue;
  EXPECT_GE(mine(), before + 3);
  EXPECT_LE(mine(), before + 100);
}

// --- jobs ---

Finished shell(const std::string& script, const std::vector<std::string>& words) {
  return testing::run({.args = with({"-c", script, testing::kProgram}, words), .program = "sh"});
}

// The message comes once, and last.
void expect_last_alone(const Finished& f, const std::string& message) {
  EXPECT_SAYS(f.err, message);
  EXPECT_EQ(f.err.find("error:"), f.err.rfind("error:")) << f.err;
  const size_t last = f.err.rfind("weft train: error: ");
  ASSERT_NE(last, std::string::npos) << f.err;
  EXPECT_LE(f.err.find(message, last), f.err.size()) << f.err;
  EXPECT_EQ(f.err.find("MPI_ABORT"), std::string::npos) << f.err;
  EXPECT_EQ(f.err.find('\x1e'), std::string::npos) << f.err;
}

TEST(Launcher, MpirunWithoutEnoughFilesIsRefusedByNumber) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  const Finished f = shell("ulimit -n 24; exec \"$0\" \"$@\"", train_words(dir, "run", "mpi"));
  EXPECT_EQ(f.status, 2) << f.err;
  expect_last_alone(f, "mpirun needs about 48 open files for 2 ranks, and 24 are allowed (ulimit -n)");
}

TEST(LauncherSlow, MpirunThatStartsNoRankIsEndedAfterTheTimeThatTheRecipeGives) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  spill(dir / "mpirun", "#!/bin/sh\nexec sleep 1000\n");
  fs::permissions(dir / "mpirun", fs::perms::owner_all);
  const auto began = Clock::now();
  const Finished f = shell("PATH=" + dir.path().string() + ":$PATH; exec \"$0\" \"$@\"",
                           with(train_words(dir, "run", "mpi"), {"run.start_timeout_minutes=0.02"}));
  EXPECT_EQ(f.status, 1) << f.err;
  EXPECT_LT(since_s(began), 10);
  expect_last_alone(f, "mpirun has not started a rank in 0.02 minutes (run.start_timeout_minutes), and was ended");
}

TEST(Launcher, ARecipeThatCannotRunIsRefusedBeforeThereIsAProcess) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  spill(dir / "mpirun", "#!/bin/sh\necho started >&2\nexit 3\n");
  fs::permissions(dir / "mpirun", fs::perms::owner_all);
  const Finished f = shell("PATH=" + dir.path().string() + ":$PATH; exec \"$0\" \"$@\"",
                           with(train_words(dir, "run", "mpi"), {"parallel.dp=1", "parallel.tp=3"}));
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_EQ(f.err.find("started"), std::string::npos) << f.err;
}

TEST(LauncherSlow, WhatOnlyARankFindsIsSaidOnceAndLast) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  ASSERT_EQ(testing::weft(train_words(dir, "run", "local")).status, 0);
  const Finished f = testing::weft(with(train_words(dir, "run", "mpi"), {"train.seed=99"}));
  EXPECT_EQ(f.status, 2) << f.err;
  expect_last_alone(f, "train.seed");
}

// A job without end that has begun to train: its launcher, mpirun and ranks.
struct Job {
  explicit Job(const TempDir& dir)
      : process({.args = with(train_words(dir, "run", "mpi"), {"train.train_iters=1000000"})}) {
    while (process.running() && slurp(dir / "run/metrics.jsonl").empty()) sleep_s(0.005);
    for (const RankProcessHere& p : below(process.id(), processes_here())) {
      if (p.parent == process.id()) mpirun = p.id;
      if (p.rank >= 0) ranks.push_back(p.id);
    }
  }
  testing::Process process;
  pid_t mpirun = -1;
  std::vector<pid_t> ranks;
};

// Whether the process still runs after a second. A zombie, which has ended and is not waited for yet, does not.
bool is_left(pid_t process) {
  for (int tries = 0; tries < 200; ++tries, sleep_s(0.005)) {
    const std::string stat = slurp("/proc/" + std::to_string(process) + "/stat");
    const size_t name_end = stat.rfind(") ");
    if (name_end == std::string::npos || stat.substr(name_end + 2, 1) == "Z") return false;
  }
  return true;
}

TEST(LauncherSlow, AKilledMpirunIsNotTakenForARankAndLeavesNone) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  Job job(dir);
  ASSERT_EQ(job.ranks.size(), 2u);
  kill(job.mpirun, SIGKILL);
  const Finished f = job.process.wait();
  EXPECT_EQ(f.status, 1) << f.err;
  expect_last_alone(f, "mpirun (process " + std::to_string(job.mpirun) + " on host ");
  EXPECT_SAYS(f.err, "which had started the ranks, was ended by signal 9");
  for (const pid_t rank : job.ranks) EXPECT_FALSE(is_left(rank)) << "rank " << rank;
}

TEST(LauncherSlow, TheSecondTermEndsRanksThatCannotSave) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  Job job(dir);
  ASSERT_EQ(job.ranks.size(), 2u);
  for (const pid_t rank : job.ranks) kill(rank, SIGSTOP);
  const auto began = Clock::now();
  job.process.send(SIGTERM);
  sleep_s(0.3);
  job.process.send(SIGTERM);
  const Finished f = job.process.wait();
  EXPECT_EQ(f.status, 130) << f.err;
  EXPECT_LT(since_s(began), 9);
  EXPECT_EQ(f.err.find("Forwarding"), std::string::npos) << f.err;
  for (const pid_t rank : job.ranks) EXPECT_FALSE(is_left(rank)) << "rank " << rank;
}

TEST(LauncherSlow, ARankThatIsStoppedBeforeTheRanksHaveFoundEachOtherIsNamed) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  const std::string stop_rank_1 = "[ $OMPI_COMM_WORLD_RANK = 1 ] && kill -STOP $$; exec \"$0\" \"$@\"";
  std::vector<std::string> args = with(testing::mpirun(2), {"sh", "-c", stop_rank_1, testing::kProgram});
  const auto began = Clock::now();
  const Finished f = testing::run({.args = with(args, train_words(dir, "run", "mpi")), .program = "timeout"});
  EXPECT_NE(f.status, 0);
  EXPECT_LT(since_s(began), 30);
  EXPECT_SAYS(f.err, "weft train: error: rank 1 (process ");
  EXPECT_SAYS(f.err, "has been stopped by a signal for 10 s, and the ranks have not found each other");
}

TEST(LauncherSlow, RanksThatDoNotFindEachOtherEndAfterTheTimeThatTheRecipeGives) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  const std::string delay_rank_1 = "[ $OMPI_COMM_WORLD_RANK = 1 ] && sleep 1000; exec \"$0\" \"$@\"";
  std::vector<std::string> args = with(testing::mpirun(2), {"sh", "-c", delay_rank_1, testing::kProgram});
  args = with(with(args, train_words(dir, "run", "mpi")), {"run.start_timeout_minutes=0.05"});
  const Finished f = testing::run({.args = args, .program = "timeout"});
  EXPECT_NE(f.status, 0);
  EXPECT_SAYS(f.err, "the ranks have not found each other in 0.05 minutes (run.start_timeout_minutes)");
}

}  // namespace
}  // namespace weft
