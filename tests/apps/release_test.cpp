// What is written for others, under a policy.
#include "weft/apps/release.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"
#include "weft/history/chained_log.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class Releases : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_ / "model");
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy_file(fs::path(testing::kSourceDir) / "tests/golden/llama-gqa" / file, dir_ / "model" / file);
  }
  int release() {
    return released({.command = "export",
                     .models = {(dir_ / "model").string()},
                     .policies = {},
                     .results = "",
                     .to = (dir_ / "out").string()},
                    [this] { return ++written_, 0; });
  }
  std::vector<std::string> logged() {
    std::vector<std::string> all;
    EXPECT_EQ(check_log(log_).fault, "");
    for (const std::string& line : testing::lines_of(testing::slurp(log_)))
      all.push_back(nlohmann::json::parse(line)["what"].get<std::string>());
    return all;
  }
  testing::TempDir dir_;
  const fs::path log_ = dir_ / "release-log.jsonl";
  int written_ = 0;
};

TEST_F(Releases, WithoutAPolicyAreWrittenAndNotLogged) {
  EXPECT_EQ(release(), 0);
  EXPECT_EQ(written_, 1);
  EXPECT_FALSE(fs::exists(log_));
}

TEST_F(Releases, ThatAPolicyRefusesAreLoggedAndNotWritten) {
  testing::spill(dir_ / "policy.toml", "licences = [\"mit\"]\n");
  EXPECT_SAYS(error_of<Error>([this] { release(); }), "model model: its licence is not known");
  EXPECT_EQ(written_, 0);
  ASSERT_EQ(logged(), std::vector<std::string>{"refused"});
  const auto entry = nlohmann::json::parse(testing::slurp(log_));
  EXPECT_EQ(entry["by"], name_of_user());
  EXPECT_EQ(entry["reasons"].size(), 1u);
  EXPECT_EQ(entry["models"][0]["parts"][0]["licence"], "unknown");
}

TEST_F(Releases, ThatAPolicyAllowsAreLoggedBeforeAndBehind) {
  testing::spill(dir_ / "policy.toml", "licences = [\"mit\"]\n");
  testing::spill(dir_ / "model/README.md", "---\nlicense: mit\n---\n");
  EXPECT_EQ(release(), 0);
  EXPECT_EQ(written_, 1);
  EXPECT_EQ(logged(), (std::vector<std::string>{"allowed", "written"}));
}

TEST_F(Releases, AskThePoliciesOfACheckpointsRunAndOfTheFolderAroundIt) {
  fs::create_directories(dir_ / "runs/first/checkpoints/step-4");
  testing::spill(dir_ / "runs/policy.toml", "");
  testing::spill(dir_ / "runs/first/policy.toml", "");
  testing::spill(dir_ / "policy.toml", "");  // too far away
  EXPECT_EQ(policies_around(dir_ / "runs/first/checkpoints/step-4").size(), 2u);
  EXPECT_EQ(policies_around(dir_ / "runs/first").size(), 2u);
  testing::spill(dir_ / "runs/first/checkpoints/policy.toml", "");
  EXPECT_EQ(policies_around(dir_ / "runs/first/checkpoints/step-4").size(), 3u);
  EXPECT_EQ(policies_around(dir_ / "runs/first").size(), 3u) << "whose checkpoint is released";
}

}  // namespace
}  // namespace weft
