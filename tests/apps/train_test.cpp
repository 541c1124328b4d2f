// `weft train` from the outside: what a run leaves behind, and that nothing which stops it changes its result.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "apps/models.h"
#include "apps/program.h"
#include "token_files.h"
#include "weft/data/token_source.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of_folder;
using testing::Command;
using testing::Finished;
using testing::Process;
using testing::run;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

constexpr const char* kRecipe = R"([model]
path = "DIR/model"
init = "random"
[data]
train = ["DIR/text.txt"]
[train]
seq_length = 16
global_batch_size = 4
micro_batch_size = 2
train_iters = 6
[optimizer]
lr = 1e-2
lr_warmup_iters = 2
[checkpoint]
save_interval = 2
keep_latest = 0
[run]
dir = "DIR/run"
backend = "ref"
)";

// A folder with a tiny model's config, some text and a recipe for both.
class Workplace {
 public:
  Workplace() {
    fs::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kTwoLayers);
    std::string text;
    for (int i = 0; i < 200; ++i) text += "Line " + std::to_string(i * i) + " of a text that says little.\n";
    spill(dir_ / "text.txt", text);
    spill(dir_ / "r.toml", testing::placed_in(dir_.path(), kRecipe));
  }
  fs::path operator/(const std::string& name) const { return dir_ / name; }
  // The command that trains in the folder `name`.
  Command command(const std::string& name, std::vector<std::string> settings = {}) const {
    std::vector<std::string> args{"train", (dir_ / "r.toml").string(), "run.dir=" + (dir_ / name).string()};
    args.insert(args.end(), settings.begin(), settings.end());
    return {.args = args};
  }
  Finished train(const std::string& name, std::vector<std::string> settings = {}) const {
    return run(command(name, std::move(settings)));
  }

 private:
  TempDir dir_;
};

std::vector<nlohmann::json> records(const fs::path& run) {
  std::vector<nlohmann::json> all;
  std::istringstream in(slurp(run / "metrics.jsonl"));
  for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

// Everything that two equal runs share: all but times and names of folders.
void expect_same_result(const fs::path& a, const fs::path& b, int64_t last_step) {
  const auto records_a = records(a), records_b = records(b);
  ASSERT_EQ(records_a.size(), records_b.size());
  for (size_t i = 0; i < records_a.size(); ++i) {
    for (const char* field : {"step", "loss", "grad_norm", "lr"})
      EXPECT_EQ(records_a[i][field], records_b[i][field]) << field << " of record " << i;
  }
  const std::string last = "checkpoints/step-" + std::to_string(last_step);
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors", "weft/state.json", "config.json"}) {
    ASSERT_TRUE(fs::exists(a / last / file)) << a / last / file;
    EXPECT_TRUE(slurp(a / last / file) == slurp(b / last / file)) << file << " differs";
  }
}

// Waits until a run has written this many records.
bool wait_for_records(Process& process, const fs::path& run, size_t count) {
  while (process.running()) {
    const std::string text = slurp(run / "metrics.jsonl");
    if (size_t(std::count(text.begin(), text.end(), '\n')) >= count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

TEST(Train, LeavesOneRecordAStepCheckpointsAndTheResolvedRecipe) {
  const Workplace w;
  const Finished f = w.train("run");
  ASSERT_EQ(f.status, 0) << f.err;
  const auto all = records(w / "run");
  ASSERT_EQ(all.size(), 6u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["step"], i + 1);
    for (const char* field :
         {"loss", "aux_loss", "grad_norm", "lr", "tokens_per_s", "step_time_s", "mfu", "memory_bytes"})
      EXPECT_TRUE(all[i].contains(field) && all[i][field].is_number()) << field;
  }
  EXPECT_NEAR(all[0]["loss"].get<double>(), std::log(257.0), 0.2);
  EXPECT_LT(all[5]["loss"], all[0]["loss"]);
  EXPECT_EQ(all[0]["lr"], 5e-3);  // half way up
  EXPECT_EQ(all[1]["lr"], 1e-2);
  for (const char* name : {"step-2", "step-4", "step-6"}) EXPECT_TRUE(fs::is_directory(w / "run/checkpoints" / name));
  EXPECT_SAYS(slurp(w / "run/recipe.toml"), "train_iters = 6");
  EXPECT_SAYS(slurp(w / "run/recipe.toml"), "adam_beta2 = 0.95");  // a default
  EXPECT_SAYS(slurp(w / "run/loss.svg"), "<svg");
}

TEST(Train, SettingsThatChangeNothingOnOneRankAreNoted) {
  const Workplace at;
  const Finished done = run(at.command("r", {"train.train_iters=1", "optimizer.lr_warmup_iters=0",
                                             "parallel.zero_stage=2", "parallel.pipeline_schedule=zb_h1"}));
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_NE(done.err.find("note: parallel.zero_stage = 2 divides nothing at parallel.dp = 1"), std::string::npos);
  EXPECT_NE(done.err.find("note: parallel.pipeline_schedule = \"zb_h1\" orders nothing"), std::string::npos);
}

TEST(Train, MeasuresTheMemoryThatThePlanForetold) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  const Finished plan = weft({"plan", (w / "r.toml").string(), "--json"});
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(nlohmann::json::parse(plan.out)["total_bytes"], records(w / "run")[0]["memory_bytes"]);
}

TEST(Train, CheckpointsAndRunsCanBeInspectedContinuedAndMeasured) {
  const Workplace w;
  ASSERT_EQ(w.train("run", {"checkpoint.keep_latest=1"}).status, 0);
  EXPECT_FALSE(fs::exists(w / "run/checkpoints/step-4"));
  const Finished checkpoint = weft({"inspect", (w / "run/checkpoints/step-6").string(), "--json"});
  ASSERT_EQ(checkpoint.status, 0) << checkpoint.err;
  const auto json = nlohmann::json::parse(checkpoint.out);
  EXPECT_EQ(json["kind"], "checkpoint");
  EXPECT_EQ(json["progress"]["step"], 6);
  EXPECT_EQ(json["progress"]["samples"], 24);
  EXPECT_EQ(json["weights"]["dtypes"], "F64");
  EXPECT_EQ(json["optimizer"]["states"], "exp_avg, exp_avg_sq");

  const Finished run = weft({"inspect", (w / "run").string(), "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(nlohmann::json::parse(run.out)["last_step"]["step"], 6);
  EXPECT_EQ(nlohmann::json::parse(run.out)["checkpoints"][0]["name"], "step-6");

  const Finished text = weft({"generate", (w / "run").string(), "--backend", "ref", "--prompt", "Line ", "--max-tokens",
                              "8", "--temperature", "0"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("Line ")) << text.out;

  const Finished eval = weft(
      {"eval", (w / "run").string(), (w / "text.txt").string(), "--backend", "ref", "--seq-length", "16", "--json"});
  ASSERT_EQ(eval.status, 0) << eval.err;
  const double loss = nlohmann::json::parse(eval.out)["loss"];
  EXPECT_LT(loss, std::log(257.0));
  const Finished half = weft(
      {"eval", (w / "run").string(), (w / "text.txt").string(), "--precision", "fp16", "--seq-length", "16", "--json"});
  ASSERT_EQ(half.status, 0) << half.err;
  EXPECT_NEAR(nlohmann::json::parse(half.out)["loss"].get<double>(), loss, 1e-3);
}

TEST(Train, ResumedAtAnyCheckpointEndsAsTheUninterruptedRun) {
  const Workplace w;
  ASSERT_EQ(w.train("whole").status, 0);
  for (const int kept : {2, 4}) {
    const std::string name = "resumed-" + std::to_string(kept);
    fs::copy(w / "whole", w / name, fs::copy_options::recursive);
    for (int step = kept + 2; step <= 6; step += 2)
      fs::remove_all(w / name / "checkpoints" / ("step-" + std::to_string(step)));
    const Finished f = w.train(name);
    ASSERT_EQ(f.status, 0) << f.err;
    expect_same_result(w / "whole", w / name, 6);
  }
}

TEST(Train, StartedAgainWhenDoneItChangesNothing) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  const auto before = bytes_of_folder(w / "run/checkpoints");
  const auto metrics = slurp(w / "run/metrics.jsonl");
  EXPECT_EQ(w.train("run").status, 0);
  EXPECT_TRUE(bytes_of_folder(w / "run/checkpoints") == before);
  EXPECT_EQ(slurp(w / "run/metrics.jsonl"), metrics);
}

TEST(Train, InvariantNumericsDropoutAndRecomputationResumeToTheBitToo) {
  const Workplace w;
  const std::vector<std::string> settings{"train.numerics=invariant", "model.hidden_dropout=0.2",
                                          "model.attention_dropout=0.1", "parallel.recompute=full"};
  ASSERT_EQ(w.train("whole", settings).status, 0);
  fs::copy(w / "whole", w / "resumed", fs::copy_options::recursive);
  for (const char* step : {"step-4", "step-6"}) fs::remove_all(w / "resumed/checkpoints" / step);
  const Finished f = w.train("resumed", settings);
  ASSERT_EQ(f.status, 0) << f.err;
  expect_same_result(w / "whole", w / "resumed", 6);
}

// --- what a resumed run refuses ---

TEST(Train, AModelThatChangedUnderACheckpointIsRefusedByField) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  fs::remove_all(w / "run/checkpoints/step-6");
  spill(w / "model/config.json",
        std::string(testing::kTwoLayers).replace(std::string(testing::kTwoLayers).find("1e-5"), 4, "1e-3"));
  const Finished f = w.train("run");
  EXPECT_EQ(f.status, 1);
  EXPECT_SAYS(f.err, "config.json has changed: rms_norm_eps: 1e-05 there, 0.001 now");
}

TEST(Train, ACheckpointWhoseStateIsOfAnotherRunIsRefused) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  fs::remove_all(w / "run/checkpoints/step-6");
  fs::remove_all(w / "run/checkpoints/step-2");
  fs::remove(w / "run/checkpoints/step-4/weft/manifest.json");  // of format 1: with hashes, no such change passes
  auto state = nlohmann::json::parse(slurp(w / "run/checkpoints/step-4/weft/state.json"));
  state["format"] = 1;
  state["seed"] = 99;
  spill(w / "run/checkpoints/step-4/weft/state.json", state.dump());
  EXPECT_SAYS(w.train("run").err, "seed 99");
  state["step"] = 2;
  spill(w / "run/checkpoints/step-4/weft/state.json", state.dump());
  EXPECT_SAYS(w.train("run").err, "state.json says step 2");
}

// Finite loss, finite gradients, and an update that no weight survives: the checkpoint before it stays.
TEST(Train, WeightsThatAreNoNumbersAreNotSaved) {
  const Workplace w;
  const std::vector<std::string> wild{"optimizer.lr=1e300", "optimizer.lr_warmup_iters=0", "optimizer.name=sgd"};
  const Finished f = w.train("run", {wild[0], wild[1], wild[2], "train.train_iters=1", "run.backend=cpu"});
  EXPECT_EQ(f.status, 88) << f.err;
  EXPECT_SAYS(f.err, "values are not finite after the update; it is not saved");
  EXPECT_FALSE(fs::exists(w / "run/checkpoints/step-1"));
}

TEST(Train, AFolderIsOfOneRunAtATimeAndARecipeOfTheUsersIsNotReplaced) {
  const Workplace w;
  Process process(w.command("run", {"train.global_batch_size=262144"}));
  while (process.running() && !fs::exists(w / "run/metrics.jsonl"))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_SAYS(w.train("run", {"train.global_batch_size=262144"}).err, "is in use by another weft");
  process.send(SIGKILL);
  process.wait();
  fs::create_directories(w / "own");
  spill(w / "own/recipe.toml", "# mine\n");
  EXPECT_SAYS(w.train("own").err, "exists, and is no run of weft's");
  EXPECT_EQ(slurp(w / "own/recipe.toml"), "# mine\n");
}

// --- what stops a run ---

// Long enough to be interrupted.
const std::vector<std::string> kLong{"train.train_iters=60", "checkpoint.save_interval=5", "checkpoint.keep_latest=2"};

TEST(TrainSlow, InterruptedSavesHasStatus130AndGoesOnToTheSameEnd) {
  const Workplace w;
  ASSERT_EQ(w.train("whole", kLong).status, 0);
  Process process(w.command("stopped", kLong));
  ASSERT_TRUE(wait_for_records(process, w / "stopped", 7));
  process.send(SIGINT);
  const Finished f = process.wait();
  ASSERT_EQ(f.status, 130) << f.err;
  const int64_t last = records(w / "stopped").back()["step"];
  ASSERT_LT(last, 60);
  EXPECT_TRUE(fs::exists(w / "stopped/checkpoints" / ("step-" + std::to_string(last)))) << "stopped without saving";
  ASSERT_EQ(w.train("stopped", kLong).status, 0);
  expect_same_result(w / "whole", w / "stopped", 60);
}

TEST(Train, InterruptedTwiceStopsAtOnceWithoutSaving) {
  const Workplace w;
  const std::vector<std::string> slow{"train.global_batch_size=262144"};  // a step that nobody waits for
  Process process(w.command("run", slow));
  while (process.running() && !fs::exists(w / "run/metrics.jsonl"))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the step begins right after
  process.send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_TRUE(process.running());
  process.send(SIGINT);
  EXPECT_EQ(process.wait().status, 130);
  EXPECT_FALSE(fs::exists(w / "run/checkpoints"));
  EXPECT_EQ(records(w / "run").size(), 0u);
}

TEST(TrainSlow, KilledAtAnyMomentItGoesOnToTheSameEnd) {
  const Workplace w;
  ASSERT_EQ(w.train("whole", kLong).status, 0);
  for (const size_t count : {8u, 11u, 20u, 33u}) {  // before, at and between checkpoints
    Process process(w.command("killed", kLong));
    ASSERT_TRUE(wait_for_records(process, w / "killed", count));
    process.send(SIGKILL);
    EXPECT_EQ(process.wait().status, 128 + SIGKILL);
  }
  const Finished f = w.train("killed", kLong);
  ASSERT_EQ(f.status, 0) << f.err;
  expect_same_result(w / "whole", w / "killed", 60);
}

TEST(Train, OnAFullDiskTheOlderCheckpointStaysAndTheRunCanGoOn) {
  const Workplace w;
  ASSERT_EQ(w.train("whole").status, 0);
  fs::copy(w / "whole", w / "full", fs::copy_options::recursive);
  for (const char* step : {"step-4", "step-6"}) fs::remove_all(w / "full/checkpoints" / step);
  const auto before = bytes_of_folder(w / "full/checkpoints");
  ASSERT_GT(before.at("step-2/weft/optimizer.safetensors").size(), 100000u);

  Command command = w.command("full");
  command.largest_file = 100000;  // the optimizer's state does not fit
  const Finished f = run(command);
  EXPECT_EQ(f.status, 89);
  EXPECT_SAYS(f.err, "until then no save will succeed");                          // before it begins
  EXPECT_SAYS(f.err, "NOT SAVED");                                                // step 4: goes on
  EXPECT_SAYS(f.err, "the last save of the run FAILED, what came after step 2");  // the last one: fails
  EXPECT_TRUE(bytes_of_folder(w / "full/checkpoints") == before) << "what was there is not what it was";

  ASSERT_EQ(w.train("full").status, 0);
  expect_same_result(w / "whole", w / "full", 6);
}

// --- what is refused ---

TEST(Train, DataThatIsNotThereIsNamedBeforeAnythingIsMade) {
  const Workplace work;
  for (const char* ranks : {"local", "mpi"}) {
    for (const std::string key : {"data.train", "data.valid", "data.loss_mask"}) {
      const Finished f = run(work.command("new", {key + "=nowhere.txt", std::string("run.ranks=") + ranks}));
      EXPECT_EQ(f.status, 1) << f.err;
      EXPECT_EQ(f.err, "weft train: error: nowhere.txt: no such file\n");
      EXPECT_FALSE(fs::exists(work / "new"));
    }
  }
}

TEST(Train, ARunFolderOfAnotherRecipeIsRefusedAndNotTouched) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  const auto before = bytes_of_folder(w / "run");
  const Finished f = w.train("run", {"optimizer.lr=0.5", "train.seed=7"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "optimizer.lr: 0.01 there, 0.5 here");
  EXPECT_SAYS(f.err, "train.seed: 1234 there, 7 here");
  EXPECT_TRUE(bytes_of_folder(w / "run") == before);
}

TEST(Train, AFolderThatIsNoRunIsRefusedAndNotTouched) {
  const Workplace w;
  const auto before = bytes_of_folder(w / "model");
  const Finished f = w.train("model");
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "run.dir");
  EXPECT_TRUE(bytes_of_folder(w / "model") == before);
}

TEST(Train, OtherDataThanTheCheckpointsIsRefused) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  fs::remove_all(w / "run/checkpoints/step-6");
  spill(w / "text.txt", std::string(5000, 'x'));
  const Finished f = w.train("run");
  EXPECT_EQ(f.status, 1);
  EXPECT_SAYS(f.err, "training data has changed");
}

TEST(Train, ATokenBeyondTheVocabularyIsNamedWithFileAndOffset) {
  const Workplace w;
  std::vector<int32_t> ids(200, 3);
  ids[10] = 300;
  testing::write_raw_tokens(w / "bad.bin", ids, "uint16");
  const Finished f = w.train("run", {"data.train=" + (w / "bad.bin").string(), "data.shuffle=false"});
  EXPECT_EQ(f.status, 1);
  EXPECT_SAYS(f.err, "bad.bin: token 10 at byte 20 is 300");
}

TEST(Train, ACheckpointThatWasDamagedIsNamed) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  for (const char* step : {"step-2", "step-6"}) fs::remove_all(w / "run/checkpoints" / step);
  const fs::path file = w / "run/checkpoints/step-4/weft/optimizer.safetensors";
  fs::resize_file(file, fs::file_size(file) / 2);
  const Finished f = w.train("run");
  EXPECT_EQ(f.status, 90);
  EXPECT_SAYS(f.err, file.string());
}

TEST(Train, NumbersThatAreNotFiniteStopItNamingStepLayerAndTensor) {
  const Workplace w;
  const std::regex place(R"(first in (embed|head|blocks\.\d\.\w+): \w+\.\w+ \[)");
  const std::pair<const char*, const char*> cases[] = {{"run.backend=ref", "optimizer.lr=1e300"},
                                                       {"run.backend=cpu", "optimizer.lr=1e30"}};
  for (const auto& [backend, lr] : cases) {
    fs::remove_all(w / "run");
    const Finished f = w.train("run", {backend, lr, "optimizer.lr_warmup_iters=0", "run.threads=1"});
    EXPECT_EQ(f.status, 88);
    EXPECT_SAYS(f.err, "step 2: loss");
    EXPECT_TRUE(std::regex_search(f.err, place)) << f.err;
    EXPECT_SAYS(f.err, "weights and checkpoints are those of step 1");
    EXPECT_EQ(records(w / "run").size(), 1u);
  }
}

// --- the fast backend ---

TEST(Train, TheCpuBackendResumesToTheBit) {
  const Workplace w;
  const std::vector<std::vector<std::string>> cases{{"train.precision=bf16", "run.threads=1", "run.backend=cpu"},
                                                    {"train.numerics=invariant", "run.threads=2", "run.backend=cpu"},
                                                    {"optimizer.name=muon", "train.precision=bf16", "run.backend=cpu"},
                                                    {"train.precision=fp16", "train.initial_loss_scale=33554432",
                                                     "train.loss_scale_window=2", "run.threads=1", "run.backend=cpu"}};
  for (const auto& settings : cases) {
    const std::string whole = "whole with " + settings[0], resumed = "resumed with " + settings[0];
    const Finished f = w.train(whole, settings);
    ASSERT_EQ(f.status, 0) << f.err;
    fs::copy(w / whole, w / resumed, fs::copy_options::recursive);
    for (const char* step : {"step-4", "step-6"}) fs::remove_all(w / resumed / "checkpoints" / step);
    ASSERT_EQ(w.train(resumed, settings).status, 0);
    expect_same_result(w / whole, w / resumed, 6);
    const bool scales = settings[0] == "train.precision=fp16";
    EXPECT_EQ(records(w / whole).back().contains("skipped_steps"), scales);
    EXPECT_TRUE(!scales || records(w / whole).back()["skipped_steps"] > 2);
  }
}

// 24 samples of 16 are trained; the mask leaves targets in few of them.
TEST(Train, ABatchOfWhichNoTargetCountsHasNoLoss) {
  const Workplace w;
  std::string mask(fs::file_size(w / "text.txt") + 1, '\0');
  std::fill_n(mask.begin(), mask.size() / 3, '\1');
  spill(w / "mask.bin", mask);
  const Finished f = w.train("run", {"data.loss_mask=" + (w / "mask.bin").string()});
  ASSERT_EQ(f.status, 0) << f.err;
  int without = 0;
  for (const auto& record : records(w / "run")) {
    without += record["loss"].is_null();
    EXPECT_EQ(record["loss"].is_null(), record["grad_norm"] == 0.0) << record;
    EXPECT_TRUE(record["loss"].is_null() || record["loss"] > 1.0) << record;
  }
  EXPECT_GT(without, 0);
  EXPECT_LT(without, 6);
}

}  // namespace
}  // namespace weft
