// Phases from the outside: what weft plan and weft train say of them, and refuse before a run begins.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/models.h"
#include "apps/program.h"

namespace weft {
namespace {

using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

class Place {
 public:
  Place() {
    std::filesystem::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kOneLayer);
    spill(dir_ / "text.txt", std::string(2000, 'a'));
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  Finished run(const std::string& command, const std::string& phases, std::vector<std::string> settings = {}) const {
    spill(dir_ / "r.toml",
          "[model]\npath = \"" + at("model") + "\"\ninit = \"random\"\n[data]\ntrain = \"" + at("text.txt") +
              "\"\n[train]\ntrain_iters = 4\nseq_length = 16\nglobal_batch_size = 2\n"
              "micro_batch_size = 2\n[optimizer]\nlr = 1e-2\nlr_scaling = \"linear\"\n[run]\nbackend = "
              "\"ref\"\ndir = \"" +
              at("run") + "\"\n" + phases);
    settings.insert(settings.begin(), {command, at("r.toml")});
    return weft(settings);
  }

 private:
  TempDir dir_;
};

const std::string kGrows = "[[phase]]\nfrom_step = 2\ntrain.global_batch_size = 6\n",
                  kLonger = kGrows + "[[phase]]\nfrom_step = 3\ntrain.seq_length = 32\n";

TEST(PhasesOfAProgram, EachIsPlannedAndPrintedBeforeTheRun) {
  const Place p;
  const std::string grown =
      "phase 1, step 2: 6 samples of 16 tokens, 2 at a time; learning rate 0.03 at most (0.01 x 3, by "
      "optimizer.lr_scaling = \"linear\"); ";
  const Finished plan = p.run("plan", kLonger);
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_SAYS(plan.out, "at first, steps 0 to 1: 2 samples of 16 tokens");
  EXPECT_SAYS(plan.out, grown);
  EXPECT_SAYS(plan.out, "phase 2, step 3: 6 samples of 32 tokens");
  const auto json = nlohmann::json::parse(p.run("plan", kLonger, {"--json"}).out);
  ASSERT_EQ(json["phases"].size(), 3u);
  EXPECT_EQ(json["phases"][2]["seq_length"], 32);
  EXPECT_EQ(json["phases"][2]["total_bytes"], json["total_bytes"]) << "the one that takes most";
  EXPECT_GT(json["phases"][2]["total_bytes"], json["phases"][0]["total_bytes"]);
  const Finished train = p.run("train", kLonger);
  ASSERT_EQ(train.status, 0) << train.err;
  EXPECT_SAYS(train.err, grown);
  EXPECT_SAYS(train.err, "step 2: phase 1, step 2: 6");
  EXPECT_SAYS(slurp(p.at("run/metrics.jsonl")), "\"phase\":2,\"global_batch_size\":6,\"seq_length\":32}");
}

TEST(PhasesOfAProgramSlow, APhaseThatCannotRunIsRefusedBeforeTheFirstStep) {
  const Place p;
  const std::string missing =
      "[[phase]]\nfrom_step = 3\ndata.train = \"nowhere.txt\"\noptimizer.lr_scaling = \"none\"\n";
  for (const std::string& bad :
       {kGrows + "[[phase]]\nfrom_step = 3\ntrain.seq_length = 2000000000\ntrain.micro_batch_size = 6\n",
        kGrows + "[[phase]]\nfrom_step = 3\ntrain.micro_batch_size = 4\n", kGrows + missing}) {
    const Finished f = p.run("train", bad);
    EXPECT_NE(f.status, 0) << f.err;
    EXPECT_FALSE(std::filesystem::exists(p.at("run"))) << f.err;
  }
}

}  // namespace
}  // namespace weft
