// The examples of docs/tune/better.md, shortened: what is trained is better than before, not only different.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "weft/tasks/sandbox.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class BetterSlow : public ::testing::Test {
 protected:
  void SetUp() override {
    python_ = find_python();
    if (python_.empty()) GTEST_SKIP() << "there is no python3";
    fs::copy(std::string(testing::kSourceDir) + "/examples", dir_ / "examples", fs::copy_options::recursive);
  }
  json chapter(const std::string& name) {
    const auto f = testing::run(
        {.args = {(dir_ / "examples/better/run.py").string(), "--weft", testing::kProgram, "--short", name},
         .program = python_});
    EXPECT_EQ(f.status, 0) << f.out << f.err;
    if (f.status != 0) return {};
    std::cout << f.out.substr(f.out.rfind("\n" + name + ":"));
    EXPECT_TRUE(fs::exists(dir_ / "runs/better" / (name + ".svg")));
    return json::parse(testing::slurp(dir_ / "runs/better" / (name + ".json")));
  }
  std::string python_;
  testing::TempDir dir_;
};

double first(const json& mean_and_error) { return mean_and_error.at(0).get<double>(); }
// The standard error of the difference of two means.
double error_of(const json& a, const json& b) { return std::hypot(a.at(1).get<double>(), b.at(1).get<double>()); }

// The chapters share the base and what was trained before them.
TEST_F(BetterSlow, IsWhatEachRecipeMakesOfItsModel) {
  const json sft = chapter("sft")["accuracy"], after = sft["after SFT"];
  for (const auto& [model, accuracy] : sft.items()) {
    if (model != "after SFT") { EXPECT_GT(first(after) - first(accuracy), 2 * error_of(after, accuracy)) << model; }
  }

  const json dpo = chapter("dpo");
  EXPECT_GT(first(dpo["answers"]["DPO wins, by the reward model"]), 0.6);
  EXPECT_GT(dpo["held-out pairs"]["margin"], 0.2);
  EXPECT_GT(dpo["held-out pairs"]["accuracy"], 0.6);

  EXPECT_GT(first(chapter("distill")["gain"]), 0.01);

  const json exported = chapter("export");  // more loss than is stated is refused
  ASSERT_EQ(exported["loss"].size(), 4u);
  for (const auto& [way, loss] : exported["loss"].items()) EXPECT_LE(loss["rise"], loss["at most"]) << way;
}

}  // namespace
}  // namespace weft
