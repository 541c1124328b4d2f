// Local copies that the next host holds too, by ranks as processes on two hosts: each has a name and a folder of its
// own.
#include "apps/small_run.h"
#include "mpi/mpi_job.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using Settings = std::vector<std::string>;

// Ranks 0 and 1 are on h0 and h1, where LOCAL is the folder h0 or h1 of the test.
class MpiNeighbours : public testing::SmallRun {
 protected:
  void SetUp() override {
    SmallRun::SetUp();
    for (const char* folder : {"h0", "h1", "local"}) fs::create_directory(dir_ / folder);
    begin_hosts_by("mount --bind " + dir_.path().string() + "/$h");
  }
  // `mount` puts a folder of host $h in the place of LOCAL, which comes behind it.
  void begin_hosts_by(const std::string& mount) const {
    testing::spill(dir_ / "on-host.sh",
                   fmt::format("#!/bin/sh\nh=h$OMPI_COMM_WORLD_RANK exec unshare --uts --mount sh -c 'hostname $h && "
                               "{} {} && exec \"$@\"' sh \"$@\"\n",
                               mount, (dir_ / "local").string()));
    fs::permissions(dir_ / "on-host.sh", fs::perms::owner_all);
  }
  // Checkpoints of steps 5 and 10, copies of steps 4 and 8.
  Settings settings(const std::string& local, const Settings& more) const {
    Settings all{"train",
                 (dir_ / "r.toml").string(),
                 "run.dir=" + (dir_ / "r").string(),
                 "train.numerics=invariant",
                 "checkpoint.save_interval=5",
                 "checkpoint.local_interval=4",
                 "checkpoint.local_dir=" + (dir_ / local).string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Finished train_on_hosts() {
    Settings command{(dir_ / "on-host.sh").string(), testing::kProgram};
    const Settings all = settings(
        "local", {"run.ranks=mpi", "parallel.dp=2", "parallel.zero_stage=3", "checkpoint.local_neighbour=true"});
    command.insert(command.end(), all.begin(), all.end());
    return testing::mpi_job(2, command);
  }
  // One rank, where this host's folder is what is left.
  Finished go_on_with(const std::string& host) { return testing::weft(settings(host, {})); }
};

#define WEFT_NEEDS_HOSTS_OF_ITS_OWN()                                                         \
  WEFT_NEEDS_MPIRUN();                                                                        \
  if (geteuid() != 0) GTEST_SKIP() << "needs root";                                           \
  if (testing::run({.args = {"--uts", "--mount", "true"}, .program = "unshare"}).status != 0) \
  GTEST_SKIP() << "needs unshare (util-linux), and to be allowed to call it"

// The run is killed as it begins to save step 10. Whichever host is lost then, the other has all of the copy of step 8;
// without both there is the checkpoint of step 5.
TEST_F(MpiNeighbours, ALostHostCostsNoDurableCheckpoint) {
  WEFT_NEEDS_HOSTS_OF_ITS_OWN();
  ASSERT_EQ(run("train", {"train.numerics=invariant"}, "whole").status, 0);
  fail_by("kill@copied:0:10,kill@copied:1:10");
  const Finished killed = train_on_hosts();
  fail_by("");
  ASSERT_NE(killed.status, 0);
  EXPECT_SAYS(killed.err, "2 hosts, of which each holds the local copies of another one too: h0's are on h1");
  ASSERT_FALSE(events_of("r", "local_saved").empty()) << killed.err;
  EXPECT_EQ(events_of("r", "local_saved").back()["step"], 8);
  EXPECT_GT(events_of("r", "local_saved").back()["neighbour_bytes"].get<int64_t>(), 3 * 4 * 250000);
  ASSERT_FALSE(fs::exists(dir_ / "r/checkpoints/step-10"));
  fs::copy(dir_ / "r", dir_ / "kept", fs::copy_options::recursive);
  for (const char* left : {"h0", "h1", "none"}) {
    fs::remove_all(dir_ / "r");
    fs::copy(dir_ / "kept", dir_ / "r", fs::copy_options::recursive);
    fs::permissions(dir_ / "r", fs::perms::owner_all);
    const Finished f = go_on_with(left);
    ASSERT_EQ(f.status, 0) << f.err;
    if (std::string(left) == "none") {
      EXPECT_SAYS(f.err, "WARNING: the local copy of step 8 is lost: no host of this run has any of it");
      EXPECT_SAYS(f.err, "checkpoints/step-5, after step 5");
    } else {
      EXPECT_SAYS(f.err, "step-8 was made of the local copy of step 8, which 2 ranks have written; the shares of 1 of");
      EXPECT_SAYS(f.err, "checkpoints/step-8, after step 8");
    }
    EXPECT_TRUE(weights_of("r") == weights_of("whole")) << left;
    EXPECT_TRUE(file_of("r", 12, "weft/optimizer.safetensors") == file_of("whole", 12, "weft/optimizer.safetensors"));
  }
}

// A run that ends well leaves nothing, on either host.
TEST_F(MpiNeighbours, ARunThatEndsWellLeavesNothing) {
  WEFT_NEEDS_HOSTS_OF_ITS_OWN();
  const Finished f = train_on_hosts();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_FALSE(events_of("r", "local_saved").empty());
  for (const char* host : {"h0", "h1"}) EXPECT_TRUE(fs::is_empty(dir_ / host)) << host;
}

// h1 has room for one share, its own of step 4: not for the other rank's of that step, nor for its own of step 8.
TEST_F(MpiNeighbours, ACopyThatTheOtherHostHasNoRoomForIsToldAndIsStillOne) {
  WEFT_NEEDS_HOSTS_OF_ITS_OWN();
  ASSERT_EQ(run("train", {"train.numerics=invariant"}, "whole").status, 0);
  begin_hosts_by("mount -t tmpfs -o size=2300k,mode=700 none");
  const Finished f = train_on_hosts();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "WARNING: no other host holds all of the local copy of step 4, which is on its own hosts: what");
  EXPECT_SAYS(f.err, "1 local copies were on their own hosts alone (RUN/events.jsonl)");
  ASSERT_EQ(events_of("r", "local_saved").size(), 1u) << f.err;
  EXPECT_EQ(events_of("r", "local_saved")[0]["step"], 4);
  EXPECT_EQ(events_of("r", "local_saved")[0]["neighbour_bytes"], 0);
  ASSERT_EQ(events_of("r", "local_unheld").size(), 1u) << f.err;
  EXPECT_EQ(events_of("r", "local_unheld")[0]["step"], 4);
  EXPECT_SAYS(f.err, "step 8: NO LOCAL COPY, the run goes on: ");
  EXPECT_TRUE(weights_of("r") == weights_of("whole"));
}

}  // namespace
}  // namespace weft
