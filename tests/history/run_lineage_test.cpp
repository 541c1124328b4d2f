// What came of what, as runs' records say it.
#include "weft/history/run_lineage.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "history/run_folders.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::facts_of;
using testing::make_run;
using testing::make_saved;
using testing::TempDir;

// base -> step-4 -> sft (model.path) -> step-4 -> two more: by --from, and as a teacher.
class Family : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path base = make_run(real_ / "base");
    make_saved(base, 2);
    make_saved(base, 4);
    const fs::path sft = make_run(real_ / "sft", {.model = "base/checkpoints/step-4"});
    make_saved(sft, 4);
    append_attempt(make_run(real_ / "on"), {.folder = real_, .from = real_ / "sft/checkpoints/step-4"});
    make_saved(make_run(real_ / "student", {.more = "[objective]\nteacher = \"sft/checkpoints/step-3\"\n"}), 4);
    for (const char* name : {"base", "sft", "on", "student"}) runs_.push_back(read_run_facts(real_ / name));
  }
  std::string at(const std::string& name) const { return (real_ / name).string(); }
  TempDir dir_;
  const fs::path real_ = fs::canonical(dir_.path());
  std::vector<RunFacts> runs_;
};

TEST_F(Family, IsToldBothWays) {
  const Lineage all = lineage_of(runs_);
  const std::string text = lineage_text(lineage_around(all, at("sft")), at("sft"));
  const size_t became = text.find("became");
  ASSERT_NE(became, std::string::npos) << text;
  const std::string before = text.substr(0, became), behind = text.substr(became);
  EXPECT_SAYS(before, "checkpoint " + at("base/checkpoints/step-4") + ", as model.path\n");
  EXPECT_SAYS(before, "run " + at("base") + " (finished)\n");
  EXPECT_SAYS(before, "model " + at("base-model") + ", as model.path\n");
  EXPECT_SAYS(before, "file tokens.bin, contents c0ffee, as data");
  EXPECT_EQ(before.find("step-2"), std::string::npos) << "another checkpoint of an ancestor is no ancestor";
  EXPECT_SAYS(behind, "run " + at("on") + " (");
  EXPECT_SAYS(behind, "checkpoint " + at("sft/checkpoints/step-3") + " (is gone)\n");
  EXPECT_SAYS(behind, "run " + at("student") + " (finished), as objective.teacher\n");
  EXPECT_EQ(behind.find(at("base")), std::string::npos);
}

TEST_F(Family, OfTheLastKnowsTheFirst) {
  const Lineage around = lineage_around(lineage_of(runs_), at("on"));
  const auto has = [&](const std::string& path) {
    return std::any_of(around.nodes.begin(), around.nodes.end(), [&](const auto& n) { return n.path == path; });
  };
  EXPECT_TRUE(has(at("base")));
  EXPECT_TRUE(has(at("base-model")));
  EXPECT_FALSE(has(at("student")));
  for (const Lineage::Edge& e : around.edges) {
    EXPECT_LT(e.from, around.nodes.size());
    EXPECT_LT(e.to, around.nodes.size());
  }
  EXPECT_SAYS(error_of<ConfigError>([&] { lineage_around(lineage_of(runs_), "/nowhere"); }), "no run that is known");
}

TEST_F(Family, DependentsAreThoseThatReadInOrBelow) {
  const Dependents dependents(runs_);
  const auto of = [&](const std::string& name) { return dependents.of(at(name)); };
  EXPECT_EQ(of("base/checkpoints/step-4"), std::vector<std::string>{"model.path of " + at("sft")});
  EXPECT_TRUE(of("base/checkpoints/step-2").empty());
  EXPECT_TRUE(of("base/checkpoints/step-40").empty());
  EXPECT_TRUE(of("base/checkpoints/step").empty()) << "the beginning of a name is no folder";
  EXPECT_EQ(of("sft").size(), 2u);
  EXPECT_EQ(dependents.of(at("sft"), {at("on")}).size(), 1u);
}

// Paths of a container, of a project that was moved, of a folder nobody knows.
TEST(Dependents, OfAnInputThatCannotBeFoundAreToldWhereNamesAreTheSame) {
  const auto reads = [](const std::string& input, const std::string& path) {
    const std::vector<RunFacts> runs{{.path = "/nowhere/p/runs/a", .id = "1"},
                                     {.path = "/nowhere/p/runs/b", .id = "2", .inputs = {{"model.path", input}}}};
    return Dependents(runs).of("/nowhere/p/runs/" + path).size() == 1;
  };
  EXPECT_TRUE(reads("/workspace/runs/a/checkpoints/step-4", "a/checkpoints/step-4"));
  EXPECT_TRUE(reads("/workspace/runs/a/checkpoints/step-4/model.safetensors", "a/checkpoints/step-4"));
  EXPECT_TRUE(reads("/workspace/runs/a/checkpoints/step-4", "a"));
  EXPECT_TRUE(reads("runs/a/checkpoints/step-4", "a/checkpoints/step-4"));
  EXPECT_TRUE(reads("checkpoints/step-4", "a/checkpoints/step-4")) << "of which run is not said";
  EXPECT_TRUE(reads("../a/tokens/t.bin", "a/tokens"));
  EXPECT_FALSE(reads("/workspace/runs/c/checkpoints/step-4", "a/checkpoints/step-4")) << "of another run";
  EXPECT_FALSE(reads("/workspace/runs/a/checkpoints/step-4", "a/checkpoints/step-3"));
  EXPECT_FALSE(reads("/workspace/runs/ab/checkpoints/step-4", "a"));
  const std::vector<RunFacts> one{{.path = "/nowhere/b", .id = "3", .inputs = {{"model.path", "base"}}}};
  EXPECT_SAYS(Dependents(one).not_found(), "1 input of runs cannot be found, as model.path of /nowhere/b: \"base\"");
  EXPECT_EQ(Dependents({}).not_found(), "");
}

// A recipe can say anything.
TEST(Lineage, GoesInCirclesWithoutEnd) {
  const TempDir dir;
  const fs::path real = fs::canonical(dir.path());
  const std::vector<RunFacts> runs{facts_of(real / "a", {.model = "b"}), facts_of(real / "b", {.model = "a"})};
  const Lineage all = lineage_of(runs);
  const std::string text = lineage_text(lineage_around(all, (real / "a").string()), (real / "a").string());
  EXPECT_SAYS(text, "(see above)");
}

TEST(Lineage, IsDrawnWithNamesOfAnyKind) {
  Lineage l;
  l.nodes = {{.kind = OriginKind::run, .path = "/r/\"<script>\n"},
             {.kind = OriginKind::checkpoint, .path = "/r/back\\"}};
  l.edges = {{.from = 0, .to = 1, .role = "saved"}};
  const std::string dot = lineage_dot(l);
  EXPECT_SAYS(dot, "n1 [label=\"checkpoint /r/back\\\\\"];");
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '\n'), 7) << dot;
  EXPECT_SAYS(dot, "n0 -> n1 [label=\"saved\"];");
}

}  // namespace
}  // namespace weft
