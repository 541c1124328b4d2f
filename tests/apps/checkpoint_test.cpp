// Checkpoints that are damaged, disks that are full: what the program does about them, as a process.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/models.h"
#include "apps/program.h"
#include "small_disk.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of_folder;
using testing::Command;
using testing::Finished;
using testing::run;
using testing::slurp;
using testing::SmallDisk;
using testing::spill;
using testing::TempDir;
using testing::weft;

// A folder with a tiny model's config and some text. Runs of six steps save every second one and keep all.
class Workplace {
 public:
  explicit Workplace(const std::string& width = "8") {
    std::string config = testing::kOneLayer;
    config.replace(config.find("\"hidden_size\": 8") + 15, 1, width);
    fs::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", config);
    std::string text;
    for (int i = 0; i < 60; ++i) text += "Line " + std::to_string(i * i) + " of a text that says little.\n";
    spill(dir_ / "text.txt", text);
    spill(dir_ / "r.toml", "[run]\nbackend = \"ref\"\n");
  }
  fs::path operator/(const std::string& name) const { return dir_ / name; }
  const fs::path& path() const { return dir_.path(); }
  Command command(const std::string& name, const std::vector<std::string>& settings = {}) const {
    std::vector<std::string> args{"train",
                                  (dir_ / "r.toml").string(),
                                  "run.dir=" + (dir_ / name).string(),
                                  "model.path=" + (dir_ / "model").string(),
                                  "data.train=" + (dir_ / "text.txt").string(),
                                  "model.init=random",
                                  "train.seq_length=16",
                                  "train.global_batch_size=4",
                                  "train.micro_batch_size=1",
                                  "train.train_iters=6",
                                  "optimizer.lr_warmup_iters=2",
                                  "checkpoint.save_interval=2",
                                  "checkpoint.keep_latest=0"};
    args.insert(args.end(), settings.begin(), settings.end());
    return {.args = args};
  }
  Finished train(const std::string& name, const std::vector<std::string>& settings = {}) const {
    return run(command(name, settings));
  }
  fs::path step(const std::string& name, int n) const {
    return dir_ / (name + "/checkpoints/step-" + std::to_string(n));
  }

 private:
  TempDir dir_;
};

void flip(const fs::path& file, int64_t at_from_end) {
  std::string text = slurp(file);
  char& byte = text[size_t(int64_t(text.size()) - 1 - at_from_end)];
  byte = char(byte ^ 4);
  spill(file, text);
}

using Damage = std::function<void(const fs::path& step)>;
const std::map<std::string, Damage> kDamages = {
    {"model.safetensors: tensor", [](const fs::path& s) { flip(s / "model.safetensors", 100); }},
    {"optimizer.safetensors: tensor", [](const fs::path& s) { flip(s / "weft/optimizer.safetensors", 0); }},
    {"model.safetensors: its header",
     [](const fs::path& s) {
       std::string text = slurp(s / "model.safetensors");
       text[20] = char(text[20] ^ 1);
       spill(s / "model.safetensors", text);
     }},
    {"config.json: it is not", [](const fs::path& s) { flip(s / "config.json", 5); }},
    {"state.json: it is not", [](const fs::path& s) { flip(s / "weft/state.json", 9); }},
    {"manifest.json: is not", [](const fs::path& s) { flip(s / "weft/manifest.json", 40); }},
    {"manifest.json: is missing", [](const fs::path& s) { fs::remove(s / "weft/manifest.json"); }},
    {"recipe.toml: is missing", [](const fs::path& s) { fs::remove(s / "weft/recipe.toml"); }},
    {"optimizer.safetensors: has", [](const fs::path& s) { fs::resize_file(s / "weft/optimizer.safetensors", 3000); }},
    {"step-6/weft/optimizer.safetensors: tensor",  // of another step
     [](const fs::path& s) {
       fs::copy_file(s.parent_path() / "step-4/weft/optimizer.safetensors", s / "weft/optimizer.safetensors",
                     fs::copy_options::overwrite_existing);
     }},
    {"step-6: was saved as that of step 4",
     [](const fs::path& s) {
       fs::remove_all(s);
       fs::copy(s.parent_path() / "step-4", s, fs::copy_options::recursive);
     }},
};

void expect_falls_back(const Workplace& w, const std::string& says, const std::vector<std::string>& layout) {
  fs::remove_all(w / "hurt");
  fs::copy(w / "whole", w / "hurt", fs::copy_options::recursive);
  kDamages.at(says)(w.step("hurt", 6));
  const Finished f = w.train("hurt", layout);
  ASSERT_EQ(f.status, 0) << says << f.err;
  EXPECT_SAYS(f.err, "WARNING: a damaged checkpoint is passed over, step-4 is taken: ");
  EXPECT_SAYS(f.err, says);
  EXPECT_SAYS(f.err, "step-4, after step 4");
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"})
    EXPECT_TRUE(slurp(w.step("whole", 6) / file) == slurp(w.step("hurt", 6) / file)) << says << file;
  EXPECT_FALSE(fs::exists(w.step("hurt", 6).string() + ".damaged"));
}

TEST(DamagedCheckpoint, TheNewestWholeOneIsTakenAndTheEndIsTheSame) {
  const Workplace w;
  ASSERT_EQ(w.train("whole").status, 0);
  expect_falls_back(w, "optimizer.safetensors: tensor", {});
  expect_falls_back(w, "manifest.json: is missing", {});
}

TEST(DamagedCheckpointSlow, EveryDamageIsFoundUnderAnyLayout) {
  for (const std::vector<std::string>& layout :
       std::vector<std::vector<std::string>>{{},
                                             {"parallel.dp=2", "train.numerics=invariant"},
                                             {"parallel.dp=4", "parallel.zero_stage=3", "train.numerics=invariant"}}) {
    const Workplace w;
    ASSERT_EQ(w.train("whole", layout).status, 0);
    for (const auto& [says, damage] : kDamages) expect_falls_back(w, says, layout);
  }
}

TEST(DamagedCheckpoint, WhereNoneIsWholeEachIsNamedAndNothingBeginsAnew) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  flip(w.step("run", 2) / "config.json", 3);
  fs::remove_all(w.step("run", 4) / "weft");
  fs::resize_file(w.step("run", 6) / "model.safetensors", 0);
  const auto before = bytes_of_folder(w / "run/checkpoints");
  const Finished f = w.train("run");
  EXPECT_EQ(f.status, 90);
  EXPECT_SAYS(f.err, "none of its checkpoints is whole");
  EXPECT_SAYS(f.err, "step-2/config.json: it is not what was saved");
  EXPECT_SAYS(f.err, "step-4/weft/state.json: is missing");
  EXPECT_SAYS(f.err, "step-6/model.safetensors: has 0 bytes");
  EXPECT_TRUE(bytes_of_folder(w / "run/checkpoints") == before);
}

TEST(DamagedCheckpoint, ByNameItIsRefusedByTheRunTheNextIsTaken) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  const fs::path hurt = w.step("run", 6);
  flip(hurt / "model.safetensors", 100);
  const std::string text = (w / "text.txt").string();
  const std::vector<std::string> generate{"--backend", "ref", "--prompt", "Line", "--max-tokens", "2"};
  const auto with = [](std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  for (const auto& args : {with({"generate", hurt.string()}, generate),
                           {"eval", hurt.string(), text, "--backend", "ref"},
                           {"inspect", hurt.string()}}) {
    const Finished f = weft(args);
    EXPECT_EQ(f.status, 1) << args[0];
    EXPECT_SAYS(f.err, "step-6/model.safetensors: tensor \"");
    EXPECT_SAYS(f.err, "copy the folder without weft/");
  }
  const Finished tuned = w.train("tuned", {"model.path=" + hurt.string(), "model.init=pretrained"});
  EXPECT_EQ(tuned.status, 1);
  EXPECT_SAYS(tuned.err, "step-6/model.safetensors: tensor \"");

  const Finished of_run = weft(with({"generate", (w / "run").string()}, generate));
  EXPECT_EQ(of_run.status, 0) << of_run.err;
  EXPECT_SAYS(of_run.err, "WARNING: a damaged checkpoint is passed over, step-4 is taken");
  EXPECT_TRUE(fs::exists(hurt));  // who reads changes nothing

  flip(w.step("run", 4) / "weft/optimizer.safetensors", 0);  // which no text is generated with
  EXPECT_EQ(weft(with({"generate", w.step("run", 4).string()}, generate)).status, 0);

  fs::copy(hurt, w / "own", fs::copy_options::recursive);  // as the message says
  fs::remove_all(w / "own/weft");
  EXPECT_EQ(weft(with({"generate", (w / "own").string()}, generate)).status, 0);
}

TEST(DamagedCheckpoint, InspectTellsWhichAreCompleteAndTakesNoHalfForAModel) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  fs::remove_all(w.step("run", 2) / "weft");
  fs::copy(w.step("run", 4), w.step("run", 4).string() + ".removing", fs::copy_options::recursive);
  const Finished run = weft({"inspect", (w / "run").string(), "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const auto all = nlohmann::json::parse(run.out)["checkpoints"];
  EXPECT_SAYS(all[0]["state"].get<std::string>(), "damaged: ");
  EXPECT_EQ(all[1]["state"], "complete");
  const Finished whole = weft({"inspect", w.step("run", 4).string()});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_SAYS(whole.out, "every byte is what was saved");
  EXPECT_SAYS(weft({"inspect", w.step("run", 2).string()}).err, "is half of a checkpoint");
  EXPECT_SAYS(weft({"inspect", w.step("run", 4).string() + ".removing"}).err, "left behind");
}

TEST(DamagedCheckpoint, OneOfFormat1StillLoadsAndIsSaidNotToBeChecked) {
  const Workplace w;
  ASSERT_EQ(w.train("whole").status, 0);
  fs::copy(w / "whole", w / "old", fs::copy_options::recursive);
  fs::remove_all(w.step("old", 6));
  fs::remove(w.step("old", 4) / "weft/manifest.json");
  auto state = nlohmann::json::parse(slurp(w.step("old", 4) / "weft/state.json"));
  state["format"] = 1;
  spill(w.step("old", 4) / "weft/state.json", state.dump());
  const Finished shown = weft({"inspect", w.step("old", 4).string()});
  EXPECT_SAYS(shown.out, "format 1, without hashes");
  const Finished f = w.train("old");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "is of format 1, without hashes: it cannot be checked");
  EXPECT_TRUE(slurp(w.step("whole", 6) / "model.safetensors") == slurp(w.step("old", 6) / "model.safetensors"));
}

// --- disks ---

TEST(Disk, RecordsThatCannotBeWrittenAreToldOnceAndTheRunGoesOn) {
  const Workplace w;
  ASSERT_EQ(w.train("whole").status, 0);
  fs::create_directories(w / "full");
  fs::copy(w / "whole/recipe.toml", w / "full/recipe.toml");
  fs::copy(w / "whole/checkpoints", w / "full/checkpoints", fs::copy_options::recursive);
  for (const int n : {4, 6}) fs::remove_all(w.step("full", n));
  for (const char* name : {"metrics.jsonl", "grad_norms.jsonl", "tensorboard"})
    fs::create_symlink("/dev/full", w / "full" / name);
  fs::create_directories(w / "full/loss.svg");
  fs::create_directories(w / "full/data.json");
  const Finished f = w.train("full", {"train.log_grad_norms=true"});
  ASSERT_EQ(f.status, 0) << f.err;
  for (const char* name : {"metrics.jsonl", "tensorboard", "grad_norms.jsonl"}) {
    size_t told = 0;
    const std::string path = (w / "full" / name).string();
    for (size_t at = 0; (at = f.err.find("WARNING: " + path, at)) != std::string::npos; ++at) ++told;
    EXPECT_EQ(told, 2u) << name << f.err;  // once, and how often at the end
  }
  EXPECT_SAYS(f.err, "grad_norms.jsonl could not be written 4 times");
  EXPECT_TRUE(slurp(w.step("whole", 6) / "model.safetensors") == slurp(w.step("full", 6) / "model.safetensors"));
}

TEST(Disk, DamagedLinesOfTheMetricsArePassedOverAndCounted) {
  const Workplace w;
  ASSERT_EQ(w.train("run").status, 0);
  fs::remove_all(w.step("run", 6));
  std::string text = slurp(w / "run/metrics.jsonl");
  const size_t second = text.find('\n') + 1;
  text[second] = '[';
  spill(w / "run/metrics.jsonl", text);
  const Finished f = w.train("run");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "metrics.jsonl: 1 damaged line is passed over, the first is line 2");
  EXPECT_EQ(slurp(w / "run/metrics.jsonl").substr(0, second + 20), text.substr(0, second + 20));
  const Finished shown = weft({"inspect", (w / "run").string(), "--json"});
  EXPECT_EQ(nlohmann::json::parse(shown.out)["damaged_lines"], 1);
  EXPECT_EQ(nlohmann::json::parse(shown.out)["num_records"], 5);
}

TEST(Disk, AFileSizeLimitBelowTheFirstCheckpointIsRefusedBeforeAnythingIsMade) {
  const Workplace w;
  Command command = w.command("run");
  command.largest_file = 3000;
  const Finished f = run(command);
  EXPECT_EQ(f.status, 1);
  EXPECT_SAYS(f.err, "this process may write files of 3000: raise ulimit -f");
  EXPECT_FALSE(fs::exists(w / "run"));
}

TEST(Disk, WhatDoesNotFitIsSaidInBytesBeforeAndAFullOneHarmsNothing) {
  const Workplace w("64");
  ASSERT_EQ(w.train("sized").status, 0);
  int64_t one = 0;  // bytes of a checkpoint on disk
  for (const auto& [name, text] : bytes_of_folder(w.step("sized", 6)))
    one += (int64_t(text.size()) + 4095) / 4096 * 4096;
  const int64_t others = 100 << 10;  // records
  {
    const SmallDisk disk(w / "none", one / 2);
    if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a small file system";
    const Finished f = w.train("none/run");
    EXPECT_EQ(f.status, 1);
    EXPECT_SAYS(f.err, "nothing of this run could be saved");
    EXPECT_FALSE(fs::exists(w / "none/run"));
  }
  {
    const SmallDisk disk(w / "one", one * 3 / 2 + others);
    const Finished f = w.train("one/run", {"checkpoint.keep_latest=2"});
    EXPECT_EQ(f.status, 89) << f.err;
    EXPECT_SAYS(f.err, "two do not fit");
    EXPECT_SAYS(f.err, "step 4: NOT SAVED");
    EXPECT_SAYS(f.err, "step 6: the last save of the run FAILED, what came after step 2 is lost");
    EXPECT_EQ(weft({"inspect", w.step("one/run", 2).string()}).status, 0);
    std::ofstream fill(w / "one/fill");
    while (fill << std::string(4096, 'x') << std::flush) continue;
    const Finished again = w.train("one/run", {"checkpoint.keep_latest=2"});  // not a byte is free
    EXPECT_EQ(again.status, 89) << again.err;
    EXPECT_SAYS(again.err, "step-2, after step 2");
  }
  {
    const SmallDisk disk(w / "two", one * 5 / 2 + others);
    const Finished f = w.train("two/run", {"checkpoint.keep_latest=3"});  // three, while one is written
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_SAYS(f.err, "step-2 first: the disk is short");
    EXPECT_EQ(weft({"inspect", w.step("two/run", 6).string()}).status, 0);
  }
}

}  // namespace
}  // namespace weft
