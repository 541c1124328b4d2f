// A run that names the folder of a dataset, whose sources have weights: it goes on, is told apart, and tells its story.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/models.h"
#include "apps/program.h"
#include "weft/records/metrics_log.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

// Two sources, the smaller with the larger weight, and a recipe that names the folder.
class Weighted {
 public:
  Weighted() {
    fs::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kOneLayer);
    std::string toml = "[run]\ndir = \"" + at("set") + "\"\n";
    for (const auto& [name, rows] : std::map<std::string, int>{{"few", 20}, {"many", 60}}) {
      std::ofstream out(dir_ / (name + ".jsonl"));
      for (int i = 0; i < rows; ++i) out << "{\"text\": \"" << name << " row " << i << " of a file\"}\n";
      toml += "[[source]]\nname = \"" + name + "\"\nfiles = [\"" + at(name + ".jsonl") +
              "\"]\nweight = " + (name == "few" ? "3" : "1") + "\n";
    }
    spill(dir_ / "p.toml", toml + "[tokens]\nvalid_fraction = 0.2\n");
    const Finished made = weft({"data", "run", at("p.toml")});
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_NE(made.out.find("data.train = \"" + at("set") + "\"\ndata.valid = \"" + at("set") + "\"\n"),
              std::string::npos)
        << made.out;
    spill(dir_ / "r.toml", "[model]\npath = \"" + at("model") + "\"\ninit = \"random\"\n[data]\ntrain = \"" +
                               at("set") + "\"\nvalid = \"" + at("set") +
                               "\"\n[train]\nseq_length = 32\nglobal_batch_size = 4\nmicro_batch_size = 2\n"
                               "train_iters = 4\n[checkpoint]\nsave_interval = 2\nkeep_latest = 0\n[run]\n"
                               "backend = \"ref\"\n");
  }
  Finished train(const std::string& run, std::vector<std::string> settings = {}) const {
    settings.insert(settings.begin(), {"train", at("r.toml"), "run.dir=" + at(run)});
    return weft(settings);
  }
  // As if the run had stopped after its second step.
  void cut(const std::string& run) const { fs::remove_all(dir_ / run / "checkpoints/step-4"); }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  std::vector<std::string> as_files(const std::string& weights = "[3.0, 1.0]") const {
    const std::string prefix = at("set/tokens/");
    return {"data.train=[\"" + prefix + "train-few-00000\", \"" + prefix + "train-many-00000\"]",
            "data.valid=[\"" + prefix + "valid-few-00000\", \"" + prefix + "valid-many-00000\"]",
            "data.weights=" + weights};
  }
  std::vector<double> losses(const std::string& run) const {
    std::vector<double> all;
    const auto log = read_metrics(dir_ / run / "metrics.jsonl");
    for (const StepRecord& r : log.steps) all.push_back(r.loss);
    for (const EvalRecord& r : log.evals) all.push_back(r.loss);
    return all;
  }

 private:
  TempDir dir_;
};

TEST(Dataset, NamedByItsFolderKnowsItsSourcesInEveryStory) {
  const Weighted w;
  const Finished trained = w.train("run");
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(w.losses("run").size(), 5u);
  const std::string version = nlohmann::json::parse(slurp(w.at("set/manifest.json")))["version"];
  const auto data = nlohmann::json::parse(slurp(w.at("run/data.json")))["train"];
  ASSERT_EQ(data.size(), 2u);
  for (const auto& file : data) EXPECT_EQ(file["version"], version);
  std::map<std::string, int> times;
  for (const char* step : {"1", "3"})
    for (const char* sample : {"0", "1", "2", "3"}) {
      const Finished why = weft({"data", "why", w.at("run"), "--step", step, "--sample", sample, "--json"});
      ASSERT_EQ(why.status, 0) << why.err;
      const auto json = nlohmann::json::parse(why.out);
      EXPECT_EQ(json["dataset"]["version"], version);
      const std::string source = json["documents"][0]["source"];
      EXPECT_NE(json["file"].get<std::string>().find("train-" + source), std::string::npos);
      ++times[source];
    }
  EXPECT_EQ(times, (std::map<std::string, int>{{"few", 6}, {"many", 2}}));
}

TEST(DatasetSlow, AndItsFilesAreOneRun) {
  const Weighted w;
  ASSERT_EQ(w.train("folder").status, 0);
  const Finished files = w.train("files", w.as_files());
  ASSERT_EQ(files.status, 0) << files.err;
  EXPECT_EQ(w.losses("folder"), w.losses("files"));
  const std::vector<double> whole = w.losses("folder");
  w.cut("folder");
  Finished resumed = w.train("folder", w.as_files());
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(w.losses("folder"), whole);
  w.cut("folder");
  resumed = w.train("folder");
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(w.losses("folder"), whole);
  w.cut("folder");
  resumed = w.train("folder", w.as_files("[1.0, 1.0]"));
  EXPECT_EQ(resumed.status, 2);
  EXPECT_NE(resumed.err.find("data.weights: [] there, [1.0, 1.0] here"), std::string::npos) << resumed.err;
}

TEST(DatasetSlow, OtherWeightsUnderARunAreRefused) {
  const Weighted w;
  ASSERT_EQ(w.train("run").status, 0);
  w.cut("run");
  std::string pipeline = slurp(w.at("p.toml"));
  spill(w.at("p.toml"), pipeline.replace(pipeline.find("weight = 3"), 10, "weight = 2"));
  ASSERT_EQ(weft({"data", "run", w.at("p.toml"), "--again"}).status, 0);
  const Finished resumed = w.train("run");
  EXPECT_EQ(resumed.status, 1);
  EXPECT_NE(resumed.err.find("the files are the same, but not their weights"), std::string::npos) << resumed.err;
  EXPECT_NE(weft({"data", "why", w.at("run"), "--step", "1"})
                .err.find("or their weights, are not those with which the run began"),
            std::string::npos);
}

TEST(DatasetSlow, GivesTheSameRunOnAnyLayout) {
  const Weighted w;
  ASSERT_EQ(w.train("one", {"train.numerics=invariant"}).status, 0);
  for (const char* layout : {"parallel.dp=2", "parallel.tp=2"}) {
    const Finished f = w.train(layout, {"train.numerics=invariant", layout});
    ASSERT_EQ(f.status, 0) << f.err;
    const auto one = w.losses("one"), many = w.losses(layout);
    ASSERT_EQ(one.size(), many.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], many[i], 1e-11) << layout;
    EXPECT_EQ(slurp(w.at("one/data.json")), slurp(w.at(std::string(layout) + "/data.json")));
  }
}

TEST(Dataset, ThatIsNotCompleteIsRefusedBeforeARunFolderIsMade) {
  const Weighted w;
  fs::remove(w.at("set/manifest.json"));
  const Finished f = w.train("run");
  EXPECT_EQ(f.status, 1);
  EXPECT_NE(f.err.find("set: is a dataset that is not complete"), std::string::npos) << f.err;
  EXPECT_FALSE(fs::exists(w.at("run")));
  EXPECT_EQ(weft({"plan", w.at("r.toml")}).status, 0);  // which touches no data
}

TEST(DatasetSlow, IsEvaluatedByWhatItHoldsOutAndVerified) {
  const Weighted w;
  ASSERT_EQ(w.train("run").status, 0);
  const Finished eval = weft({"eval", w.at("run"), w.at("set"), "--seq-length", "32", "--backend", "ref", "--json"});
  ASSERT_EQ(eval.status, 0) << eval.err;
  EXPECT_NEAR(nlohmann::json::parse(eval.out)["loss"], w.losses("run").back(), 1e-9);
  const Finished verified = weft({"verify", w.at("r.toml"), "parallel.dp=2"});
  EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
}

}  // namespace
}  // namespace weft
