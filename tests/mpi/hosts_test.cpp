// Several hosts, and a batch system, on one machine: as root, where the tools are.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "mpi/train_case.h"

namespace weft {
namespace {

using namespace std::chrono_literals;
using testing::Finished;
using testing::program;
using testing::run;
using testing::TempDir;
using testing::train_words;
using testing::with;

const std::string kHere = std::string(testing::kSourceDir) + "/tests/mpi/";

#define WEFT_NEEDS_ROOT_AND(tool)                   \
  WEFT_NEEDS_MPIRUN();                              \
  if (geteuid() != 0) GTEST_SKIP() << "needs root"; \
  if (!testing::has_program(tool)) GTEST_SKIP() << "needs the program " << (tool)

// Two hosts with an address each.
class TwoHosts {
 public:
  TwoHosts() {
    int status = 3;
    for (int tries = 0; status == 3 && tries < 60; ++tries) {  // another test may have them
      status = script({"up", "2"}).status;
      if (status == 3) std::this_thread::sleep_for(1s);
    }
    up_ = status == 0;
    testing::spill(dir_ / "hosts", "10.77.0.1 slots=1\n10.77.0.2 slots=1\n");
  }
  ~TwoHosts() {
    if (up_) script({"down", "2"});
  }
  bool up() const { return up_; }
  Finished script(const std::vector<std::string>& words) const {
    return testing::run({.args = words, .program = kHere + "netns.sh"});
  }
  // One rank on each host.
  testing::Command job(const std::vector<std::string>& command) const {
    const std::vector<std::string> options{
        "--mca",        "plm_rsh_agent", kHere + "netns_rsh",  "--hostfile",   (dir_ / "hosts").string(),
        "--mca",        "btl",           "tcp,self",           "--mca",        "btl_tcp_if_include",
        "10.77.0.0/24", "--mca",         "oob_tcp_if_include", "10.77.0.0/24", "--map-by",
        "node"};
    const std::vector<std::string> words = with(testing::mpirun(2, options), command);
    return {.args = with({"exec", "wn0", "timeout"}, words), .program = kHere + "netns.sh"};
  }

 private:
  TempDir dir_;
  bool up_ = false;
};

TEST(MpiHostsSlow, TwoHostsGiveTheBitsOfThreads) {
  WEFT_NEEDS_ROOT_AND("ip");
  const TwoHosts hosts;
  if (!hosts.up()) GTEST_SKIP() << "network namespaces cannot be made here, or wn0 and wn1 are somebody else's";
  const TempDir dir;
  const Finished all = run(hosts.job({testing::kRankProgram, "same", (dir / "said").string()}));
  EXPECT_EQ(all.status, 0) << all.out << all.err << testing::slurp(dir / "said");
  const Finished mpi = run(hosts.job(program(train_words(dir, "mpi", "mpi"))));
  ASSERT_EQ(mpi.status, 0) << mpi.err;
  ASSERT_EQ(testing::weft(train_words(dir, "local", "local")).status, 0);
  testing::expect_same_run(dir / "mpi", dir / "local");
}

// A link that is silent for some seconds is no failure: nothing is lost, and nothing is different.
TEST(MpiHostsSlow, AnOutageOfSecondsIsWaitedFor) {
  WEFT_NEEDS_ROOT_AND("ip");
  const TwoHosts hosts;
  if (!hosts.up()) GTEST_SKIP() << "network namespaces cannot be made here, or wn0 and wn1 are somebody else's";
  const TempDir dir;
  const std::vector<std::string> longer{"train.train_iters=600", "checkpoint.save_interval=0"};
  testing::Process process(hosts.job(program(with(train_words(dir, "mpi", "mpi"), longer))));
  while (process.running() && testing::slurp(dir / "mpi/metrics.jsonl").empty()) std::this_thread::sleep_for(5ms);
  hosts.script({"cut", "wn1"});
  std::this_thread::sleep_for(4s);
  EXPECT_TRUE(process.running()) << "not yet at its end, or ended by the outage";
  hosts.script({"heal", "wn1"});
  const Finished f = process.wait();
  ASSERT_EQ(f.status, 0) << f.err;
  ASSERT_EQ(testing::weft(with(train_words(dir, "local", "local"), longer)).status, 0);
  testing::expect_same_run(dir / "mpi", dir / "local", 600);
}

// A run on wn0 and wn1 under a supervisor on wn0.
class SupervisedHosts {
 public:
  explicit SupervisedHosts(const std::string& faults = "") {
    const std::string agent = kHere + "netns_rsh", net = "10.77.0.0/24";
    const std::pair<const char*, std::string> variables[] = {{"OMPI_MCA_plm_rsh_agent", agent},
                                                             {"OMPI_MCA_btl", "tcp,self"},
                                                             {"OMPI_MCA_btl_tcp_if_include", net},
                                                             {"OMPI_MCA_oob_tcp_if_include", net},
                                                             {"WEFT_FAULT", faults}};
    for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1), names_.push_back(name);
    testing::spill(dir_ / "hosts", "10.77.0.1 slots=1\n10.77.0.2 slots=1\n");
  }
  ~SupervisedHosts() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }
  testing::Command command(const std::vector<std::string>& more) {
    std::vector<std::string> words = train_words(dir_, "mpi", "mpi");
    words[0] = "supervise";
    words = with(words, {"--hosts", (dir_ / "hosts").string(), "fleet.min_ranks=1", "train.numerics=invariant"});
    return {.args = with({"exec", "wn0", "timeout", "-k", "5", "150"}, program(with(words, more))),
            .program = kHere + "netns.sh"};
  }
  bool has_saved(int step) const {
    return std::filesystem::exists(dir_ / fmt::format("mpi/checkpoints/step-{}", step));
  }
  std::vector<nlohmann::json> events(const std::string& event) const {
    std::vector<nlohmann::json> found;
    std::istringstream in(testing::slurp(dir_ / "mpi/events.jsonl"));
    for (std::string line; std::getline(in, line);)
      if (nlohmann::json e = nlohmann::json::parse(line); e["event"] == event) found.push_back(std::move(e));
    return found;
  }
  // That of ranks that are threads, undisturbed.
  void expect_undisturbed(const std::vector<std::string>& more, int steps) {
    unsetenv("WEFT_FAULT");
    const std::vector<std::string> words = with(train_words(dir_, "local", "local"), {"train.numerics=invariant"});
    ASSERT_EQ(testing::weft(with(words, more)).status, 0);
    testing::expect_same_run(dir_ / "mpi", dir_ / "local", steps);
  }

 private:
  TempDir dir_;
  std::vector<std::string> names_;
};

TEST(MpiHostsSlow, AHostThatIsLostIsLeftOut) {
  WEFT_NEEDS_ROOT_AND("ip");
  const TwoHosts hosts;
  if (!hosts.up()) GTEST_SKIP() << "network namespaces cannot be made here, or wn0 and wn1 are somebody else's";
  const std::vector<std::string> more{"train.train_iters=400", "checkpoint.save_interval=100"};
  SupervisedHosts run;
  testing::Process process(run.command(more));
  while (process.running() && !run.has_saved(100)) std::this_thread::sleep_for(5ms);
  ASSERT_TRUE(process.running()) << process.wait().err;
  hosts.script({"die", "wn1"});
  hosts.script({"cut", "wn1"});  // it stays away
  const Finished f = process.wait();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "host 10.77.0.2 does not answer, and is left out");
  ASSERT_EQ(run.events("layout").size(), 1u) << f.err;
  EXPECT_EQ(run.events("layout")[0]["hosts"], "10.77.0.1:1");
  EXPECT_GE(run.events("started")[1]["newest_step"], 100);
  run.expect_undisturbed(more, 400);
}

TEST(MpiHostsSlow, AHostThatIsCutOffEndsItsRanksAndIsLeftOut) {
  WEFT_NEEDS_ROOT_AND("ip");
  const TwoHosts hosts;
  if (!hosts.up()) GTEST_SKIP() << "network namespaces cannot be made here, or wn0 and wn1 are somebody else's";
  const std::vector<std::string> more{"train.train_iters=400", "checkpoint.save_interval=100"};
  SupervisedHosts run;
  testing::Process process(run.command(with(more, {"--hang-seconds", "20"})));
  while (process.running() && !run.has_saved(100)) std::this_thread::sleep_for(5ms);
  ASSERT_TRUE(process.running()) << process.wait().err;
  hosts.script({"cut", "wn1"});
  std::string left = "there";
  const auto till = std::chrono::steady_clock::now() + 40s;
  while (!left.empty() && std::chrono::steady_clock::now() < till) {
    std::this_thread::sleep_for(200ms);
    left = testing::run({.args = {"netns", "pids", "wn1"}, .program = "ip"}).out;
  }
  EXPECT_EQ(left, "") << "processes of the host that is cut off";
  const Finished f = process.wait();
  ASSERT_EQ(f.status, 0) << f.err;
  ASSERT_EQ(run.events("layout").size(), 1u) << f.err;
  EXPECT_EQ(run.events("layout")[0]["ranks"], 1);
  run.expect_undisturbed(more, 400);
}

TEST(MpiHostsSlow, AHostWhoseRankWasKilledStays) {
  WEFT_NEEDS_ROOT_AND("ip");
  const TwoHosts hosts;
  if (!hosts.up()) GTEST_SKIP() << "network namespaces cannot be made here, or wn0 and wn1 are somebody else's";
  SupervisedHosts run("kill@step:1:3");
  const Finished f = testing::run(run.command({"checkpoint.save_interval=2"}));
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(run.events("started").size(), 2u) << f.err;
  EXPECT_TRUE(run.events("layout").empty());
  run.expect_undisturbed({"checkpoint.save_interval=2"}, 6);
}

// A Slurm of its own for the test's time.
class Slurm {
 public:
  Slurm() {
    setenv("SLURM_BASE", dir_.path().c_str(), 1);
    setenv("SLURM_CONF", (dir_ / "slurm.conf").c_str(), 1);
    up_ = script("start").status == 0;
  }
  ~Slurm() { script("stop"); }
  bool up() const { return up_; }

 private:
  Finished script(const std::string& word) const {
    return testing::run({.args = {"60", kHere + "slurm_local.sh", word}, .program = "timeout"});
  }
  TempDir dir_;
  bool up_ = false;
};

Finished srun(const std::string& mpi, int ranks, const std::vector<std::string>& command) {
  return testing::run(
      {.args = with({"60", "srun", "--mpi=" + mpi, "-n", std::to_string(ranks)}, command), .program = "timeout"});
}

TEST(MpiSlurmSlow, RanksFindEachOtherUnderSrunOrAreRefused) {
  WEFT_NEEDS_ROOT_AND("slurmctld");
  WEFT_NEEDS_ROOT_AND("srun");
  WEFT_NEEDS_ROOT_AND("munged");
  const Slurm slurm;
  if (!slurm.up()) GTEST_SKIP() << "Slurm does not start here";
  const TempDir dir;
  const Finished pmix = srun("pmix", 2, program(train_words(dir, "pmix", "mpi")));
  ASSERT_EQ(pmix.status, 0) << pmix.err;
  ASSERT_EQ(testing::weft(train_words(dir, "local", "local")).status, 0);
  testing::expect_same_run(dir / "pmix", dir / "local");
  const Finished none = srun("none", 2, program(train_words(dir, "none", "mpi")));
  EXPECT_EQ(none.status, 64);
  EXPECT_SAYS(none.err, "srun has started 2 processes that cannot find each other: use srun --mpi=pmix");
  const Finished three = srun("pmix", 3, program(train_words(dir, "none", "mpi")));
  EXPECT_EQ(three.status, 64);
  EXPECT_SAYS(three.err, "the layout has 2 ranks (dp 2, pp 1, cp 1, tp 1), but srun has started 3");

  testing::spill(dir / "job.sh", "#!/bin/sh\nexec \"$@\"\n");
  const std::vector<std::string> batch{
      "60", "sbatch", "-W", "-n", "2", "-o", (dir / "out").string(), (dir / "job.sh").string()};
  const Finished plain =
      testing::run({.args = with(batch, program(train_words(dir, "batch", "mpi"))), .program = "timeout"});
  ASSERT_EQ(plain.status, 0) << plain.err << testing::slurp(dir / "out");
  testing::expect_same_run(dir / "batch", dir / "local");
}

}  // namespace
}  // namespace weft
