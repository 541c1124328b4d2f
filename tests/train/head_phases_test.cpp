// Phases whose objective has another head of the model: a reward model's score, PPO's values, or logits again.
#include "small_disk.h"
#include "train/row_phases.h"
#include "weft/plan/phase_plans.h"
#include "weft/train/checkpoint_folders.h"
#include "weft/train/room.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::in_toml;
using testing::kGoldenRuns;
using Table = std::vector<std::pair<std::string, std::string>>;

class HeadPhases : public testing::RowPhases {
 protected:
  using Strings = std::vector<std::string>;

  // Text and pairs have settings of their own, and PPO those of its golden run.
  Strings plain(const Strings& more = {}) const {
    Strings all{"optimizer.weight_decay=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Strings plain_text(const Strings& more = {}) const { return text(plain(more)); }
  static Table rewards() {
    return {{"data.pairs", in_toml(kGoldenRuns / "dpo/pairs.jsonl")},
            {"train.objective", "\"reward\""},
            {"train.seq_length", "32"}};
  }
  static Table rollouts() {
    return {{"data.rollouts", in_toml(kGoldenRuns / "ppo/rollouts.jsonl")},
            {"train.objective", "\"ppo\""},
            {"train.seq_length", "32"},
            {"train.global_batch_size", "6"},
            {"objective.inner_updates", "2"},
            {"objective.gamma", "0.99"},
            {"objective.lambda", "0.95"},
            {"objective.clip_eps_low", "0.2"},
            {"objective.clip_eps_high", "0.2"},
            {"objective.value_clip", "0.2"},
            {"objective.value_coef", "0.5"},
            {"objective.kl_coef", "0.05"}};
  }
  Table preferences() const {
    Table all = pairs_phase();
    all.emplace_back("train.global_batch_size", "4");
    return all;
  }
  Table words() const {
    return {{"data.train", in_toml(dir_ / "text.bin")},
            {"train.objective", "\"cross_entropy\""},
            {"train.seq_length", "16"},
            {"train.global_batch_size", "4"}};
  }
  // A run of its own with PPO's settings of `rollouts`, which begins with a checkpoint's weights.
  Recipe ppo_behind(const std::string& run, const fs::path& model, const Strings& more = {}) const {
    Strings all = plain({"train.seq_length=32", "train.train_iters=2", "model.path=" + model.string()});
    all.insert(all.end(), more.begin(), more.end());
    return recipe(run, all, {}, "ppo");
  }
  // The first update of values that a phase has begun is that of a run of its own.
  void expect_begun_values(Strings adam) const {
    for (const char* one :
         {"optimizer.momentum=0.9", "optimizer.lr=0.001", "optimizer.min_lr=0", "checkpoint.save_interval=1"})
      adam.emplace_back(one);
    train(recipe("whole", plain_text(adam), {{2, rollouts()}}));
    train(ppo_behind("tail", checkpoint("whole", 2), adam));
    for (const char* head : {"v_head.summary.weight", "v_head.summary.bias"}) {
      const auto whole = tensor("whole", 3, "model.safetensors", head);
      EXPECT_FALSE(whole.empty());
      EXPECT_EQ(whole, tensor("tail", 1, "model.safetensors", head)) << head;
    }
  }
  std::string said_while_training(const Recipe& r) const {
    const Machine machine = testing::unmeasured(machine_for(r));
    const std::atomic<bool> stop{false};
    const RunLock lock = claim_run_folder(r);
    const int terminal = open((dir_ / "said").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    EXPECT_TRUE(train_on_ranks(
        {.recipe = r, .machine = machine, .stop = stop, .terminal_fd = terminal, .run = run_on_threads}));
    close(terminal);
    return testing::slurp(dir_ / "said");
  }
  std::vector<float> tensor(const std::string& run, int64_t step, const char* file, const std::string& name) const {
    const SafetensorsFile from = SafetensorsFile::open(checkpoint(run, step) / file);
    const SafetensorsEntry* entry = from.find(name);
    if (entry == nullptr) return {};
    const auto bytes = from.bytes(*entry);
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
};
using HeadPhasesSlow = HeadPhases;

TEST_F(HeadPhases, ARewardModelBehindTextIsTheRunThatBeginsWithItsWeights) {
  const Metrics whole = train(recipe("whole", plain_text(), {{2, rewards()}}));
  const Metrics tail =
      train(recipe("tail", plain({"train.objective=reward", "data.pairs=" + (kGoldenRuns / "dpo/pairs.jsonl").string(),
                                  "train.seq_length=32", "train.train_iters=2", "objective.beta=0.1",
                                  "objective.label_smoothing=0", "model.path=" + checkpoint("whole", 2).string()})));
  expect_tail(whole, 2, tail);
  EXPECT_TRUE(weights("whole", 4) == weights("tail", 2));
  EXPECT_EQ(testing::slurp(checkpoint("whole", 4) / "config.json"),
            testing::slurp(checkpoint("tail", 2) / "config.json"));
}

TEST_F(HeadPhases, ValuesBehindTextAreTheRunThatBeginsWithItsWeights) {
  const Metrics whole = train(recipe("whole", plain_text(), {{2, rollouts()}}));
  const Metrics tail = train(ppo_behind("tail", checkpoint("whole", 2)));
  expect_tail(whole, 2, tail);
  EXPECT_TRUE(weights("whole", 4) == weights("tail", 2));
}

// The reference is the checkpoint of a model that has values too. The new phase ignores those values.
TEST_F(HeadPhases, PreferencesBehindValuesAreTheRunThatBeginsWithItsWeights) {
  const Metrics whole =
      train(recipe("whole", plain_text({"checkpoint.keep_latest=1"}), {{1, rollouts()}, {2, preferences()}}));
  EXPECT_FALSE(tensor("whole", 2, "model.safetensors", "v_head.summary.weight").empty()) << "it stays";
  const Metrics tail =
      train(recipe("tail", plain({"train.seq_length=32", "objective.beta=0.2", "train.train_iters=2",
                                  "objective.label_smoothing=0", "model.path=" + checkpoint("whole", 2).string()})));
  ASSERT_EQ(tail.steps.size(), 2u);
  EXPECT_NEAR(tail.steps[0].loss, std::log(2.0), 1e-6) << "the reference is the model itself";
  EXPECT_NE(tail.steps[1].loss, tail.steps[0].loss);
  expect_tail(whole, 2, tail);
  EXPECT_TRUE(weights("whole", 4) == weights("tail", 2));
}

TEST_F(HeadPhases, PreferencesBehindValuesGoOnToTheBit) {
  const Strings settings =
      plain_text({"checkpoint.save_interval=1", "optimizer.name=adamw", "optimizer.momentum=0.9", "optimizer.lr=0.001",
                  "optimizer.min_lr=0", "parallel.dp=2", "parallel.zero_stage=3", "train.micro_batch_size=1"});
  expect_goes_on(recipe("whole", settings, {{1, rollouts()}, {2, preferences()}}), {3});
}

// No table is its head: the matrix is that of the model with which the run began, as the reward model has none. The
// blocks are of the reward model.
TEST_F(HeadPhases, TextBehindARewardModelHasTheHeadOfTheFirstModel) {
  const std::string first = "model.path=" + (kGoldenRuns / "dpo").string();
  Strings rewarded = plain({"train.objective=reward", "train.seq_length=32", "train.train_iters=3", first});
  const Metrics whole = train(recipe("whole", rewarded, {{1, words()}}));
  const std::string head = "lm_head.weight";
  EXPECT_TRUE(tensor("whole", 1, "model.safetensors", head).empty());
  ASSERT_FALSE(tensor("whole", 3, "model.safetensors", head).empty());
  // Blocks that did not move, with a rate that rounds to nothing.
  for (const char* setting : {"optimizer.lr=1e-30", "optimizer.min_lr=0"}) rewarded.push_back(setting);
  Table fast = words();
  fast.emplace_back("optimizer.lr", "0.3");
  fast.emplace_back("optimizer.min_lr", "0.01");
  const Metrics still = train(recipe("still", rewarded, {{1, fast}}));
  const Metrics alone = train(recipe("alone", plain_text({"train.train_iters=2", first})));
  expect_tail(still, 1, alone);
  EXPECT_TRUE(weights("still", 3) == weights("alone", 2));
  EXPECT_NE(whole.steps[1].loss, alone.steps[0].loss) << "the reward model's blocks";
}

// Adam's averages of what stays go on; those of the new head are of its own steps, and so are its corrections.
TEST_F(HeadPhases, AveragesGoOnAndThoseOfTheNewHeadBegin) {
  expect_begun_values({"optimizer.name=adamw"});
  const auto moment = [&](const char* run, int64_t step, const char* weight) {
    return tensor(run, step, "weft/optimizer.safetensors", std::string(weight) + ".exp_avg");
  };
  EXPECT_EQ(moment("whole", 3, "value.weight"), moment("tail", 1, "value.weight"));
  const auto before = moment("whole", 2, "final_norm.weight"), whole = moment("whole", 3, "final_norm.weight"),
             tail = moment("tail", 1, "final_norm.weight");
  ASSERT_EQ(before.size(), 32u);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(whole[i] - tail[i], 0.9 * before[i], 1e-7) << i;
}

TEST_F(HeadPhasesSlow, AveragesInCodesBeginWithTheHeadToo) {
  expect_begun_values({"optimizer.name=adamw8bit", "optimizer.min_8bit_size=16"});
}

TEST_F(HeadPhases, ARunThatWasStoppedInAnyPhaseGoesOnToTheBit) {
  const Strings settings = plain_text({"checkpoint.save_interval=1", "optimizer.name=adamw", "optimizer.momentum=0.9",
                                       "optimizer.lr=0.001", "optimizer.min_lr=0", "parallel.dp=2",
                                       "parallel.zero_stage=3", "train.train_iters=4", "train.micro_batch_size=1"});
  expect_goes_on(recipe("whole", settings, {{1, rewards()}, {2, rollouts()}}), {1, 3});
}

TEST_F(HeadPhases, WhatAPhaseBeginsAnewAndDropsIsPlanned) {
  const Recipe r = recipe("run", plain_text(), {{1, rewards()}, {2, words()}, {3, rollouts()}});
  const std::string text = to_string(plan_phases(r, *machine_for(r).workspace_model));
  EXPECT_SAYS(text, "; begins score.weight anew; drops lm_head.weight\n");
  EXPECT_SAYS(text, "; begins lm_head.weight anew; drops score.weight\n");
  EXPECT_SAYS(text, "; begins v_head.summary.weight, v_head.summary.bias anew\n");
}

// Nothing else has the last values of what a phase drops.
TEST_F(HeadPhases, TheCheckpointWithWhatAPhaseDropsStays) {
  const Recipe r = recipe("run", plain_text({"checkpoint.keep_latest=1", "train.train_iters=5"}),
                          {{1, rewards()}, {2, words()}, {3, rollouts()}, {4, words()}});
  const std::string said = said_while_training(r);
  Strings left;
  for (const fs::path& one : checkpoint_folders(r.run.dir)) left.push_back(one.filename().string());
  EXPECT_EQ(left, (Strings{"step-1", "step-2", "step-4", "step-5"})) << "text has nothing that PPO drops";
  EXPECT_FALSE(tensor("run", 1, "model.safetensors", "lm_head.weight").empty());
  EXPECT_FALSE(tensor("run", 2, "model.safetensors", "score.weight").empty());
  EXPECT_FALSE(tensor("run", 4, "model.safetensors", "v_head.summary.bias").empty());
  EXPECT_SAYS(said, "dropped: score.weight, whose last values are in " + checkpoint("run", 2).string() +
                        " alone, which the run keeps");
}

// Two phases drop a head. Behind them the run has both checkpoints, its newest and the one that it saves.
TEST_F(HeadPhases, RoomIsWantedForCheckpointsWithWhatPhasesDrop) {
  const auto recipe_of = [&](const std::string& run) {
    return recipe(run, plain_text({"checkpoint.keep_latest=1", "checkpoint.save_interval=1", "train.train_iters=5"}),
                  {{1, rewards()}, {2, words()}});
  };
  const RunPlan plan = plan_run(without_phases(recipe_of("run")), *machine_for(recipe_of("run")).workspace_model);
  const int64_t one = checkpoint_bytes(plan.model, *plan.optimizer, plan.step.precision.stat).total;
  const auto judge_on = [&](const std::string& name, int64_t bytes) -> std::optional<std::string> {
    const testing::SmallDisk disk(dir_ / name, bytes);
    if (!disk.mounted()) return {};
    return judge_checkpoint_room(recipe_of(name + "/run"), plan);
  };
  const auto three = judge_on("three", one * 7 / 2), four = judge_on("four", one * 9 / 2);
  if (!three || !four) GTEST_SKIP() << "needs the right to mount a small file system";
  EXPECT_SAYS(*three, "4 (phases keep 2 of them) do not fit");
  EXPECT_EQ(*four, "");
}

TEST_F(HeadPhases, AHeadOfTextThatIsATableOrFrozenIsNotDropped) {
  const auto kept = [&](const std::string& model) {
    return kept_checkpoints(recipe("run", plain_text({model}), {{1, rewards()}, {2, words()}})).whatever_age;
  };
  using Paths = std::vector<fs::path>;
  const fs::path text = checkpoint("run", 1), score = checkpoint("run", 2);
  EXPECT_EQ(kept("model.path=" + (kGoldenRuns / "dpo").string()), (Paths{text, score}));
  EXPECT_EQ(kept("model.path=" + (kGoldenRuns / "llama3-rope-tied").string()), Paths{score});
  EXPECT_EQ(kept("adapter.kind=lora"), Paths{score});
  EXPECT_EQ(kept("model.path=" + (dir_ / "gone").string()), (Paths{text, score}));
}

// Each layout goes on to its own bits, and all of them have the losses of one rank.
TEST_F(HeadPhasesSlow, OnLayoutsTooItGoesOnToTheBit) {
  const testing::PhaseTables phases{{1, rewards()}, {2, words()}, {3, rollouts()}, {5, words()}};
  std::optional<Metrics> alone;
  for (const Strings& layout : std::vector<Strings>{
           {},
           {"parallel.tp=2", "parallel.pp=2"},
           {"parallel.cp=2"},
           {"parallel.dp=2", "parallel.zero_stage=2", "optimizer.name=muon"},
           {"parallel.dp=2", "parallel.zero_stage=1", "optimizer.name=adamw8bit", "optimizer.min_8bit_size=16"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    for (const auto& run : fs::directory_iterator(dir_.path()))
      if (run.is_directory()) fs::remove_all(run.path());
    Strings all =
        plain_text({"checkpoint.save_interval=1", "optimizer.name=adamw", "optimizer.momentum=0.9",
                    "optimizer.lr=0.001", "optimizer.min_lr=0", "train.train_iters=6", "train.micro_batch_size=1"});
    all.insert(all.end(), layout.begin(), layout.end());
    const Recipe r = recipe("whole", all, phases);
    expect_goes_on(r, {1, 2, 3, 4, 5});
    const Metrics here = read_metrics(fs::path(r.run.dir) / "metrics.jsonl");
    if (!alone) alone = here;
    if (r.optimizer.name != OptimizerKind::adamw) continue;
    for (size_t i = 0; i < here.steps.size(); ++i) EXPECT_NEAR(here.steps[i].loss, alone->steps[i].loss, 2e-5) << i;
  }
}

// The table is the head of text, and on two stages: it stays, also behind a score.
TEST_F(HeadPhasesSlow, ATableThatIsTheHeadStays) {
  for (const char* stages : {"1", "2"}) {
    const std::string run = std::string("stages-") + stages;
    const Strings settings =
        plain_text({"model.path=" + (kGoldenRuns / "llama3-rope-tied").string(), "checkpoint.save_interval=1",
                    "optimizer.name=adamw", "optimizer.momentum=0.9", "optimizer.lr=0.001", "optimizer.min_lr=0",
                    std::string("parallel.pp=") + stages, "train.micro_batch_size=1"});
    expect_goes_on(recipe(run, settings, {{1, rewards()}, {3, words()}}), {1, 2, 3});
    for (const auto& from : fs::directory_iterator(dir_.path()))
      if (from.path().filename().string().starts_with("from-")) fs::remove_all(from.path());
  }
  const std::string text = to_string(plan_phases(
      recipe("run", plain_text({"model.path=" + (kGoldenRuns / "llama3-rope-tied").string()}), {{1, rewards()}}), {}));
  EXPECT_SAYS(text, "; begins score.weight anew\n");
  const auto one = read_metrics(dir_ / "stages-1/metrics.jsonl"), two = read_metrics(dir_ / "stages-2/metrics.jsonl");
  for (size_t i = 0; i < one.steps.size(); ++i) EXPECT_NEAR(one.steps[i].loss, two.steps[i].loss, 2e-5) << i;
}

// An adapter stays, with the score or values beside it or without.
TEST_F(HeadPhasesSlow, AnAdapterGoesOnBesideAnotherHead) {
  for (const char* kind : {"lora", "dora", "qlora"}) {
    SCOPED_TRACE(kind);
    for (const auto& run : fs::directory_iterator(dir_.path()))
      if (run.is_directory()) fs::remove_all(run.path());
    const Strings settings = plain_text({fmt::format("adapter.kind={}", kind), "checkpoint.save_interval=1",
                                         "optimizer.name=adamw", "optimizer.momentum=0.9", "optimizer.lr=0.01",
                                         "optimizer.min_lr=0", "parallel.dp=2", "train.micro_batch_size=1"});
    expect_goes_on(recipe("whole", settings, {{1, rewards()}, {2, rollouts()}, {3, words()}}), {1, 2, 3});
  }
}

}  // namespace
}  // namespace weft
