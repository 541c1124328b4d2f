// `weft train` with run.ranks = "mpi": started plainly, under mpirun, on two hosts, wrongly.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "mpi/train_case.h"
#include "weft/apps/launch.h"
#include "weft/apps/launcher_words.h"
#include "weft/apps/rank_processes.h"
#include "weft/base/error.h"
#include "weft/records/metrics_log.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::expect_same_run;
using testing::Finished;
using testing::mpi_job;
using testing::program;
using testing::slurp;
using testing::TempDir;
using testing::train_words;
using testing::with;

void expect_processes_equal_threads(const std::vector<std::string>& settings,
                                    const std::string& said = "2 ranks as processes (MPI): dp 2") {
  SCOPED_TRACE(fmt::format("{}", fmt::join(settings, " ")));
  const TempDir dir;
  const Finished mpi = testing::weft(with(train_words(dir, "mpi", "mpi"), settings));
  ASSERT_EQ(mpi.status, 0) << mpi.err;
  EXPECT_SAYS(mpi.err, said);
  EXPECT_EQ(mpi.err.find("weft train\n"), mpi.err.rfind("weft train\n")) << "one rank speaks: " << mpi.err;
  ASSERT_EQ(testing::weft(with(train_words(dir, "local", "local"), settings)).status, 0);
  expect_same_run(dir / "mpi", dir / "local");
}

TEST(MpiTrain, StartedPlainlyItStartsItsRanksAndEqualsThreadsToTheBit) {
  WEFT_NEEDS_MPIRUN();
  expect_processes_equal_threads({"train.numerics=fast"});
}

// Keys that go around, an exchange of heads, keys that are gathered.
TEST(MpiTrainSlow, RanksThatShareSequencesEqualThreadsToTheBit) {
  WEFT_NEEDS_MPIRUN();
  for (const char* how : {"p2p", "a2a", "all_gather"})
    expect_processes_equal_threads({"parallel.dp=1", "parallel.cp=2", std::string("parallel.cp_comm_type=") + how},
                                   "2 ranks as processes (MPI)");
}

// Two steps, as four processes share few cores; the second begins with the weights that the first made.
TEST(MpiTrainSlow, RanksThatShareSequencesAndMoreEqualOneRank) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  const std::vector<std::string> steps{"parallel.dp=1", "train.train_iters=2"};
  ASSERT_EQ(testing::weft(with(train_words(dir, "one", "local"), steps)).status, 0);
  const std::vector<StepRecord> one = read_metrics(dir / "one/metrics.jsonl").steps;
  ASSERT_EQ(one.size(), 2u);
  int runs = 0;
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.pp=2", "parallel.cp=2"},
        {"parallel.tp=2", "parallel.cp=2"},
        {"parallel.zero_stage=3", "parallel.cp=2"},
        {"parallel.cp_comm_type=a2a+p2p", "parallel.cp_a2a_size=2", "parallel.cp=4"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    const std::string run = fmt::format("run{}", runs++);
    const Finished f = testing::weft(with(with(train_words(dir, run, "mpi"), steps), layout));
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_SAYS(f.err, " ranks as processes (MPI)");
    const std::vector<StepRecord> many = read_metrics(dir / run / "metrics.jsonl").steps;
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_NEAR(many[i].loss, one[i].loss, 1e-6 * one[i].loss) << i;
      EXPECT_NEAR(many[i].grad_norm, one[i].grad_norm, 1e-5 * one[i].grad_norm) << i;
    }
  }
}

// Rows go to the ranks of their experts, each time another number of them.
TEST(MpiTrainSlow, RanksThatShareExpertsEqualThreadsToTheBit) {
  WEFT_NEEDS_MPIRUN();
  for (const std::vector<std::string>& layout : {std::vector<std::string>{"parallel.dp=2"},
                                                 {"parallel.dp=1", "parallel.cp=2"},
                                                 {"parallel.dp=2", "parallel.tp=2"}})
    expect_processes_equal_threads(with({"model.path=" + std::string(testing::kSourceDir) + "/tests/golden/mixtral",
                                         "model.init=random", "parallel.ep=2"},
                                        layout),
                                   " ranks as processes (MPI)");
}

TEST(MpiTrainSlow, InvariantNumericsAndMuonEqualThreadsToTheBit) {
  WEFT_NEEDS_MPIRUN();
  for (const char* setting : {"train.numerics=invariant", "optimizer.name=muon"})
    expect_processes_equal_threads({setting});
}

TEST(MpiTrainSlow, UnderMpirunItFindsItsPlace) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  const Finished mpi = mpi_job(2, program(train_words(dir, "mpi", "mpi")));
  ASSERT_EQ(mpi.status, 0) << mpi.err;
  ASSERT_EQ(testing::weft(train_words(dir, "local", "local")).status, 0);
  expect_same_run(dir / "mpi", dir / "local");
}

TEST(MpiTrainSlow, ProcessesThatAreNotTheLayoutAreRefusedByName) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  const Finished three = mpi_job(3, program(train_words(dir, "run", "mpi")));
  EXPECT_EQ(three.status, 64);
  EXPECT_SAYS(three.err, "the layout has 2 ranks (dp 2, pp 1, cp 1, tp 1), but mpirun has started 3");
  const Finished local = mpi_job(2, program(train_words(dir, "run", "local")));
  EXPECT_EQ(local.status, 64);
  EXPECT_SAYS(local.err, "mpirun has started 2 processes, each of which would train the whole recipe");
  EXPECT_FALSE(fs::exists(dir / "run"));
}

TEST(MpiTrain, AnErrorOfARankEndsTheJobWithItsStatusAndReason) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  const Finished f = testing::weft(with(train_words(dir, "run", "mpi"), {"model.path=nowhere"}));
  EXPECT_EQ(f.status, 1) << f.err;
  EXPECT_SAYS(f.err, "model.path = \"nowhere\" does not exist");
}

void expect_saved_on(int signal_number, int status) {
  const TempDir dir;
  const std::vector<std::string> endless{"train.train_iters=1000000", "checkpoint.save_interval=0"};
  testing::Process process({.args = with(train_words(dir, "run", "mpi"), endless)});
  while (process.running() && slurp(dir / "run/metrics.jsonl").empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  process.send(signal_number);
  const Finished f = process.wait();
  EXPECT_EQ(f.status, status) << f.err;
  EXPECT_TRUE(fs::exists(dir / "run/checkpoints")) << "stopped without saving: " << f.err;
}

TEST(MpiTrainSlow, InterruptedItSavesHasStatus130AndGoesOnAsThreads) {
  WEFT_NEEDS_MPIRUN();
  expect_saved_on(SIGINT, 130);
}

TEST(MpiTrainSlow, TerminatedItSavesAndHasStatus75) {
  WEFT_NEEDS_MPIRUN();
  expect_saved_on(SIGTERM, 75);
}

// How long a rank waits is the recipe's.
// Processes whose parent is this one, in the order of their numbers.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string stat = slurp(entry.path() / "stat");  // pid (name) state parent ...
    const size_t after = stat.rfind(") ");
    if (after == std::string::npos || std::atoi(stat.c_str() + after + 4) != parent) continue;
    found.push_back(std::atoi(stat.c_str()));
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(MpiTrain, ARankThatIsKilledIsNamedAndNoWordOfMpirunIsShown) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  testing::Process process({.args = with(train_words(dir, "run", "mpi"), {"train.train_iters=1000000"})});
  while (process.running() && slurp(dir / "run/metrics.jsonl").empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::vector<pid_t> launcher = children_of(process.id());
  ASSERT_EQ(launcher.size(), 1u);
  const std::vector<pid_t> ranks = children_of(launcher[0]);
  ASSERT_EQ(ranks.size(), 2u);
  const std::string environment = slurp("/proc/" + std::to_string(ranks[1]) + "/environ");
  const size_t rank = environment.find("OMPI_COMM_WORLD_RANK=");
  ASSERT_NE(rank, std::string::npos);
  ::kill(ranks[1], SIGKILL);
  const Finished f = process.wait();
  EXPECT_EQ(f.status, 1) << f.err;
  EXPECT_SAYS(f.err, fmt::format("rank {} on host ", environment[rank + std::string("OMPI_COMM_WORLD_RANK=").size()]));
  EXPECT_SAYS(f.err, "was ended by signal 9");
  EXPECT_EQ(f.err.find("mpirun"), std::string::npos) << f.err;
}

// Open MPI has a handler of its own for that signal, which says what it says, as before.
TEST(MpiTrainSlow, ARankThatCrashesLeavesItsStack) {
  WEFT_NEEDS_MPIRUN();
  if (std::string(testing::kDiskLayer).empty()) GTEST_SKIP() << "sanitizers end a process by themselves";
  const TempDir dir;
  ::setenv("WEFT_FAULT", "crash@step:1:3", 1);
  const Finished f = testing::weft(train_words(dir, "run", "mpi"));
  ::unsetenv("WEFT_FAULT");
  EXPECT_EQ(f.status, 1) << f.err;
  const fs::path file = dir / "run/crash/stacks-1.txt";
  EXPECT_SAYS(f.err, "weft train: rank 1 got signal 11 (Segmentation fault): " + file.string() + " has its stack");
  EXPECT_SAYS(f.err, "rank 1 on host ");
  EXPECT_SAYS(f.err, "was ended by signal 11");
  EXPECT_SAYS(slurp(file), "weft::fault_point(");
  EXPECT_SAYS(slurp(file), "weft::Trainer::");
  EXPECT_FALSE(fs::exists(dir / "run/crash/stacks-0.txt"));
}

// Stops and continues a process, so that it runs for about a sixth of the time.
class HeldUp {
 public:
  explicit HeldUp(pid_t process)
      : thread_([this, process] {
          while (!is_over_) {
            ::kill(process, SIGSTOP);
            ::usleep(10000);
            ::kill(process, SIGCONT);
            ::usleep(2000);
          }
        }) {}
  HeldUp(const HeldUp&) = delete;
  HeldUp& operator=(const HeldUp&) = delete;
  ~HeldUp() {
    is_over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

// As another program may hold up one process. It is no failure: the run goes on to the bits of ranks that nobody held.
TEST(MpiTrainSlow, ARankThatSignalsHoldUpIsReportedAndNotEnded) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  const std::vector<std::string> more{"train.train_iters=300", "checkpoint.save_interval=0"};
  ASSERT_EQ(testing::weft(with(train_words(dir, "threads", "local"), more)).status, 0);
  const auto events = [&] { return slurp(dir / "run/events.jsonl"); };
  testing::Process process({.args = with(train_words(dir, "run", "mpi"), more)});
  while (process.running() && slurp(dir / "run/metrics.jsonl").empty()) ::usleep(5000);
  const std::vector<RankProcessHere> all = below(process.id(), processes_here());
  const auto second = std::find_if(all.begin(), all.end(), [](const RankProcessHere& p) { return p.rank == 1; });
  ASSERT_NE(second, all.end());
  {
    const HeldUp held(second->id);
    while (process.running() && events().find("\"straggler\"") == std::string::npos) ::usleep(5000);
  }
  const Finished f = process.wait();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, ": rank 1 is slow since step ");
  EXPECT_LT(f.err.find(": rank 1 is slow"), f.err.find(": rank 0 is slow")) << f.err;
  EXPECT_EQ(events().find("\"hang\""), std::string::npos) << events();
  testing::expect_same_run(dir / "run", dir / "threads", 300);
}

const std::string kDashes = std::string(74, '-') + "\n";

TEST(Launch, WhatMpirunSaysOfAnEndIsReadAndNotShown) {
  const std::string text = "step 1\n" + kDashes +
                           "mpirun noticed that process rank 12 with PID 0 on node b7 exited on signal 9 (Killed).\n" +
                           kDashes + "-- of a rank\n" + kDashes +
                           "Primary job  terminated normally, but 1 process returned\na\n" + kDashes + "half a line";
  for (size_t piece : {size_t{1}, size_t{7}, text.size()}) {
    LauncherWords by_pieces;
    std::string shown;
    for (size_t i = 0; i < text.size(); i += piece) shown += by_pieces.pass(text.substr(i, piece));
    EXPECT_EQ(shown, "step 1\n-- of a rank\nhalf a line") << piece;
    EXPECT_EQ(by_pieces.ended_rank(), "rank 12 on host b7");
    EXPECT_EQ(by_pieces.rest(), "");
  }
}

TEST(Launch, WhatMpirunSaysOfItsOwnTroubleIsShown) {
  LauncherWords words;
  const std::string trouble = kDashes + "There are not enough slots available\n" + kDashes;
  EXPECT_EQ(words.pass(trouble), trouble);
  EXPECT_EQ(words.pass(kDashes + "that has no end"), "");
  EXPECT_EQ(words.rest(), kDashes + "that has no end");
  const std::string longer = kDashes + std::string(9000, 'x') + "\n";
  EXPECT_EQ(words.pass(longer), longer) << "what has no end is not held for ever";
  EXPECT_EQ(words.ended_rank(), "");
}

TEST(MpiTrainSlow, ARankFromWhichNothingComesIsNamedAfterTheTimeThatTheRecipeGives) {
  WEFT_NEEDS_MPIRUN();
  const TempDir dir;
  const std::vector<std::string> words = with(train_words(dir, "run", "mpi"), {"train.train_iters=1000000"});
  const std::string told = "echo $$ > \"$0.$OMPI_COMM_WORLD_RANK\"; exec \"$@\"";
  std::vector<std::string> args = with(testing::mpirun(2), {"sh", "-c", told, (dir / "pid").string()});
  args = with(args, with(program(words), {"run.distributed_timeout_minutes=0.04"}));
  testing::Process process({.args = args, .program = "timeout"});
  while (process.running() && slurp(dir / "run/metrics.jsonl").empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_TRUE(process.running());
  ASSERT_EQ(kill(std::stoi(slurp(dir / "pid.1")), SIGSTOP), 0);
  const Finished f = process.wait();
  EXPECT_EQ(f.status, 86) << f.err;
  EXPECT_SAYS(f.err, "rank 0 waits in ");
  EXPECT_SAYS(f.err, " s, for rank 1 (process ");
  EXPECT_SAYS(slurp(dir / "run/hang/rank-0.json"), "\"is\": \"waited\"");
}

// --- the environment ---

Environment given(const std::vector<std::pair<std::string, std::string>>& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    for (const auto& [key, value] : variables)
      if (key == name) return value;
    return {};
  };
}

std::string refusal(const std::vector<std::pair<std::string, std::string>>& variables) {
  Recipe recipe;
  recipe.run.ranks = RanksKind::mpi;
  return testing::error_of<ConfigError>([&] { check_launch(recipe, 4, launched_as(given(variables))); });
}

TEST(Launch, TellsLaunchersApart) {
  EXPECT_EQ(launched_as(given({})).by, "");
  EXPECT_EQ(launched_as(given({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}})).by, "");
  EXPECT_TRUE(launched_as(given({{"SLURM_JOB_ID", "7"}})).allocated);
  const Launched l = launched_as(given({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}));
  EXPECT_EQ(l.rank, 3);
  EXPECT_EQ(l.world, 4);
}

TEST(Launch, RanksThatCannotFindEachOtherAreRefused) {
  EXPECT_EQ(refusal({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}), "");
  const std::vector<std::pair<std::string, std::string>> step{
      {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_SAYS(refusal(step), "use srun --mpi=pmix");
  auto pmix = step;
  pmix.emplace_back("PMIX_RANK", "1");
  EXPECT_EQ(refusal(pmix), "");
  EXPECT_SAYS(refusal({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "8"}}), "has started 8");
  EXPECT_SAYS(refusal({{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}}), "a launcher of another MPI has started 4");
}

}  // namespace
}  // namespace weft
