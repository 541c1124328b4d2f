// Islands and their hub as processes.
#include <sys/stat.h>

#include "apps/small_run.h"
#include "weft/islands/island_channel.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::Process;
using Words = std::vector<std::string>;

constexpr const char *kOurs = "0123456789abcdef0123456789abcdef\n", *kTheirs = "fedcba9876543210fedcba9876543210\n";

// Of twelve steps, with an exchange after every third.
class IslandProcesses : public testing::SmallRun {
 protected:
  void SetUp() override {
    SmallRun::SetUp();
    const int port = listen_on("127.0.0.1:0").port;  // free again, for the hub
    testing::spill(dir_ / "r.toml", testing::slurp(dir_ / "r.toml") +
                                        fmt::format("[islands]\ncount = 2\naddress = \"127.0.0.1:{}\"\nsync_every = 3\n"
                                                    "timeout_seconds = 5\nsecret_file = \"{}\"\n",
                                                    port, (dir_ / "secret").string()));
    keep_secret("secret", kOurs);
  }
  void TearDown() override {
    ::unsetenv("WEFT_ISLANDS_SECRET");
    SmallRun::TearDown();
  }
  void keep_secret(const std::string& name, const std::string& text, mode_t mode = 0600) {
    testing::spill(dir_ / name, text);
    ::chmod((dir_ / name).c_str(), mode);
  }
  Words words(const std::string& command, const Words& more) const {
    Words all{command, (dir_ / "r.toml").string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Words island(int number, const Words& more = {}) const {
    Words all{fmt::format("islands.number={}", number),
              fmt::format("run.dir={}", (dir_ / std::to_string(number)).string())};
    all.insert(all.end(), more.begin(), more.end());
    return words("train", all);
  }
};

TEST_F(IslandProcesses, TrainOneModelAndEndTogether) {
  Process hub({.args = words("islands", {})}), first({.args = island(0)}), second({.args = island(1)});
  EXPECT_EQ(first.wait().status, 0);
  EXPECT_EQ(second.wait().status, 0);
  const Finished end = hub.wait();
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_SAYS(end.err, "all 2 islands have done their steps, in 4 rounds");
  EXPECT_EQ(weights_of("0"), weights_of("1"));
  EXPECT_FALSE(weights_of("0").empty());
  EXPECT_SAYS(testing::slurp(dir_ / "1" / "recipe.toml"), "[islands]\ncount = 2\nnumber = 1\n");
}

// It is killed in its ninth step and started again: the same weights as the other's in the end.
TEST_F(IslandProcesses, OneThatIsKilledAndStartedAgainGoesOnWithTheOther) {
  Process hub({.args = words("islands", {})}), first({.args = island(0)});
  fail_by("kill@step:0:8");
  EXPECT_EQ(testing::weft(island(1)).status, 128 + SIGKILL);
  ::unsetenv("WEFT_FAULT");
  EXPECT_EQ(testing::weft(island(1)).status, 0);
  EXPECT_EQ(first.wait().status, 0);
  EXPECT_EQ(hub.wait().status, 0);
  EXPECT_EQ(weights_of("0"), weights_of("1"));
}

TEST_F(IslandProcesses, AStrangerIsRefusedAndNamedByTheHub) {
  Process hub({.args = words("islands", {})});
  keep_secret("theirs", kTheirs);
  const Finished stranger = testing::weft(island(1, {"islands.secret_file=" + (dir_ / "theirs").string()}));
  EXPECT_EQ(stranger.status, 2);
  EXPECT_SAYS(stranger.err, "has it the same secret?");
  hub.send(SIGTERM);
  const Finished end = hub.wait();
  EXPECT_EQ(end.status, 75);
  EXPECT_SAYS(end.err, "refused: 127.0.0.1:");
  EXPECT_SAYS(end.err, "does not know the secret of these islands");
}

TEST_F(IslandProcesses, TheSecretIsAskedForAndNeverShown) {
  const auto refused = [&](const Words& more) {
    const Finished f = testing::weft(island(0, more));
    EXPECT_EQ(f.status, 2);
    EXPECT_EQ(f.err.find("0123456789"), std::string::npos) << f.err;
    EXPECT_FALSE(fs::exists(dir_ / "0")) << "made before it was refused";
    return f.err;
  };
  keep_secret("open", kOurs, 0640);
  EXPECT_SAYS(refused({"islands.secret_file=" + (dir_ / "open").string()}), "others than its owner may read");
  keep_secret("short", "0123456789\n");
  EXPECT_SAYS(refused({"islands.secret_file=" + (dir_ / "short").string()}), "has 10 bytes, at least 16");
  EXPECT_SAYS(refused({"islands.secret_file=" + (dir_ / "none").string()}), "No such file");
  EXPECT_SAYS(refused({"islands.secret_file=" + dir_.path().string()}), "is no regular file");
  EXPECT_SAYS(refused({"islands.secret_file="}), "WEFT_ISLANDS_SECRET in the environment");
  const Finished plain = testing::weft(words("islands", {"islands.count=0"}));
  EXPECT_EQ(plain.status, 2);
  EXPECT_SAYS(plain.err, "there is nothing to be the hub of");
}

// A plain run is no island's, nor the other way round.
TEST_F(IslandProcesses, ARunIsNotResumedAsAnother) {
  testing::Process hub({.args = words("islands", {"islands.count=1"})});
  EXPECT_EQ(testing::weft(island(0, {"islands.count=1"})).status, 0);
  hub.wait();
  const Finished other = testing::weft(island(0, {"islands.count=1", "islands.outer_lr=0.5"}));
  EXPECT_EQ(other.status, 2);
  EXPECT_SAYS(other.err, "islands.outer_lr: 0.7 there, 0.5 here");
}

}  // namespace
}  // namespace weft
