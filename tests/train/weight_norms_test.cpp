// Norms of weights and update ratios: those of two checkpoints, on any layout.
#include <cmath>

#include "support.h"
#include "train/golden.h"
#include "train/reference_machine.h"
#include "weft/apps/backends.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using NormLines = std::vector<nlohmann::json>;

const fs::path kNormModels = fs::path(testing::kSourceDir) / "tests/golden";

class WeightNormsRun : public ::testing::Test {
 protected:
  // A golden model, three steps; `more` overrides.
  void train(const std::string& run, const std::vector<std::string>& more, const std::string& model = "llama-gqa") {
    std::vector<std::string> all{"train.seq_length=8",
                                 "train.global_batch_size=8",
                                 "train.micro_batch_size=1",
                                 "train.train_iters=3",
                                 "train.log_grad_norms=false",
                                 "train.log_weight_norms=2",
                                 "run.backend=ref",
                                 "run.threads=1",
                                 "checkpoint.save_interval=1",
                                 "checkpoint.keep_latest=0",
                                 "optimizer.lr_warmup_iters=1"};
    all.insert(all.end(), more.begin(), more.end());
    const Recipe recipe = testing::golden_recipe(kNormModels / model, dir_ / run, all);
    testing::train(recipe,
                   recipe.run.backend == BackendKind::ref ? testing::reference_machine(1) : machine_for(recipe));
  }
  NormLines lines_in(const std::string& run, const std::string& file) const {
    NormLines lines;
    std::istringstream in(testing::slurp(dir_ / run / file));
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  NormLines lines_of(const std::string& run) const { return lines_in(run, "weight_norms.jsonl"); }
  NormLines events_of(const std::string& run, const std::string& kind) const {
    NormLines events = lines_in(run, "events.jsonl");
    std::erase_if(events, [&](const nlohmann::json& e) { return e["event"] != kind; });
    return events;
  }
  std::vector<double> weight(const std::string& run, int64_t step, const std::string& tensor) const {
    const auto file = SafetensorsFile::open(dir_ / run / fmt::format("checkpoints/step-{}/model.safetensors", step));
    const SafetensorsEntry* entry = file.find(tensor);
    EXPECT_NE(entry, nullptr) << tensor;
    EXPECT_EQ(entry->dtype, FileDType::f64);
    const auto bytes = file.bytes(*entry);
    std::vector<double> all(bytes.size() / sizeof(double));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }
  testing::TempDir dir_;
};

double norm_of(const std::vector<double>& x) {
  double squares = 0;
  for (const double one : x) squares += one * one;
  return std::sqrt(squares);
}

TEST_F(WeightNormsRun, AreThoseOfTwoCheckpoints) {
  train("one", {});
  const NormLines lines = lines_of("one");
  ASSERT_EQ(lines.size(), 2u) << "the first step, and the second";
  EXPECT_EQ(lines[0]["step"], 1);
  const nlohmann::json& line = lines[1];
  EXPECT_EQ(line["step"], 2);
  ASSERT_GT(line["weight_norm"].size(), 20u);
  ASSERT_EQ(line["update_ratio"].size(), line["weight_norm"].size());
  for (const auto& [tensor, norm] : line["weight_norm"].items()) {
    const std::vector<double> before = weight("one", 1, tensor), after = weight("one", 2, tensor);
    std::vector<double> change = after;
    for (size_t i = 0; i < change.size(); ++i) change[i] -= before[i];
    EXPECT_NEAR(norm.get<double>(), norm_of(after), 1e-12 * norm_of(after)) << tensor;
    const double ratio = norm_of(change) / norm_of(before);
    EXPECT_GT(ratio, 0) << tensor;
    EXPECT_NEAR(line["update_ratio"][tensor].get<double>(), ratio, 1e-12 * ratio) << tensor;
  }
}

void expect_same_norms(const NormLines& lines, const NormLines& one) {
  ASSERT_EQ(lines.size(), one.size());
  for (size_t i = 0; i < one.size(); ++i)
    for (const char* what : {"weight_norm", "update_ratio"}) {
      ASSERT_EQ(lines[i][what].size(), one[i][what].size());
      for (const auto& [tensor, x] : one[i][what].items())
        EXPECT_NEAR(lines[i][what][tensor].get<double>(), x.get<double>(), 1e-11 * x.get<double>())
            << what << " " << tensor;
    }
}

TEST_F(WeightNormsRun, AreTheSameOnAnyLayout) {
  int run = 0;
  const auto name = [&] { return fmt::format("run{}", run++); };
  const auto compare = [&](const std::string& model, const std::vector<std::string>& layouts) {
    const std::string alone = name();
    train(alone, {}, model);
    const NormLines one = lines_of(alone);
    for (const std::string& layout : layouts) {
      SCOPED_TRACE(model + " " + layout);
      std::vector<std::string> more;
      std::istringstream words(layout);
      for (std::string word; words >> word;) more.push_back("parallel." + word);
      const std::string cut = name();
      train(cut, more, model);
      expect_same_norms(lines_of(cut), one);
    }
  };
  compare("llama-gqa", {"dp=2 zero_stage=3", "tp=2", "pp=2", "dp=2 tp=2 zero_stage=1", "cp=2"});
  compare("llama3-rope-tied", {"pp=2", "dp=2 pp=2 zero_stage=2"});
  compare("mixtral", {"dp=2 ep=2", "dp=4 ep=2 zero_stage=2"});
}

TEST_F(WeightNormsRun, OneThatIsStartedAnewMeasuresItsFirstStep) {
  train("anew", {"train.log_weight_norms=100", "train.train_iters=2"});
  train("anew", {"train.log_weight_norms=100"});
  const NormLines lines = lines_of("anew");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[1]["step"], 3);
}

TEST_F(WeightNormsRun, AStepThatIsSkippedHasNone) {
  train("fp16", {"run.backend=cpu", "train.precision=fp16", "train.log_weight_norms=1", "train.train_iters=20",
                 "checkpoint.save_interval=0", "train.initial_loss_scale=1073741824", "train.hysteresis=1"});
  std::vector<int64_t> updated, measured;
  int64_t skipped = 0;
  for (const nlohmann::json& record : lines_in("fp16", "metrics.jsonl")) {
    if (!record.contains("skipped_steps")) continue;
    const auto now = record["skipped_steps"].get<int64_t>();
    if (now == skipped) updated.push_back(record["step"]);
    skipped = now;
  }
  for (const nlohmann::json& line : lines_of("fp16")) measured.push_back(line["step"]);
  EXPECT_GT(skipped, 0);
  EXPECT_GT(updated.size(), 0u);
  EXPECT_EQ(measured, updated);
}

TEST_F(WeightNormsRun, AnUpdateThatIsTooLargeIsAnEvent) {
  train("calm", {});
  EXPECT_EQ(events_of("calm", "large_update").size(), 0u);
  train("wild", {"parallel.dp=2", "optimizer.lr=0.3", "optimizer.min_lr=0.3"});
  const NormLines events = events_of("wild", "large_update");
  ASSERT_EQ(events.size(), 1u) << "of one rank, and not again while it is so";
  EXPECT_EQ(events[0]["step"], 1);
  const std::string tensor = events[0]["tensor"];
  EXPECT_EQ(events[0]["update_ratio"], lines_of("wild")[0]["update_ratio"][tensor]);
  EXPECT_GT(events[0]["update_ratio"], events[0]["limit"]);
  EXPECT_SAYS(events[0]["reason"].get<std::string>(), "the update changed " + tensor + " by ");
}

TEST_F(WeightNormsRun, NothingIsRecordedUnlessAskedFor) {
  train("off", {"train.log_weight_norms=0"});
  EXPECT_FALSE(fs::exists(dir_ / "off/weight_norms.jsonl"));
}

}  // namespace
}  // namespace weft
