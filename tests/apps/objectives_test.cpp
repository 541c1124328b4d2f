// Objectives beside cross-entropy, by the commands alone; golden_test.cpp has their runs beside another implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/program.h"
#include "weft/checkpoint/safetensors.h"

namespace weft {
namespace {

using testing::Finished;
using testing::weft;

const std::string kDpo = std::string(testing::kSourceDir) + "/tests/golden/dpo";

std::string dpo_recipe() {
  return "[model]\npath = \"" + kDpo + "\"\n[data]\npairs = \"" + kDpo +
         "/pairs.jsonl\"\nshuffle = false\n[train]\nobjective = \"dpo\"\nseq_length = 32\nglobal_batch_size = 4\n"
         "micro_batch_size = 2\ntrain_iters = 12\n[objective]\nbeta = 0.1\n[optimizer]\nlr = 1e-3\nmin_lr = 1e-4\n"
         "lr_warmup_iters = 3\n[run]\nthreads = 1\n";
}

class Preferences : public testing::RecipeTest {
 protected:
  void SetUp() override { testing::spill(dir_ / "r.toml", dpo_recipe()); }
};

// What a step says of its batch before its update, an evaluation says of the same pairs after the step before.
TEST_F(Preferences, HeldOutPairsAreMeasuredAsABatchIs) {
  std::istringstream all(testing::slurp(kDpo + "/pairs.jsonl"));
  std::string first, second, line;
  for (int row = 0; std::getline(all, line) && row < 8; ++row) (row < 4 ? first : second) += line + "\n";
  testing::spill(dir_ / "valid.jsonl",
                 second + second + first.substr(0, first.find('\n') + 1));  // two batches, and one
  const std::vector<std::string> valid{"data.valid=" + (dir_ / "valid.jsonl").string(), "train.eval_interval=1",
                                       "train.train_iters=2", "optimizer.lr_decay_iters=12"};
  for (const std::string layout : {"parallel.dp=2", "parallel.pp=2"}) {
    std::vector<std::string> more = valid;
    more.push_back(layout);
    const Finished f = run("train", more, layout);
    ASSERT_EQ(f.status, 0) << f.err;
    const auto lines = steps_of(layout);  // step, evaluation, step, evaluation
    ASSERT_EQ(lines.size(), 4u);
    const nlohmann::json eval = lines[1]["eval"], step = lines[2];
    EXPECT_FALSE(eval.contains("perplexity"));
    for (const char* name : {"loss", "margin", "accuracy", "reward_chosen", "logp_rejected"})
      EXPECT_NEAR(eval[name].get<double>(), step[name].get<double>(), 1e-6) << layout << name;
  }
}

// A run that goes on reads the reference again, and is the one that was not interrupted.
TEST_F(Preferences, GoOnFromACheckpointBesideTheSameReference) {
  ASSERT_EQ(run("train", {}, "whole").status, 0);
  ASSERT_EQ(run("train", {"train.train_iters=5", "optimizer.lr_decay_iters=12"}, "parts").status, 0);
  const Finished f = run("train", {"train.train_iters=12", "optimizer.lr_decay_iters=12"}, "parts");
  ASSERT_EQ(f.status, 0) << f.err;
  const auto whole = steps_of("whole"), parts = steps_of("parts");
  ASSERT_EQ(whole.size(), parts.size());
  for (size_t i = 0; i < whole.size(); ++i)
    for (const char* name : {"loss", "grad_norm", "margin", "logp_chosen"}) EXPECT_EQ(whole[i][name], parts[i][name]);
  const std::string weights = "checkpoints/step-12/model.safetensors";
  EXPECT_TRUE(testing::slurp(dir_ / "whole" / weights) == testing::slurp(dir_ / "parts" / weights));
}

// Without adapter.path it is the model with its adapter switched off, else a copy: here both are the base alone.
TEST_F(Preferences, TheReferenceOfAnAdapterIsTheBase) {
  ASSERT_EQ(run("train",
                {"adapter.kind=lora", "train.train_iters=1", "optimizer.lr=1e-200", "optimizer.min_lr=0",
                 "optimizer.lr_warmup_iters=0"},
                "zero")
                .status,
            0);
  const std::string begun = "adapter.path=" + (dir_ / "zero/checkpoints/step-1").string();
  const Finished off =
      run("train", {"adapter.kind=lora", "parallel.dp=2", "parallel.zero_stage=3", "train.train_iters=5"}, "off");
  const Finished copy = run(
      "train", {"adapter.kind=lora", "parallel.dp=2", "parallel.zero_stage=3", "train.train_iters=5", begun}, "copy");
  ASSERT_EQ(off.status, 0) << off.err;
  ASSERT_EQ(copy.status, 0) << copy.err;
  EXPECT_EQ(off.err.find("frozen models"), std::string::npos);
  EXPECT_SAYS(copy.err, "frozen models");
  const auto switched = steps_of("off"), held = steps_of("copy");
  ASSERT_EQ(switched.size(), held.size());
  for (size_t i = 0; i < held.size(); ++i)
    for (const char* name : {"loss", "grad_norm", "margin"}) EXPECT_EQ(switched[i][name], held[i][name]) << i << name;
  EXPECT_GT(held.back()["margin"].get<double>(), 1e-3);
}

TEST_F(Preferences, ArePlannedAndVerified) {
  const Finished plan = run("plan", {"train.train_iters=0", "train.epochs=2"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_SAYS(plan.out, "frozen models");
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.dp=2", "parallel.tp=2", "train.precision=bf16"},
        {"parallel.cp=2", "parallel.pp=2", "objective.loss_type=ipo", "adapter.kind=lora"},
        {"parallel.dp=2", "train.numerics=invariant"}}) {
    std::vector<std::string> more = layout;
    more.push_back("--steps=2");
    const Finished verify = run("verify", more);
    EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
    EXPECT_SAYS(verify.out, "equal: this layout gives the run of one rank");
  }
}

TEST_F(Preferences, WhatCannotBeIsRefusedByName) {
  const auto refused = [&](const std::vector<std::string>& more, const std::vector<std::string>& parts) {
    const Finished f = run("train", more);
    EXPECT_EQ(f.status, 2) << more[0] << f.err;
    for (const std::string& part : parts) EXPECT_SAYS(f.err, part);
    EXPECT_FALSE(std::filesystem::exists(dir_ / "run")) << more[0];
  };
  refused({"data.pairs="}, {"data.pairs is missing"});
  refused({"model.hidden_dropout=0.1"}, {"model.hidden_dropout = 0.1 cannot run", "model.hidden_dropout = 0"});
  refused({"data.valid_fraction=0.5"}, {"data.valid_fraction = 0.5 has no effect", "reads data.pairs"});
  const std::string pairs = "data.valid=" + kDpo + "/pairs.jsonl";
  refused({pairs, "train.eval_iters=3"}, {"train.eval_iters = 3 has no effect: held-out pairs are all read"});
  refused({"data.packing=first-fit"}, {"data.packing = \"first-fit\" has no effect"});
  refused({"objective.loss_type=ipo", "objective.label_smoothing=0.1"},
          {"objective.label_smoothing = 0.1 has no effect"});
  refused({"objective.beta=0"}, {"objective.beta = 0: expected a number above 0"});
  refused({"train.mtp_loss_coef=0.1"}, {"train.mtp_loss_coef = 0.1 cannot run"});
  refused({"train.objective=cross_entropy", "data.train=x.bin"}, {"data.pairs", "has no effect", "reads data.train"});
  const std::filesystem::path before = dir_ / "before";
  std::filesystem::create_directories(before / "checkpoints");
  testing::spill(before / "recipe.toml", "");
  const std::string its_run = "objective.reference=" + before.string();
  refused({its_run}, {"objective.reference = \"", "is a run's folder: it has no checkpoint yet"});
  std::filesystem::create_directories(before / "checkpoints/step-3");
  refused({its_run}, {"is a run's folder: name one of its checkpoints, as ", "before/checkpoints/step-3"});
}

TEST_F(Preferences, BadRowsAreNamedWithFileAndLine) {
  const std::string good = R"({"prompt": [1, 2], "chosen": [3], "rejected": [4, 5]})";
  testing::spill(dir_ / "bad.jsonl", good + "\n" + R"({"prompt": [1, 2], "chosen": [3], "rejected": [128]})" + "\n");
  testing::spill(dir_ / "few.jsonl", good + "\n");
  const Finished bad = run("train", {"data.pairs=" + (dir_ / "bad.jsonl").string()}, "bad");
  EXPECT_NE(bad.status, 0);
  EXPECT_SAYS(bad.err, "bad.jsonl: line 2: \"rejected\": 128 is not in the vocabulary of 128 tokens");
  const Finished few = run("train", {"data.pairs=" + (dir_ / "few.jsonl").string()}, "few");
  EXPECT_NE(few.status, 0);
  EXPECT_SAYS(few.err, "few.jsonl: 1 rows, fewer than a step takes (train.global_batch_size = 4)");
  const Finished none = run("train", {"data.pairs=" + (dir_ / "none.jsonl").string()}, "none");
  EXPECT_NE(none.status, 0);
  EXPECT_SAYS(none.err, "none.jsonl");
}

const std::string kGrpo = std::string(testing::kSourceDir) + "/tests/golden/grpo-sequence-kl";

class Rewards : public Preferences {
 protected:
  void SetUp() override {
    testing::spill(
        dir_ / "r.toml",
        "[model]\npath = \"" + kGrpo + "\"\n[data]\nrollouts = \"" + kGrpo +
            "/rollouts.jsonl\"\nshuffle = false\n[train]\nobjective = \"grpo\"\nseq_length = 32\n"
            "global_batch_size = 8\nmicro_batch_size = 2\ntrain_iters = 12\n[objective]\ngroup_size = 4\n"
            "inner_updates = 2\nkl_beta = 0.04\nnormalisation = \"sequence\"\nadvantage_std = \"population\"\n"
            "[optimizer]\nlr = 1e-3\nmin_lr = 1e-4\nlr_warmup_iters = 3\nweight_decay = 0.0\n[run]\nthreads = 1\n");
  }
};

TEST_F(Rewards, ArePlannedAndVerified) {
  const Finished plan = run("plan", {"train.train_iters=0", "train.epochs=2"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.dp=2", "parallel.tp=2", "train.precision=bf16"},
        {"parallel.cp=2", "parallel.pp=2", "objective.normalisation=token"}}) {
    std::vector<std::string> more = layout;
    more.push_back("--steps=2");
    const Finished verify = run("verify", more);
    EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
    EXPECT_SAYS(verify.out, "equal: this layout gives the run of one rank");
  }
}

TEST_F(Rewards, WhatCannotBeIsRefusedByName) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Finished f = run("train", more);
    EXPECT_EQ(f.status, 2) << more[0] << f.err;
    EXPECT_SAYS(f.err, part);
  };
  refused({"train.global_batch_size=6"}, "expected whole groups: a multiple of objective.group_size = 4");
  refused({"objective.normalisation=constant"}, "objective.max_completion_length = 0 (its default): expected");
  refused({"objective.max_completion_length=9"}, "objective.max_completion_length = 9 has no effect");
  refused({"objective.beta=0.2"}, "objective.beta = 0.2 has no effect: train.objective = \"grpo\" has no such setting");
  refused({"data.pairs=x.jsonl"},
          "data.pairs = \"x.jsonl\" has no effect: train.objective = \"grpo\" reads data.rollouts");
  refused({"data.valid=x.jsonl"}, "held-out rollouts are of the model that sampled them");
  refused({"objective.group_size=1"}, "at least 2: a rollout is judged beside the others of its group");
  refused({"objective.advantage_eps=0"}, "above 0: rewards of a group may all be equal");
  refused({"objective.advantage_std=none", "objective.advantage_eps=1e-3"},
          "objective.advantage_eps = 0.001 has no effect");
}

const std::string kKto = std::string(testing::kSourceDir) + "/tests/golden/kto";

class Examples : public Preferences {
 protected:
  void SetUp() override {
    testing::spill(dir_ / "r.toml",
                   "[model]\npath = \"" + kKto + "\"\n[data]\nexamples = \"" + kKto +
                       "/examples.jsonl\"\nshuffle = false\n[train]\nobjective = \"kto\"\nseq_length = 32\n"
                       "global_batch_size = 6\nmicro_batch_size = 1\ntrain_iters = 12\n[objective]\nbeta = 0.1\n"
                       "undesirable_weight = 1.5\n[optimizer]\nlr = 1e-3\nmin_lr = 1e-4\nlr_warmup_iters = 3\n"
                       "[run]\nthreads = 1\n");
  }
};

// As of pairs above: what a step says of its batch before its update. On all ranks the same, whatever the layout.
TEST_F(Examples, HeldOutExamplesAreMeasuredAsABatchIs) {
  std::istringstream all(testing::slurp(kKto + "/examples.jsonl"));
  std::string second, line;
  for (int row = 0; std::getline(all, line) && row < 12; ++row) second += row < 6 ? "" : line + "\n";
  testing::spill(dir_ / "valid.jsonl", second + second + line + "\n");  // two batches, and one
  for (const std::string layout : {"parallel.dp=3", "parallel.pp=2"}) {
    const Finished f = run("train",
                           {"data.valid=" + (dir_ / "valid.jsonl").string(), "train.eval_interval=1",
                            "train.train_iters=2", "optimizer.lr_decay_iters=12", layout},
                           layout);
    ASSERT_EQ(f.status, 0) << f.err;
    const auto lines = steps_of(layout);  // step, evaluation, step, evaluation
    ASSERT_EQ(lines.size(), 4u);
    const nlohmann::json eval = lines[1]["eval"], step = lines[2];
    for (const char* name : {"loss", "kl", "margin", "accuracy", "reward_chosen", "logp_rejected"})
      EXPECT_NEAR(eval[name].get<double>(), step[name].get<double>(), 1e-6) << layout << name;
  }
  const Finished two = run("train", {"data.valid=[\"a\", \"b\"]"}, "two");
  EXPECT_EQ(two.status, 2);
  EXPECT_SAYS(two.err, "held-out examples are one file, as those of data.examples are");
}

TEST_F(Examples, ArePlannedVerifiedAndRefused) {
  const Finished plan = run("plan", {});
  EXPECT_EQ(plan.status, 0) << plan.err;
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.dp=2", "parallel.tp=2", "train.precision=bf16"},
        {"parallel.cp=2", "parallel.pp=2"}}) {
    std::vector<std::string> more = layout;
    more.push_back("--steps=2");
    const Finished verify = run("verify", more);
    EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
    EXPECT_SAYS(verify.out, "equal: this layout gives the run of one rank");
  }
  const Finished idle = run("train", {"objective.loss_type=ipo"});
  EXPECT_EQ(idle.status, 2);
  EXPECT_SAYS(idle.err, "objective.loss_type = \"ipo\" has no effect: train.objective = \"kto\" has no such setting");
  for (const char* lone : {"train.global_batch_size=1", "train.rampup_batch_size=[1, 1, 30]"}) {
    const Finished f = run("train", {lone}, "lone");
    EXPECT_EQ(f.status, 2) << lone << f.err;
    EXPECT_SAYS(f.err, "train.global_batch_size = 1 cannot run: train.objective = \"kto\" judges each example");
    EXPECT_SAYS(f.err, "the nearest that works: train.global_batch_size = 2");
    EXPECT_FALSE(std::filesystem::exists(dir_ / "lone")) << lone;
  }
  const Finished shorter = run("train", {"train.seq_length=16"}, "short");
  EXPECT_NE(shorter.status, 0);
  EXPECT_SAYS(shorter.err, "examples.jsonl: line ");
}

const std::string kReward = std::string(testing::kSourceDir) + "/tests/golden/reward-model";

class RewardModels : public Preferences {
 protected:
  void SetUp() override {
    testing::spill(dir_ / "r.toml",
                   "[model]\npath = \"" + kReward + "\"\n[data]\npairs = \"" + kReward +
                       "/pairs.jsonl\"\nshuffle = false\n[train]\nobjective = \"reward\"\nseq_length = 32\n"
                       "global_batch_size = 4\nmicro_batch_size = 2\ntrain_iters = 3\n[optimizer]\nlr = 1e-3\n"
                       "lr_decay_style = \"constant\"\n[run]\nthreads = 1\n");
  }
};
using RewardModelsSlow = RewardModels;

// What a checkpoint is goes on as a model, and a run from it as one that was not interrupted.
TEST_F(RewardModelsSlow, AreMadeOfModelsOfTextAndGoOn) {
  const std::string text = "model.path=" + std::string(testing::kSourceDir) + "/tests/golden/dpo";
  const Finished whole = run("train", {text}, "whole");
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_SAYS(whole.err, "score.weight is not there: it begins as random numbers of a deviation of 0.1");
  EXPECT_SAYS(whole.err, "lm_head.weight is passed over");
  ASSERT_EQ(run("train", {text, "train.train_iters=2"}, "parts").status, 0);
  const Finished rest = run("train", {text}, "parts");
  ASSERT_EQ(rest.status, 0) << rest.err;
  const std::string weights = "checkpoints/step-3/model.safetensors";
  EXPECT_EQ(testing::slurp(dir_ / "parts" / weights), testing::slurp(dir_ / "whole" / weights));
  const Finished further = run("train", {"model.path=" + (dir_ / "whole/checkpoints/step-3").string()}, "further");
  EXPECT_EQ(further.status, 0) << further.err;
  EXPECT_EQ(further.err.find("score.weight"), further.err.npos) << further.err;
}

// The score is saved in full beside the adapter, read back with it, and merged; of a model of text too.
TEST_F(RewardModels, WithAnAdapterAreReadBackAndMerged) {
  const std::string text = "model.path=" + std::string(testing::kSourceDir) + "/tests/golden/dpo",
                    lora = "adapter.kind=lora";
  ASSERT_EQ(run("train", {text, lora}, "whole").status, 0);
  const std::filesystem::path adapter = dir_ / "whole/checkpoints/step-3";
  const auto config = nlohmann::json::parse(testing::slurp(adapter / "adapter_config.json"));
  EXPECT_EQ(config["task_type"], "SEQ_CLS");
  EXPECT_EQ(config["modules_to_save"], nlohmann::json::array({"score"}));
  const SafetensorsFile file = SafetensorsFile::open(adapter / "adapter_model.safetensors");
  ASSERT_NE(file.find("base_model.model.score.weight"), nullptr);
  EXPECT_EQ(file.find("base_model.model.score.weight")->shape, (std::vector<int64_t>{1, 32}));
  const Finished merged = weft({"merge", adapter.string(), "--out", (dir_ / "merged").string()});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_SAYS(weft({"inspect", (dir_ / "merged").string()}).out, "a reward model");
  const std::string begun = "adapter.path=" + adapter.string(), one = "train.train_iters=1";
  ASSERT_EQ(run("train", {"model.path=" + (dir_ / "merged").string(), one}, "of-merged").status, 0);
  const Finished read = run("train", {text, lora, begun, one}, "of-adapter");
  ASSERT_EQ(read.status, 0) << read.err;
  for (const char* name : {"loss", "reward_chosen", "reward_rejected"})
    EXPECT_NEAR(steps_of("of-merged")[0][name].get<double>(), steps_of("of-adapter")[0][name].get<double>(), 1e-6);
  EXPECT_GT(std::abs(steps_of("of-merged")[0]["loss"].get<double>() - steps_of("whole")[0]["loss"].get<double>()),
            1e-4);
  EXPECT_SAYS(run("train", {text, "train.objective=dpo", lora, begun}).err, "is of a reward model");
  const Finished wrote = weft({"generate", adapter.string(), "--ids", "--prompt-ids", "1,2"});
  EXPECT_SAYS(wrote.err, "gives scores and no text");
}

// What is taken out of a merged reward model is its adapter with its score.
TEST_F(RewardModelsSlow, AreTakenApart) {
  const std::vector<std::string> lora{"adapter.kind=lora", "adapter.rank=4", "adapter.alpha=4"};
  ASSERT_EQ(run("train", lora, "whole").status, 0);
  ASSERT_EQ(weft({"merge", (dir_ / "whole").string(), "--out", (dir_ / "merged").string()}).status, 0);
  const Finished f = weft(
      {"export", (dir_ / "merged").string(), "--lora-of", kReward, "--rank", "4", "--out", (dir_ / "found").string()});
  ASSERT_EQ(f.status, 0) << f.err;
  for (const auto& [found, name] :
       {std::pair{dir_ / "found", "found-run"}, {dir_ / "whole/checkpoints/step-3", "own"}}) {
    std::vector<std::string> more = lora;
    more.insert(more.end(), {"train.train_iters=1", "adapter.path=" + found.string()});
    ASSERT_EQ(run("train", more, name).status, 0);
  }
  for (const char* name : {"loss", "reward_chosen"})
    EXPECT_NEAR(steps_of("found-run")[0][name].get<double>(), steps_of("own")[0][name].get<double>(), 1e-5) << name;
}

// The score is no matrix of a block: it stays as it is beside codes.
TEST_F(RewardModelsSlow, BesideCodesGoOnAndAreMergedAsTheyWereTrained) {
  const std::vector<std::string> qlora{"adapter.kind=qlora", "parallel.dp=2", "parallel.zero_stage=3"};
  ASSERT_EQ(run("train", qlora, "whole").status, 0);
  std::vector<std::string> first = qlora;
  first.push_back("train.train_iters=2");
  ASSERT_EQ(run("train", first, "parts").status, 0);
  ASSERT_EQ(run("train", qlora, "parts").status, 0);
  const std::string weights = "checkpoints/step-3/adapter_model.safetensors";
  EXPECT_TRUE(testing::slurp(dir_ / "whole" / weights) == testing::slurp(dir_ / "parts" / weights));
  ASSERT_EQ(weft({"merge", (dir_ / "whole").string(), "--out", (dir_ / "merged").string()}).status, 0);
  const std::string one = "train.train_iters=1", begun = "adapter.path=" + (dir_ / "whole/checkpoints/step-3").string();
  ASSERT_EQ(run("train", {"adapter.kind=qlora", begun, one}, "own").status, 0);
  ASSERT_EQ(run("train", {"model.path=" + (dir_ / "merged").string(), one}, "of-merged").status, 0);
  for (const char* name : {"loss", "reward_chosen"})
    EXPECT_NEAR(steps_of("of-merged")[0][name].get<double>(), steps_of("own")[0][name].get<double>(), 1e-5) << name;
}

TEST_F(RewardModels, ArePlannedVerifiedAndRefused) {
  EXPECT_EQ(run("plan", {}).status, 0);
  const Finished verify = run("verify", {"parallel.dp=2", "parallel.tp=2", "train.precision=bf16", "--steps=2"});
  EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
  EXPECT_SAYS(verify.out, "equal: this layout gives the run of one rank");
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Finished f = run("train", more);
    EXPECT_EQ(f.status, 2) << more[0] << f.err;
    EXPECT_SAYS(f.err, part);
  };
  EXPECT_SAYS(weft({"inspect", kReward}).out, "a reward model");
  refused({"objective.beta=0.2"}, "objective.beta = 0.2 has no effect: train.objective = \"reward\" has no such");
  refused({"train.mtp_loss_coef=0.1"}, "train.mtp_loss_coef = 0.1 cannot run");
  refused({"train.objective=dpo"}, "is a reward model: its config.json has the architecture LlamaForSequence");
  const Finished text = weft({"generate", kReward, "--ids", "--prompt-ids", "1,2"});
  EXPECT_EQ(text.status, 2);
  EXPECT_SAYS(text.err, "gives scores and no text; the nearest that works: a model with the architecture LlamaForCaus");
}

const std::string kPpo = std::string(testing::kSourceDir) + "/tests/golden/ppo";

class Values : public Preferences {
 protected:
  void SetUp() override {
    testing::spill(dir_ / "r.toml",
                   "[model]\npath = \"" + kPpo + "\"\n[data]\nrollouts = \"" + kPpo +
                       "/rollouts.jsonl\"\nshuffle = false\n[train]\nobjective = \"ppo\"\nseq_length = 32\n"
                       "global_batch_size = 6\nmicro_batch_size = 1\ntrain_iters = 2\n[objective]\ngamma = 0.99\n"
                       "[optimizer]\nlr = 1e-3\nlr_decay_style = \"constant\"\n[run]\nthreads = 1\n");
  }
};

using ValuesSlow = Values;

// Values begin where a folder has none, are in checkpoints, and other commands pass over them.
TEST_F(Values, BeginBesideAModelOfText) {
  const Finished f = run("train", {"model.path=" + std::string(testing::kSourceDir) + "/tests/golden/dpo"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "v_head.summary is not there: its weight begins as random numbers of a deviation of 0.1");
  const Finished text =
      weft({"generate", (dir_ / "run").string(), "--ids", "--prompt-ids", "1,2", "--max-tokens", "2"});
  EXPECT_EQ(text.status, 0) << text.err;
}

// They are saved in full beside the adapter, in its file, and read with it: a step that changes nothing writes it
// again.
TEST_F(Values, BesideAnAdapterAreSavedWithIt) {
  const std::string text = "model.path=" + std::string(testing::kSourceDir) + "/tests/golden/dpo",
                    lora = "adapter.kind=lora", file = "adapter_model.safetensors";
  ASSERT_EQ(run("train", {text, lora}, "whole").status, 0);
  const std::filesystem::path adapter = dir_ / "whole/checkpoints/step-2";
  const auto config = nlohmann::json::parse(testing::slurp(adapter / "adapter_config.json"));
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
  EXPECT_TRUE(config["modules_to_save"].is_null());
  const SafetensorsFile saved = SafetensorsFile::open(adapter / file);
  ASSERT_NE(saved.find("v_head.summary.weight"), nullptr);
  EXPECT_EQ(saved.find("v_head.summary.weight")->shape, (std::vector<int64_t>{1, 32}));
  ASSERT_NE(saved.find("v_head.summary.bias"), nullptr);
  const Finished again = run("train",
                             {text, lora, "adapter.path=" + adapter.string(), "train.train_iters=1",
                              "optimizer.lr=1e-200", "optimizer.min_lr=0"},
                             "again");
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.err.find("v_head.summary"), again.err.npos) << again.err;
  EXPECT_TRUE(testing::slurp(dir_ / "again/checkpoints/step-1" / file) == testing::slurp(adapter / file));
}

// A run goes on to the same bits, and commands for text pass over the values.
TEST_F(ValuesSlow, BesideAnAdapterGoOnAndArePassedOver) {
  const std::vector<std::string> qlora{"adapter.kind=qlora", "parallel.dp=2", "parallel.zero_stage=3"};
  ASSERT_EQ(run("train", qlora, "whole").status, 0);
  std::vector<std::string> first = qlora;
  first.push_back("train.train_iters=1");
  ASSERT_EQ(run("train", first, "parts").status, 0);
  ASSERT_EQ(run("train", qlora, "parts").status, 0);
  const std::string weights = "checkpoints/step-2/adapter_model.safetensors";
  EXPECT_TRUE(testing::slurp(dir_ / "whole" / weights) == testing::slurp(dir_ / "parts" / weights));
  const std::string adapter = (dir_ / "whole/checkpoints/step-2").string();
  const Finished text = weft({"generate", adapter, "--ids", "--prompt-ids", "1,2", "--max-tokens", "2"});
  EXPECT_EQ(text.status, 0) << text.err;
  const Finished merged = weft({"merge", adapter, "--out", (dir_ / "merged").string()});
  EXPECT_EQ(merged.status, 0) << merged.err;
  for (const char* kind : {"lora", "dora"}) {
    const Finished verify =
        run("verify", {std::string("adapter.kind=") + kind, "parallel.dp=2", "parallel.pp=2", "--steps=2"});
    EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
    EXPECT_SAYS(verify.out, "equal: this layout gives the run of one rank");
  }
}

TEST_F(Values, ArePlannedVerifiedAndRefused) {
  EXPECT_EQ(run("plan", {}).status, 0);
  const Finished verify = run("verify", {"parallel.dp=2", "parallel.tp=2", "train.precision=bf16", "--steps=2"});
  EXPECT_EQ(verify.status, 0) << verify.err << verify.out;
  EXPECT_SAYS(verify.out, "equal: this layout gives the run of one rank");
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Finished f = run("train", more);
    EXPECT_NE(f.status, 0) << more[0];
    EXPECT_SAYS(f.err, part);
  };
  refused({"objective.group_size=2"}, "objective.group_size = 2 has no effect: train.objective = \"ppo\" has no such");
  refused({"objective.lambda=1.5"}, "objective.lambda = 1.5: expected a number");
  refused({"data.rollouts=" + kGrpo + "/rollouts.jsonl"}, "rollouts.jsonl: line 1: \"ref_logps\"");
}

}  // namespace
}  // namespace weft
