// Phases of objectives over rows, and phases that change the objective: equal to runs one behind the other, and to
// themselves when they were stopped anywhere.
#include <fstream>

#include "train/row_phases.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::in_toml;
using testing::kGoldenRuns;
using testing::RowPhases;
using Settings = std::vector<std::string>;
using Phases = testing::PhaseTables;
using RowPhasesSlow = RowPhases;

// A sample is a pair, of which the data has two sequences; and an example, whose label the objective asks for.
TEST_F(RowPhases, APhaseThatChangesNothingChangesNoBit) {
  for (const char* golden : {"dpo", "kto"}) {
    const Settings settings{"data.shuffle=true", "train.train_iters=3"};
    const std::string without = fmt::format("{}-without", golden), with = fmt::format("{}-with", golden);
    const Metrics a = train(recipe(without, settings, {}, golden)),
                  b = train(recipe(with, settings, {{1, {{"optimizer.lr", "0.3"}}}}, golden));
    expect_tail(a, 0, b);
    EXPECT_TRUE(weights(without, 3) == weights(with, 3)) << golden;
  }
}

// Another batch, and another length: behind the rows that were taken, beside the same reference.
TEST_F(RowPhases, APhaseOfRowsIsTheRunThatGoesOnWithItsValues) {
  std::string rest, line;
  std::istringstream all(testing::slurp(kGoldenRuns / "dpo/pairs.jsonl"));
  for (int row = 0; std::getline(all, line); ++row) rest += row < 8 ? "" : line + "\n";
  testing::spill(dir_ / "rest.jsonl", rest);
  const Metrics whole = train(recipe("whole", {"train.global_batch_size=4", "checkpoint.save_interval=2"},
                                     {{2, {{"train.global_batch_size", "6"}, {"train.seq_length", "40"}}}}));
  const Metrics tail = train(recipe(
      "tail", {"train.global_batch_size=6", "train.seq_length=40", "train.train_iters=2",
               "model.path=" + checkpoint("whole", 2).string(), "objective.reference=" + (kGoldenRuns / "dpo").string(),
               "data.pairs=" + (dir_ / "rest.jsonl").string()}));
  expect_tail(whole, 2, tail);
  EXPECT_TRUE(weights("whole", 4) == weights("tail", 2));
}

// Preferences behind text: the reference is the model as the phase begins with it, which the run keeps.
TEST_F(RowPhases, PreferencesBehindTextAreTheRunThatBeginsWithItsWeights) {
  const Metrics whole = train(recipe("whole", text({"checkpoint.keep_latest=1"}), {{2, pairs_phase()}}));
  ASSERT_EQ(whole.steps.size(), 4u);
  EXPECT_TRUE(fs::exists(checkpoint("whole", 2))) << "the reference stays";
  EXPECT_TRUE(whole.steps[1].terms.empty());
  const Metrics tail =
      train(recipe("tail", {"train.seq_length=32", "objective.beta=0.2", "train.train_iters=2",
                            "objective.label_smoothing=0", "model.path=" + checkpoint("whole", 2).string()}));
  expect_tail(whole, 2, tail);
  EXPECT_TRUE(weights("whole", 4) == weights("tail", 2));
}

TEST_F(RowPhases, ARunThatWasStoppedInAnyPhaseGoesOnToTheBit) {
  const Phases phases{{1, pairs_phase()}, {3, {{"train.global_batch_size", "8"}}}};
  expect_goes_on(recipe("whole",
                        text({"checkpoint.save_interval=1", "optimizer.name=adamw", "optimizer.momentum=0.9",
                              "optimizer.lr=0.001", "optimizer.min_lr=0", "parallel.dp=2", "parallel.zero_stage=3"}),
                        phases),
                 {1, 2});
}

TEST_F(RowPhasesSlow, OfManyObjectivesTooItGoesOnToTheBit) {
  const fs::path examples = kGoldenRuns / "kto/examples.jsonl",
                 rollouts = kGoldenRuns / "grpo-sequence-kl/rollouts.jsonl";
  const Phases phases{{1, pairs_phase()},
                      {2, {{"data.examples", in_toml(examples)}, {"train.objective", "\"kto\""}}},
                      {3,
                       {{"data.rollouts", in_toml(rollouts)},
                        {"train.objective", "\"grpo\""},
                        {"train.global_batch_size", "8"},
                        {"objective.group_size", "4"},
                        {"objective.inner_updates", "2"},
                        {"objective.kl_beta", "0.1"},
                        {"objective.reference", in_toml(kGoldenRuns / "dpo")}}},
                      {5,
                       {{"data.train", in_toml(dir_ / "text.bin")},
                        {"train.objective", "\"distill\""},
                        {"objective.teacher", in_toml(kGoldenRuns / "dpo")}}},
                      {6, {{"train.objective", "\"cross_entropy\""}}}};
  for (const Settings& layout : std::vector<Settings>{{},
                                                      {"parallel.tp=2", "parallel.pp=2"},
                                                      {"parallel.cp=2", "train.precision=bf16"},
                                                      {"parallel.dp=2", "parallel.zero_stage=2"}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    for (const auto& run : fs::directory_iterator(dir_.path()))
      if (run.is_directory()) fs::remove_all(run.path());
    Settings all = text({"checkpoint.save_interval=1", "optimizer.name=adamw", "optimizer.momentum=0.9",
                         "optimizer.lr=0.001", "optimizer.min_lr=0", "train.train_iters=7", "train.seq_length=32"});
    all.insert(all.end(), layout.begin(), layout.end());
    expect_goes_on(recipe("whole", all, phases), {1, 2, 3, 4, 5, 6});
  }
}

// What was distilled goes on without its teacher, and the other way round.
TEST_F(RowPhases, ATeacherMayComeAndGo) {
  const std::string teacher = (kGoldenRuns / "dpo").string();
  const Metrics whole =
      train(recipe("whole", text({"checkpoint.save_interval=1", "train.train_iters=3"}),
                   {{1, {{"train.objective", "\"distill\""}, {"objective.teacher", in_toml(teacher)}}},
                    {2, {{"train.objective", "\"cross_entropy\""}}}}));
  const auto behind = [&](int64_t step, const Settings& more) {
    const std::string rest = testing::slurp(dir_ / "text.bin").substr(size_t(2 * 4 * 16 * step));
    testing::spill(dir_ / "rest.bin", rest);
    Settings all = text({"train.train_iters=1", "data.train=" + (dir_ / "rest.bin").string(),
                         "model.path=" + checkpoint("whole", step).string()});
    all.insert(all.end(), more.begin(), more.end());
    return train(recipe(fmt::format("from-{}", step), all));
  };
  const Metrics taught = behind(1, {"train.objective=distill", "objective.teacher=" + teacher}), alone = behind(2, {});
  EXPECT_EQ(whole.steps[1].loss, taught.steps[0].loss);
  EXPECT_EQ(whole.steps[1].terms, taught.steps[0].terms);
  EXPECT_EQ(whole.steps[2].loss, alone.steps[0].loss);
  EXPECT_TRUE(whole.steps[2].terms.empty());
}

// With an adapter the reference is the base with the adapter as it was, not without one.
TEST_F(RowPhasesSlow, TheReferenceOfAnAdapterIsTheAdapterAsThePhaseBegan) {
  const Settings lora{"adapter.kind=lora", "checkpoint.keep_latest=1", "parallel.dp=2"};
  Settings all = text(lora);
  const Metrics whole = train(recipe("whole", all, {{2, pairs_phase()}}));
  Settings then{"train.seq_length=32", "objective.beta=0.2", "train.train_iters=2", "objective.label_smoothing=0",
                "adapter.path=" + checkpoint("whole", 2).string()};
  then.insert(then.end(), lora.begin(), lora.end());
  expect_tail(whole, 2, train(recipe("tail", then)));
}

TEST_F(RowPhasesSlow, AStoredReferenceIsTheSameInAPhase) {
  fs::copy(kGoldenRuns / "dpo/pairs.jsonl", dir_ / "pairs.jsonl");
  auto memory = pairs_phase();
  memory[0].second = in_toml(dir_ / "pairs.jsonl");
  auto stored = memory;
  stored.emplace_back("objective.precompute_ref_log_probs", "true");
  const Metrics a = train(recipe("memory", text(), {{2, memory}})), b = train(recipe("stored", text(), {{2, stored}}));
  expect_tail(a, 0, b);
  EXPECT_TRUE(weights("memory", 4) == weights("stored", 4));
}

TEST_F(RowPhases, RowsGoOnBehindWhatEarlierPhasesTookOfThem) {
  const std::vector<RunSpan> spans = run_spans(
      recipe("run", {"train.global_batch_size=4", "train.train_iters=9"},
             {{2, {{"optimizer.lr", "0.1"}}},
              {3, {{"train.global_batch_size", "6"}}},
              {5, {{"data.pairs", in_toml(dir_ / "others.jsonl")}}},
              {7, {{"data.pairs", in_toml(kGoldenRuns / "dpo/pairs.jsonl")}, {"train.micro_batch_size", "1"}}}}));
  ASSERT_EQ(spans.size(), 5u);
  const int64_t mix[] = {0, 0, 1, 2, 3}, first_sample[] = {0, 8, 0, 0, 0}, begun[] = {0, 0, 12, 0, 24};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(spans[i].mix, mix[i]) << i;
    EXPECT_EQ(spans[i].first_sample, first_sample[i]) << i;
    EXPECT_EQ(spans[i].begun.empty() ? 0 : spans[i].begun[0], begun[i]) << i;
  }
}

}  // namespace
}  // namespace weft
