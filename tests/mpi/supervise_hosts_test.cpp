// `weft supervise` with ranks as processes, beside a program that stands for mpirun.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "apps/small_run.h"
#include "mpi/mpi_job.h"
#include "weft/apps/rank_processes.h"
#include "weft/base/host_name.h"

namespace weft {
namespace {

class SuperviseHosts : public testing::SupervisedRun {
 protected:
  // A program named mpirun, the first in the PATH, with these lines; its words are in mpirun.words, a line each time.
  void put_mpirun(const std::string& lines) {
    path_ = std::getenv("PATH");
    std::filesystem::create_directories(dir_ / "bin");
    testing::spill(dir_ / "bin/mpirun", "#!/bin/sh\necho \"$*\" >>" + (dir_ / "mpirun.words").string() + "\n" + lines);
    std::filesystem::permissions(dir_ / "bin/mpirun", std::filesystem::perms::owner_all);
    ::setenv("PATH", ((dir_ / "bin").string() + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    if (!path_.empty()) ::setenv("PATH", path_.c_str(), 1);
    SupervisedRun::TearDown();
  }

 private:
  std::string path_;
};

TEST_F(SuperviseHosts, AHostThatDoesNotAnswerAfterAFailureIsLeftOut) {
  WEFT_NEEDS_MPIRUN();
  const std::string here = name_of_host();
  put_mpirun("exit 1\n");  // neither ranks nor probes
  testing::spill(dir_ / "hosts", "far.invalid slots=1\n" + here + " slots=1\n");
  const testing::Finished f =
      supervise("r", "",
                {"run.ranks=mpi", "parallel.dp=2", "train.numerics=invariant", "fleet.min_ranks=1",
                 "fleet.poll_seconds=0", "--hosts", (dir_ / "hosts").string()});
  ASSERT_EQ(f.status, 0) << f.err;
  const std::string words = testing::slurp(dir_ / "mpirun.words");
  EXPECT_SAYS(words, "--host " + here + ":1,far.invalid:1 ");
  EXPECT_SAYS(words, "--host far.invalid:1 -n 1 true\n");
  EXPECT_SAYS(f.err, "host far.invalid does not answer, and is left out");
  ASSERT_EQ(events_of("r", "layout").size(), 1u);
  EXPECT_EQ(events_of("r", "layout")[0]["hosts"], here + ":1");
  EXPECT_EQ(run("train", {"train.numerics=invariant"}, "one").status, 0);
  EXPECT_EQ(weights_of("r"), weights_of("one"));
}

TEST_F(SuperviseHosts, AnotherNumberOfRanksThanTheLayoutHasIsToldByName) {
  WEFT_NEEDS_MPIRUN();
  put_mpirun(
      "while [ \"$1\" != -n ]; do shift; done\nshift 2\n"
      "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 exec \"$@\"\n");
  const testing::Finished f = supervise("r", "", {"run.ranks=mpi", "parallel.dp=2", "--attempts", "1"});
  EXPECT_EQ(f.status, 93) << f.err;
  EXPECT_SAYS(f.err, "the layout has 2 ranks (dp 2, pp 1, cp 1, tp 1), but mpirun has started 4");
}

TEST_F(SuperviseHosts, ARunWithTooFewSlotsIsRefused) {
  WEFT_NEEDS_MPIRUN();
  testing::spill(dir_ / "hosts", name_of_host() + " slots=1\n");
  const std::vector<std::string> two{"run.ranks=mpi", "parallel.dp=2", "fleet.hosts=" + (dir_ / "hosts").string()};
  const testing::Finished f = run("train", two, "r");
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "1 slots, and the layout has 2 ranks; the nearest that works: parallel.dp = 1");
  testing::spill(dir_ / "hosts", "far.invalid slots=2\n");
  EXPECT_SAYS(run("train", two, "r").err, "is not among the hosts");
}

// A hostfile with more slots than the layout has ranks: what is left stands ready.
TEST_F(SuperviseHosts, AHostTooManyIsASpareThatTakesThePlaceOfOneThatIsLost) {
  WEFT_NEEDS_MPIRUN();
  EXPECT_EQ(run("train", {"parallel.dp=2"}, "two").status, 0);
  const std::string here = name_of_host();
  // Ranks on the spare run here; those with the lost host do not begin, and it does not answer.
  put_mpirun("case \"$*\" in *lost.invalid*) exit 1;; *\" -n 1 true\") exit 0;; esac\n" +
             std::string("while [ \"$1\" != -n ]; do shift; done\nPATH=") + std::getenv("PATH") +
             "\nexec mpirun --oversubscribe $(test $(id -u) = 0 && echo --allow-run-as-root) \"$@\"\n");
  testing::spill(dir_ / "hosts", here + " slots=1\nlost.invalid slots=1\nspare.invalid slots=1\n");
  const testing::Finished f = supervise(
      "r", "", {"run.ranks=mpi", "parallel.dp=2", "fleet.poll_seconds=0", "--hosts", (dir_ / "hosts").string()});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"failed", "finished"}));
  const auto started = events_of("r", "started"), layouts = events_of("r", "layout"), fleet = events_of("r", "fleet");
  ASSERT_EQ(started.size(), 2u);
  EXPECT_EQ(started[1]["ranks"], 2) << "no rank less";
  ASSERT_EQ(layouts.size(), 1u);
  EXPECT_EQ(layouts[0]["hosts"], here + ":1,spare.invalid:1");
  EXPECT_EQ(fleet.back()["lost"], nlohmann::json{"lost.invalid"});
  EXPECT_TRUE(events_of("r", "waiting").empty());
  EXPECT_TRUE(weights_of("r") == weights_of("two"));
}

using SuperviseHostsSlow = SuperviseHosts;

// Also where mpirun was stopped: its process group is left without a parent, and the kernel continues it.
TEST_F(SuperviseHostsSlow, RanksOfAKilledSupervisorEnd) {
  WEFT_NEEDS_MPIRUN();
  const std::vector<std::string> two{"run.ranks=mpi", "parallel.dp=2"};
  std::string slow;
  for (int step = 2; step < 12; ++step) slow += fmt::format("{}slow@step:0:{}", step > 2 ? "," : "", step);
  for (const bool stopped : {false, true}) {
    const std::string name = stopped ? "stopped" : "plain";
    fail_by(slow);
    testing::Process process({.args = words(name, two)});
    ASSERT_TRUE(testing::wait_until([&] { return records_of(name) >= 2; }, 6000));
    const std::vector<RankProcessHere> all = below(process.id(), processes_here());
    ASSERT_EQ(std::count_if(all.begin(), all.end(), [](const RankProcessHere& p) { return p.rank >= 0; }), 2);
    for (const RankProcessHere& p : all)
      if (stopped && p.rank < 0 && p.parent != process.id()) ::kill(p.id, SIGSTOP);  // mpirun
    process.send(SIGKILL);
    process.wait();
    const auto none_left = [&] {
      const std::vector<RankProcessHere> now = processes_here();
      return std::none_of(now.begin(), now.end(), [&](const RankProcessHere& p) {
        return p.supervisor > 0 && !p.ended &&
               std::any_of(all.begin(), all.end(), [&](const RankProcessHere& q) { return q.id == p.id; });
      });
    };
    EXPECT_TRUE(testing::wait_until(none_left, 4000)) << name;
    const testing::Finished f = supervise(name, "", two);
    EXPECT_EQ(f.status, 0) << f.err;
  }
}

// The ranks end with mpirun, which is no rank: the run begins again on the same hosts, and comes to the same bits.
TEST_F(SuperviseHostsSlow, ARunWhoseMpirunIsKilledGoesOnToTheSameEnd) {
  WEFT_NEEDS_MPIRUN();
  const std::vector<std::string> two{"run.ranks=mpi", "parallel.dp=2"};
  EXPECT_EQ(run("train", {"parallel.dp=2"}, "two").status, 0);
  fail_by("slow@step:0:5");
  testing::Process process({.args = words("r", two)});
  ASSERT_TRUE(testing::wait_until([&] { return records_of("r") >= 5; }, 6000));
  const std::vector<RankProcessHere> all = below(process.id(), processes_here());
  pid_t mpirun = -1;
  std::vector<pid_t> ranks;
  for (const RankProcessHere& p : all) {
    if (p.rank >= 0) ranks.push_back(p.id);
    if (p.rank < 0 && p.parent != process.id()) mpirun = p.id;
  }
  ASSERT_GT(mpirun, 0);
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(mpirun, SIGKILL);
  const testing::Finished f = process.wait();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"failed", "finished"}));
  EXPECT_SAYS(std::string(events_of("r", "ended")[0]["reason"]), fmt::format("mpirun (process {} on host ", mpirun));
  EXPECT_EQ(events_of("r", "started")[1]["ranks"], 2);
  for (const RankProcessHere& p : processes_here())
    EXPECT_TRUE(p.ended || std::find(ranks.begin(), ranks.end(), p.id) == ranks.end()) << p.id << " is left";
  EXPECT_EQ(records_of("r"), 12u);
  EXPECT_TRUE(weights_of("r") == weights_of("two"));
}

// One rank as a thread, and two as processes behind it.
TEST_F(SuperviseHosts, APhaseMayHaveItsRanksAsProcesses) {
  WEFT_NEEDS_MPIRUN();
  EXPECT_EQ(run("train", {"train.numerics=invariant"}, "one").status, 0);
  testing::spill(dir_ / "r.toml",
                 testing::slurp(dir_ / "r.toml") + "[[phase]]\nfrom_step = 5\nparallel.dp = 2\nrun.ranks = \"mpi\"\n");
  const testing::Finished f = supervise("r", "", {"train.numerics=invariant"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"moved", "finished"}));
  EXPECT_SAYS(f.err, "2 ranks as processes (MPI): dp 2");
  EXPECT_TRUE(weights_of("r") == weights_of("one"));
}

}  // namespace
}  // namespace weft
