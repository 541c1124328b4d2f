// Runs trained again: what cannot be repeated, why bits may differ, and whether they do.
#include "weft/history/run_rerun.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "apps/models.h"
#include "apps/program.h"
#include "history/run_folders.h"
#include "safetensors_files.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::facts_of;
using testing::Finished;
using testing::MadeRun;
using testing::make_run;
using testing::make_saved;
using testing::slurp;
using testing::spill;
using testing::TempDir;

using Texts = std::vector<std::string>;

void replace_first(const fs::path& file, const std::string& part, const std::string& by) {
  std::string text = slurp(file);
  const size_t at = text.find(part);
  ASSERT_NE(at, std::string::npos) << part << " is not in " << text;
  spill(file, text.replace(at, part.size(), by));
}

class RunReruns : public ::testing::Test {
 protected:
  // Why the run cannot be repeated; "": it can.
  static std::string refusal_of(const RunFacts& run, std::optional<int64_t> steps = {}) {
    try {
      plan_rerun(run, steps);
    } catch (const ConfigError& e) { return e.what(); }
    return "";
  }
  TempDir dir_;
};

TEST_F(RunReruns, WhatHungOnTimeOrOnOthersIsRefused) {
  EXPECT_EQ(refusal_of(facts_of(dir_ / "good")), "");
  EXPECT_SAYS(refusal_of(facts_of(dir_ / "tuned", {.settings = "autotune = true\n"})), "train.autotune");
  EXPECT_SAYS(refusal_of(facts_of(dir_ / "balanced", {.settings = "rebalance = true\n"})), "train.rebalance");
  EXPECT_SAYS(
      refusal_of(facts_of(dir_ / "phased", {.settings = "[[phase]]\nfrom_step = 2\nparallel.pp = 2\nparallel.dp = 1\n",
                                            .more = "[parallel]\ndp = 2\n"})),
      "layouts of their own");
  RunFacts island = facts_of(dir_ / "island");
  island.recipe["islands.count"] = "2";
  EXPECT_SAYS(refusal_of(island), "[islands]");
  RunFacts goes_on = facts_of(dir_ / "goes-on");
  goes_on.status = RunStatus::running;
  EXPECT_SAYS(refusal_of(goes_on), "runs now");
  RunFacts moved = facts_of(dir_ / "moved");
  moved.attempts = {{.ranks = 4}, {.ranks = 4}};
  EXPECT_EQ(refusal_of(moved), "");
  moved.attempts[1].ranks = 2;
  EXPECT_SAYS(refusal_of(moved), "2 and 4 ranks");
}

TEST_F(RunReruns, ABeginningThatIsGoneIsRefused) {
  EXPECT_SAYS(refusal_of(facts_of(dir_ / "none", {.steps = 0})), "recorded no step");
  RunFacts cut = facts_of(dir_ / "cut");
  const std::string all = slurp(dir_ / "cut/metrics.jsonl");
  spill(dir_ / "cut/metrics.jsonl", all.substr(all.find('\n') + 1));
  EXPECT_SAYS(refusal_of(cut), "first recorded step is 2");

  make_saved(dir_ / "other", 1);
  cut.attempts = {{.from = (dir_ / "other/checkpoints/step-1").string()}, {}};
  const RerunPlan plan = plan_rerun(cut);
  EXPECT_EQ(plan.from, cut.attempts[0].from);
  EXPECT_EQ(plan.first_step, 2);
  fs::remove_all(dir_ / "other");
  EXPECT_SAYS(refusal_of(cut), "not there any more");
}

TEST_F(RunReruns, AShorterRunKeepsTheLearningRates) {
  const auto has = [](const Texts& settings, const std::string& one) {
    return std::find(settings.begin(), settings.end(), one) != settings.end();
  };
  const RunFacts run = facts_of(dir_ / "run", {.train_iters = 9, .more = "[checkpoint]\nkeep_latest = 1\n"});
  const RerunPlan plan = plan_rerun(run);
  EXPECT_EQ(plan.last_step, 4) << "as far as it came";
  const Texts settings = rerun_settings(plan, "/new");
  EXPECT_TRUE(has(settings, "run.dir=/new"));
  EXPECT_TRUE(has(settings, "train.train_iters=4"));
  EXPECT_TRUE(has(settings, "optimizer.lr_decay_iters=9"));
  EXPECT_TRUE(has(settings, "checkpoint.keep_latest=2")) << "the run's newest may be the one before the last save";
  EXPECT_EQ(plan_rerun(run, 2).last_step, 2);
  EXPECT_SAYS(refusal_of(run, 5), "--steps 5");

  const RunFacts whole = facts_of(dir_ / "whole");
  EXPECT_FALSE(has(rerun_settings(plan_rerun(whole), "/new"), "train.train_iters=4"));
  const RunFacts own = facts_of(dir_ / "own", {.more = "[optimizer]\nlr_decay_iters = 3\n"});
  EXPECT_FALSE(has(rerun_settings(plan_rerun(own, 2), "/new"), "optimizer.lr_decay_iters=4")) << "it says its own";
  const RunFacts phased = facts_of(dir_ / "phased", {.settings = "[[phase]]\nfrom_step = 1\noptimizer.lr = 1e-5\n"});
  EXPECT_EQ(refusal_of(phased), "");
  EXPECT_SAYS(refusal_of(phased, 2), "phases are laid out for 4 steps");
}

TEST_F(RunReruns, EachAttemptIsHeldAgainstNow) {
  RunFacts run = facts_of(dir_ / "run");
  const RunAttempt now{.weft = "weft 1", .program = "aa", .host = "x", .machine = "cpu, 2 threads"};
  EXPECT_EQ(attempt_reasons(run, now).size(), 1u) << "nothing is recorded";
  run.attempts = {now, now};
  EXPECT_EQ(attempt_reasons(run, now), Texts());
  run.attempts[0].program = "bb";  // though the last one is the same
  run.attempts[1].machine = "cpu, 1 thread";
  RunAttempt gpu = now;
  EXPECT_EQ(attempt_reasons(run, gpu), (Texts{"the program was weft 1, build bb, and is weft 1, build aa now",
                                              "the machine was cpu, 1 thread, and is cpu, 2 threads now"}));
  gpu.machine = "";
  gpu.host = "y";
  const Texts reasons = attempt_reasons(run, gpu);
  ASSERT_EQ(reasons.size(), 2u) << "of the machine nothing is known";
  EXPECT_EQ(reasons[1], "the host was x, and is y now");
}

TEST_F(RunReruns, DataIsComparedByWhatItHolds) {
  const auto file = [](const std::string& path, const std::string& contents) {
    return RunSource{.path = path, .contents = contents, .dataset = "", .version = ""};
  };
  const RunSource a = file("a.bin", "1"), b = file("b.bin", "2");
  EXPECT_EQ(data_reasons({a, b}, {a, b}), Texts());
  EXPECT_EQ(data_reasons({a}, {file("copied.bin", "1")}), Texts()) << "the same bytes";
  EXPECT_EQ(data_reasons({a, b}, {a, file("b.bin", "3")}), Texts{"b.bin no longer holds what it held then"});
  EXPECT_EQ(data_reasons({a, b}, {a}).size(), 1u);
  EXPECT_EQ(data_reasons({}, {a}).size(), 1u) << "not known is not the same";
}

TEST_F(RunReruns, AModelThatWasWrittenToSinceIsAReason) {
  fs::create_directories(dir_ / "base-model");
  spill(dir_ / "base-model/config.json", "{}");
  RunFacts run = facts_of(dir_ / "run");
  run.began_s = 1e10;  // long after
  EXPECT_EQ(input_reasons(run), Texts());
  run.began_s = 1e9;
  const Texts reasons = input_reasons(run);
  ASSERT_EQ(reasons.size(), 1u) << "the training file is held against its hash";
  EXPECT_SAYS(reasons[0], "base-model (model.path)");
}

TEST_F(RunReruns, TheFirstNumberThatDiffersIsNamed) {
  const fs::path a = make_run(dir_ / "a", {.held_out = {{4, 2.25}}}),
                 b = make_run(dir_ / "b", {.held_out = {{4, 2.25}}});
  const ComparedBits same = compare_bits(a, b);
  EXPECT_EQ(same.difference, "");
  EXPECT_EQ(same.steps, 4);
  EXPECT_EQ(same.checkpoint_step, 0);

  replace_first(b / "metrics.jsonl", "\"perplexity\":9", "\"perplexity\":8");  // follows from the loss
  EXPECT_EQ(compare_bits(a, b).difference, "");
  replace_first(b / "metrics.jsonl", "\"loss\":2.25", "\"loss\":2.5");
  EXPECT_EQ(compare_bits(a, b).difference, "step 4: held-out loss was 2.25, and is 2.5 (0.25 more)");
  replace_first(b / "metrics.jsonl", "\"loss\":3.5", "\"loss\":3.4999999999999996");
  const ComparedBits other = compare_bits(a, b);
  EXPECT_EQ(other.difference, "step 2: loss was 3.5, and is 3.4999999999999996 (4.44e-16 less)");
  EXPECT_EQ(other.steps, 1);
}

TEST_F(RunReruns, NumbersThatAreNoneAreTheSameAndShorterRunsCompareAsFar) {
  const fs::path a = make_run(dir_ / "a"), b = make_run(dir_ / "b", {.steps = 2, .loss = 3.5});
  for (const fs::path& run : {a, b}) replace_first(run / "metrics.jsonl", "\"loss\":4.0", "\"loss\":null");
  const ComparedBits bits = compare_bits(a, b);
  EXPECT_EQ(bits.difference, "");
  EXPECT_EQ(bits.steps, 2);
  replace_first(b / "metrics.jsonl", "\"loss\":null", "\"loss\":4.0");
  EXPECT_SAYS(compare_bits(a, b).difference, "step 1: loss was nan, and is 4");
  spill(b / "metrics.jsonl", "");
  EXPECT_THROW(compare_bits(a, b), FileError);
}

// Three numbers of one tensor and one of another, in the checkpoint of a step.
void save_numbers(const fs::path& run, int64_t step, float first, float other = 1) {
  const fs::path folder = run / fmt::format("checkpoints/step-{}", step);
  fs::create_directories(folder);
  const float numbers[] = {first, 2, 3};
  std::string x(sizeof numbers, '\0'), y(sizeof other, '\0');
  std::memcpy(x.data(), numbers, sizeof numbers);
  std::memcpy(y.data(), &other, sizeof other);
  testing::write_safetensors(folder / "model.safetensors",
                             {{"x", FileDType::f32, {3}, x}, {"y", FileDType::f32, {1}, y}});
}

TEST_F(RunReruns, TheFirstTensorThatDiffersIsNamed) {
  const fs::path a = make_run(dir_ / "a"), b = make_run(dir_ / "b");
  save_numbers(a, 2, 1), save_numbers(a, 4, 1);
  save_numbers(b, 2, 1.5), save_numbers(b, 4, 1);
  const ComparedBits same = compare_bits(a, b);
  EXPECT_EQ(same.difference, "");
  EXPECT_EQ(same.checkpoint_step, 4) << "the newest";
  EXPECT_EQ(same.files, 1);

  save_numbers(b, 6, 1);
  fs::remove_all(b / "checkpoints/step-4");
  const ComparedBits older = compare_bits(a, b);
  EXPECT_EQ(older.checkpoint_step, 2) << "the newest that both have";
  EXPECT_EQ(older.difference, "step-2/model.safetensors: tensor x: 1 of 3 numbers differ, by 0.5 at most");
  EXPECT_EQ(older.damage, "");
  save_numbers(b, 2, 1, 7);
  EXPECT_SAYS(compare_bits(a, b).difference, "tensor y: 1 of 1 numbers differ, by 6 at most");
  fs::create_directories(b / "checkpoints/step-2/weft");
  fs::copy(b / "checkpoints/step-2/model.safetensors", b / "checkpoints/step-2/weft/optimizer.safetensors");
  EXPECT_SAYS(compare_bits(a, b).difference, "other names");
}

// Real runs, of a recipe whose paths are relative.
class RunRerunsSlow : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_ / "model");
    spill(dir_ / "model/config.json", testing::kOneLayer);
    std::string text;
    for (int i = 0; i < 150; ++i) text += fmt::format("{} ", i * i);
    spill(dir_ / "t.txt", text);
    spill(dir_ / "r.toml",
          "[model]\npath = \"model\"\ninit = \"random\"\n[data]\ntrain = [\"t.txt\"]\nvalid_fraction = 0.1\n[train]\n"
          "seq_length = 8\nglobal_batch_size = 2\nmicro_batch_size = 1\ntrain_iters = 6\neval_interval = 3\n"
          "[checkpoint]\nsave_interval = 2\nkeep_latest = 0\n[run]\ndir = \"run\"\nbackend = \"ref\"\nthreads = 1\n");
    train("");
  }
  // In the test's folder, as its paths are relative.
  void train(const std::string& more) {
    const std::string line =
        fmt::format("cd '{}' && exec '{}' train r.toml {}", dir_.path().string(), testing::kProgram, more);
    const Finished f = testing::run({.args = {"-c", line}, .program = "/bin/sh"});
    ASSERT_EQ(f.status, 0) << f.err;
  }
  Finished rerun(const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"runs", "rerun", at(name)};
    words.insert(words.end(), more.begin(), more.end());
    return testing::weft(words);
  }
  std::string at(const std::string& name) const { return (dir_ / name).string(); }
  TempDir dir_;
};

TEST_F(RunRerunsSlow, ARunIsRepeatedToTheBitFromAnyFolder) {
  const Finished f = rerun("run", {"--json"});
  ASSERT_EQ(f.status, 0) << f.out << f.err;
  const auto said = nlohmann::json::parse(f.out);
  EXPECT_EQ(said["same"], true);
  EXPECT_EQ(said["steps"], 6);
  EXPECT_EQ(said["checkpoint_step"], 6);
  EXPECT_EQ(said["files"], 2) << "weights and the optimizer's state";
  EXPECT_FALSE(said.contains("may_differ_because")) << said;
  EXPECT_SAYS(f.err, "nothing is known by which the bits would differ");
  EXPECT_EQ(read_run_facts(at("run-rerun")).status, RunStatus::finished);
  EXPECT_TRUE(fs::exists(at("run-rerun.log")));

  const Finished twice = rerun("run");
  EXPECT_EQ(twice.status, 2);
  EXPECT_SAYS(twice.err, "--out");

  const Finished part = rerun("run", {"--steps", "4", "--out", at("new/part")});
  EXPECT_EQ(part.status, 0) << part.err;
  EXPECT_SAYS(part.out, "the same bits: 4 steps, 2 files of step-4");
}

TEST_F(RunRerunsSlow, WhatWasChangedInTheRunIsNamed) {
  std::string step_3 = slurp(at("run/metrics.jsonl"));
  step_3 = step_3.substr(step_3.find("\"step\":3,"));
  step_3 = step_3.substr(0, step_3.find("\"grad_norm\":") + 12);
  replace_first(at("run/metrics.jsonl"), step_3, step_3 + "1");  // ten times and more
  const Finished f = rerun("run");
  EXPECT_EQ(f.status, 1) << f.err;
  EXPECT_SAYS(f.out, "other bits: step 3: grad_norm was 1");
  replace_first(at("run/metrics.jsonl"), step_3 + "1", step_3);

  const fs::path weights = at("run/checkpoints/step-6/model.safetensors");
  std::string bytes = slurp(weights);
  bytes.back() = char(bytes.back() ^ 1);
  spill(weights, bytes);
  const Finished damaged = rerun("run", {"--out", at("second")});
  EXPECT_EQ(damaged.status, 1) << damaged.err;
  EXPECT_SAYS(damaged.out, "step-6/model.safetensors: tensor ");
  EXPECT_SAYS(damaged.out, "damaged: ");
}

TEST_F(RunRerunsSlow, OtherDataIsSaidToBeTheReason) {
  spill(at("t.txt"), slurp(at("t.txt")) + "and more");
  const Finished f = rerun("run", {"--json"});
  EXPECT_EQ(f.status, 1) << f.err;
  const auto said = nlohmann::json::parse(f.out);
  EXPECT_EQ(said["same"], false);
  ASSERT_EQ(said["may_differ_because"].size(), 1u) << said;
  EXPECT_SAYS(said["may_differ_because"][0].get<std::string>(), "t.txt no longer holds what it held then");
  fs::remove(at("t.txt"));
  const Finished gone = rerun("run", {"--out", at("second")});
  EXPECT_EQ(gone.status, 1);
  EXPECT_SAYS(gone.err, "t.txt");
  EXPECT_FALSE(fs::exists(at("second"))) << "nothing is begun";
}

TEST_F(RunRerunsSlow, ABranchIsRepeatedFromItsCheckpoint) {
  train("--from run/checkpoints/step-2 run.dir=branch optimizer.lr_decay_iters=6");
  const Finished f = rerun("branch");
  ASSERT_EQ(f.status, 0) << f.out << f.err;
  EXPECT_SAYS(f.out, "the same bits: 4 steps, 2 files of step-6");
  fs::remove_all(at("run/checkpoints/step-2"));
  const Finished gone = rerun("branch", {"--out", at("second")});
  EXPECT_EQ(gone.status, 2);
  EXPECT_SAYS(gone.err, "not there any more");
}

TEST_F(RunRerunsSlow, AModelThatWasReplacedIsSaidToBeTheReason) {
  fs::remove_all(at("model"));
  const Finished gone = rerun("run");
  EXPECT_EQ(gone.status, 1);
  EXPECT_SAYS(gone.err, "model.path");
  EXPECT_FALSE(fs::exists(at("run-rerun.log"))) << "nothing is begun";
  fs::create_directories(at("model"));
  spill(at("model/config.json"), testing::kTwoLayers);
  const Finished other = rerun("run");
  EXPECT_EQ(other.status, 1);
  EXPECT_SAYS(other.out, "other bits: step 1: loss was");
  EXPECT_SAYS(other.err, "because " + fs::canonical(at("model")).string() + " (model.path) was written to");
}

TEST_F(RunRerunsSlow, ATrainingThatFailsIsToldWithItsStatus) {
  ::setenv("WEFT_FAULT", "exit3@step:0:3", 1);
  const Finished f = rerun("run");
  ::unsetenv("WEFT_FAULT");
  EXPECT_EQ(f.status, 3) << f.err;
  EXPECT_SAYS(f.err, "`weft train` ended with status 3");
  EXPECT_EQ(f.out, "") << "nothing was compared";
}

}  // namespace
}  // namespace weft
