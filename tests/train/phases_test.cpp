// Runs with phases: equal to runs one behind the other, and to themselves when they were stopped anywhere.
#include <fstream>

#include "train/golden.h"
#include "train/late_backend.h"
#include "weft/apps/backends.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/train/checkpoint_state.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::string>;
using Phases = std::vector<Recipe::Phase>;

Settings joined(std::initializer_list<Settings> all) {
  Settings one;
  for (const Settings& some : all) one.insert(one.end(), some.begin(), some.end());
  return one;
}

const fs::path kCase = fs::path(testing::kSourceDir) / "tests/golden/llama3-rope-tied";

Recipe phased_recipe(const fs::path& run, const Settings& settings, const Phases& phases = {}) {
  Recipe recipe = testing::golden_recipe(
      kCase, run,
      joined({{"train.seq_length=16", "train.global_batch_size=4", "train.micro_batch_size=2", "train.train_iters=4",
               "optimizer.lr_warmup_iters=0", "optimizer.lr_decay_style=constant", "checkpoint.save_interval=0",
               "checkpoint.keep_latest=0", "train.log_grad_norms=false", "run.threads=1", "run.backend=cpu"},
              settings}));
  recipe.phases = phases;
  recipe = parse_recipe(to_toml(recipe), "with phases", {});
  check_supported(recipe);
  return recipe;
}

Metrics train_phases_of(const Recipe& recipe) {
  testing::train(recipe, machine_for(recipe));
  return read_metrics(fs::path(recipe.run.dir) / "metrics.jsonl");
}

std::string file_of(const fs::path& run, int64_t step, const std::string& file) {
  return testing::slurp(run / fmt::format("checkpoints/step-{}", step) / file);
}

void expect_same_end_of(const fs::path& a, int64_t of_a, const fs::path& b, int64_t of_b, bool state = true) {
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"}) {
    if (!state && file != std::string("model.safetensors")) continue;
    ASSERT_FALSE(file_of(a, of_a, file).empty()) << file;
    EXPECT_TRUE(file_of(a, of_a, file) == file_of(b, of_b, file)) << file;
  }
}

// The tokens of the case from one on, or in reverse.
std::string tokens_from(const fs::path& to, int64_t first, bool reversed = false) {
  const std::string all = testing::slurp(kCase / "tokens.bin");
  std::string some;
  const auto n = int64_t(all.size() / 2);
  for (int64_t i = first; i < n; ++i) some += all.substr(size_t(2 * (reversed ? n - 1 - i : i)), 2);
  std::ofstream(to, std::ios::binary) << some;
  return to.string();
}

// Without momentum, a run that begins with the weights of another's checkpoint goes on with it.
void expect_chain(const std::vector<std::pair<std::string, std::string>>& change, const Settings& second,
                  int64_t first_token) {
  SCOPED_TRACE(change[0].first);
  testing::TempDir dir;
  const Settings sgd{"optimizer.name=sgd",        "optimizer.momentum=0", "optimizer.adam_beta1=0.9",
                     "optimizer.adam_beta2=0.95", "optimizer.lr=0.3",     "optimizer.min_lr=0.01"};
  auto settings = change;
  for (auto& [key, value] : settings)
    if (key == "data.train") value = "[\"" + tokens_from(dir / "other.bin", 0, true) + "\"]";
  const Metrics whole =
      train_phases_of(phased_recipe(dir / "whole", joined({sgd, {"checkpoint.save_interval=2"}}), {{2, settings}}));
  Settings then =
      joined({sgd, second, {"train.train_iters=2", "model.path=" + (dir / "whole/checkpoints/step-2").string()}});
  then.push_back("data.train=" +
                 (first_token < 0 ? (dir / "other.bin").string() : tokens_from(dir / "rest.bin", first_token)));
  const Metrics tail = train_phases_of(phased_recipe(dir / "second", then));
  ASSERT_EQ(whole.steps.size(), 4u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(whole.steps[2 + i].loss, tail.steps[i].loss) << i;
    EXPECT_EQ(whole.steps[2 + i].grad_norm, tail.steps[i].grad_norm) << i;
    EXPECT_EQ(whole.steps[2 + i].lr, tail.steps[i].lr) << i;
  }
  expect_same_end_of(dir / "whole", 4, dir / "second", 2, false);
}

TEST(Phases, APhaseIsTheRunThatGoesOnWithItsValues) {
  const int64_t behind = 2 * 4 * 16;  // tokens of the first two steps
  expect_chain({{"train.global_batch_size", "8"}}, {"train.global_batch_size=8"}, behind);
  expect_chain({{"train.seq_length", "32"}, {"train.micro_batch_size", "1"}},
               {"train.seq_length=32", "train.micro_batch_size=1"}, behind);
  expect_chain({{"data.train", ""}}, {}, -1);
  expect_chain(
      {{"optimizer.lr", "0.1"}, {"optimizer.lr_decay_style", "\"cosine\""}, {"optimizer.lr_warmup_iters", "1"}},
      {"optimizer.lr=0.1", "optimizer.lr_decay_style=cosine", "optimizer.lr_warmup_iters=1"}, behind);
}

TEST(Phases, APhaseThatChangesNothingChangesNoBit) {
  testing::TempDir dir;
  // With steps that are skipped, whose number the learning rate knows, and updates behind them.
  const Settings settings{"train.train_iters=6",
                          "model.hidden_dropout=0.1",
                          "data.shuffle=true",
                          "optimizer.lr_decay_style=cosine",
                          "optimizer.lr_warmup_iters=3",
                          "train.precision=fp16",
                          "train.initial_loss_scale=524288",
                          "train.hysteresis=1"};
  const Metrics without = train_phases_of(phased_recipe(dir / "without", settings));
  const Metrics with = train_phases_of(phased_recipe(
      dir / "with", settings, {{1, {{"train.micro_batch_size", "2"}}}, {5, {{"train.global_batch_size", "4"}}}}));
  ASSERT_EQ(with.steps.size(), 6u);
  EXPECT_GT(with.steps[5].skipped_steps, 0);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(without.steps[i].loss, with.steps[i].loss) << i;
    EXPECT_EQ(without.steps[i].lr, with.steps[i].lr) << i;
    EXPECT_EQ(without.steps[i].loss_scale, with.steps[i].loss_scale) << i;
    EXPECT_FALSE(without.steps[i].phase);
    EXPECT_EQ(with.steps[i].phase, (StepRecord::Phase{i < 1 ? 0 : i < 5 ? 1 : 2, 4, 16}));
  }
  expect_same_end_of(dir / "without", 6, dir / "with", 6);
  EXPECT_EQ(file_of(dir / "without", 6, "weft/state.json").find("place"), std::string::npos);
}

// A ramp; another length, with a schedule of its own; other shares of the same files; back to the first length.
constexpr int64_t kPhasedSteps = 7;
const Settings kMany{fmt::format("train.train_iters={}", kPhasedSteps),
                     "train.global_batch_size=2",
                     "train.micro_batch_size=1",
                     "model.hidden_dropout=0.1",
                     "data.shuffle=true",
                     "optimizer.lr_warmup_iters=2"};
Phases many_phases() {
  return {{1,
           {{"train.global_batch_size", "6"},
            {"train.rampup_batch_size", "[2, 2, 4]"},
            {"optimizer.lr_scaling", "\"sqrt\""}}},
          {4,
           {{"train.seq_length", "32"},
            {"train.global_batch_size", "2"},
            {"optimizer.lr", "0.001"},
            {"optimizer.lr_warmup_iters", "2"}}},
          {5, {{"data.weights", "[3.0, 1.0]"}}},
          {6, {{"train.seq_length", "16"}}}};
}
Settings two_files(const fs::path& dir) {
  return {fmt::format("data.train=[\"{}\", \"{}\"]", tokens_from(dir / "a.bin", 0), tokens_from(dir / "b.bin", 5000)),
          "data.weights=[1, 2]"};
}

void expect_phases_go_on(const Settings& settings, const std::vector<int64_t>& stops) {
  SCOPED_TRACE(fmt::format("{}", fmt::join(settings, " ")));
  testing::TempDir dir;
  const Settings all = joined({kMany, two_files(dir.path()), settings});
  const Metrics whole =
      train_phases_of(phased_recipe(dir / "whole", joined({all, {"checkpoint.save_interval=1"}}), many_phases()));
  for (const int64_t stop : stops) {
    SCOPED_TRACE(stop);
    const fs::path run = dir / fmt::format("from-{}", stop);
    fs::copy(dir / "whole", run, fs::copy_options::recursive);
    for (int64_t step = stop + 1; step <= kPhasedSteps; ++step)
      fs::remove_all(run / fmt::format("checkpoints/step-{}", step));
    const Metrics resumed = train_phases_of(phased_recipe(run, all, many_phases()));
    ASSERT_EQ(resumed.steps.size(), size_t(kPhasedSteps));
    for (size_t i = 0; i < size_t(kPhasedSteps); ++i) {
      EXPECT_EQ(whole.steps[i].loss, resumed.steps[i].loss) << i;
      EXPECT_EQ(whole.steps[i].lr, resumed.steps[i].lr) << i;
      EXPECT_EQ(whole.steps[i].phase, resumed.steps[i].phase) << i;
    }
    expect_same_end_of(dir / "whole", kPhasedSteps, run, kPhasedSteps);
    EXPECT_EQ(file_of(dir / "whole", kPhasedSteps, "weft/state.json"), file_of(run, kPhasedSteps, "weft/state.json"));
  }
}

TEST(Phases, ARunThatWasStoppedInAnyPhaseGoesOnToTheBit) {
  expect_phases_go_on({"train.precision=bf16", "parallel.dp=2", "parallel.zero_stage=3"}, {2, 4, 6});
}
TEST(PhasesSlow, OnLayoutsTooItGoesOnToTheBit) {
  const std::vector<int64_t> all{1, 2, 3, 4, 5, 6};
  for (const Settings& layout : std::vector<Settings>{
           {},
           {"parallel.pp=2", "parallel.tp=2", "optimizer.name=muon"},
           {"parallel.pp=2", "parallel.dp=2", "parallel.zero_stage=2", "train.numerics=invariant"},
           {"parallel.cp=2", "optimizer.name=adamw8bit", "optimizer.min_8bit_size=500"},
           {"parallel.dp=2", "parallel.zero_stage=1", "train.precision=fp16", "train.initial_loss_scale=16777216"},
           {"parallel.pp=2", "parallel.pipeline_schedule=zb_h1", "parallel.recompute=full"}})
    expect_phases_go_on(layout, all);
}

TEST(PhasesSlow, LayoutsAreEqualToOneRank) {
  testing::TempDir dir;
  const Settings settings = joined({kMany, two_files(dir.path())});
  const Metrics one =
      train_phases_of(phased_recipe(dir / "one", joined({settings, {"run.backend=ref"}}), many_phases()));
  int number = 0;
  for (const Settings& layout : std::vector<Settings>{{"parallel.dp=2", "parallel.zero_stage=3"},
                                                      {"parallel.tp=2", "parallel.pp=2"},
                                                      {"parallel.cp=2"},
                                                      {"parallel.dp=2", "parallel.pp=2", "parallel.zero_stage=2"}}) {
    const Metrics many = train_phases_of(phased_recipe(dir / fmt::format("many-{}", number++),
                                                       joined({settings, layout, {"run.backend=ref"}}), many_phases()));
    for (size_t i = 0; i < size_t(kPhasedSteps); ++i)
      EXPECT_NEAR(one.steps[i].loss, many.steps[i].loss, 1e-11 * one.steps[i].loss) << layout[0] << " " << i;
  }
}
// Asynchronous, with memory of its own: what one phase hands on, the next must not find half done.
TEST(PhasesSlow, OnADeviceApartTheyHaveTheSameBits) {
  for (const Settings& layout : std::vector<Settings>{{}, {"parallel.dp=2", "parallel.zero_stage=2"}}) {
    testing::TempDir dir;
    const Settings settings = joined({kMany, two_files(dir.path()), layout});
    train_phases_of(phased_recipe(dir / "here", settings, many_phases()));
    const Recipe apart = phased_recipe(dir / "apart", settings, many_phases());
    testing::train(apart, testing::apart(machine_for(apart)));
    expect_same_end_of(dir / "here", kPhasedSteps, dir / "apart", kPhasedSteps);
  }
}

TEST(Phases, InvariantNumericsAreTheSameBitsForAnyDp) {
  testing::TempDir dir;
  const Settings settings = joined({kMany, two_files(dir.path()), {"train.numerics=invariant"}});
  train_phases_of(phased_recipe(dir / "one", settings, many_phases()));
  train_phases_of(
      phased_recipe(dir / "two", joined({settings, {"parallel.dp=2", "parallel.zero_stage=2"}}), many_phases()));
  expect_same_end_of(dir / "one", kPhasedSteps, dir / "two", kPhasedSteps);
}

std::vector<double> numbers_of(const fs::path& file, const std::string& tensor) {
  const SafetensorsFile all = SafetensorsFile::open(file);
  const SafetensorsEntry* entry = all.find(tensor);
  EXPECT_NE(entry, nullptr) << tensor;
  if (entry == nullptr) return {};
  const auto bytes = all.bytes(*entry);
  std::vector<double> numbers(bytes.size() / sizeof(double));
  EXPECT_EQ(int64_t(numbers.size()), entry->shape[0]) << "of f64";
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

// The update of the first step of twice the batch, by hand, from the same gradient without the rule: averages are by 2
// (1 - beta), eps by 1 / sqrt(2), and bias corrections those of two steps, for those behind it count as one.
TEST(Phases, TheSquareRootRuleInFullIsAdamsUpdateWithItsAverages) {
  testing::TempDir dir;
  const Settings settings{"run.backend=ref",        "train.train_iters=3",      "checkpoint.save_interval=1",
                          "optimizer.lr=0.01",      "optimizer.min_lr=0.001",   "optimizer.weight_decay=0",
                          "optimizer.clip_grad=0",  "optimizer.adam_beta1=0.9", "optimizer.adam_beta2=0.8",
                          "optimizer.adam_eps=1e-3"};
  const Phases phases{{2, {{"train.global_batch_size", "8"}}}};
  train_phases_of(phased_recipe(dir / "rule", joined({settings, {"optimizer.lr_scaling=sqrt_adam"}}), phases));
  train_phases_of(phased_recipe(dir / "none", settings, phases));
  const auto read = [&](const char* run, int64_t step, const char* file, const std::string& state) {
    return numbers_of(dir / run / fmt::format("checkpoints/step-{}", step) / file,
                      (state.empty() ? "model.norm.weight" : "final_norm.weight") + state);
  };
  const char *state = "weft/optimizer.safetensors", *model = "model.safetensors";
  const auto m = read("none", 2, state, ".exp_avg"), v = read("none", 2, state, ".exp_avg_sq"),
             m_none = read("none", 3, state, ".exp_avg"), w = read("rule", 2, model, ""),
             m_rule = read("rule", 3, state, ".exp_avg"), v_rule = read("rule", 3, state, ".exp_avg_sq"),
             w_rule = read("rule", 3, model, "");
  ASSERT_GT(m.size(), 0u);
  for (size_t i = 0; i < m.size(); ++i) {
    const double g = (m_none[i] - 0.9 * m[i]) / 0.1, m_now = 0.8 * m[i] + 0.2 * g, v_now = 0.6 * v[i] + 0.4 * g * g;
    EXPECT_NEAR(m_rule[i], m_now, 1e-12) << i;
    EXPECT_NEAR(v_rule[i], v_now, 1e-12) << i;
    const double step = m_now / (1 - 0.8 * 0.8) / (std::sqrt(v_now / (1 - 0.6 * 0.6)) + 1e-3 / std::sqrt(2.0));
    EXPECT_NEAR(w_rule[i], w[i] - 0.01 * std::sqrt(2.0) * step, 1e-10) << i;
  }
}

// The order in which samples come is the run's: each source's once before any comes again, over all phases.
TEST(Phases, EachSourceIsReadOnBehindWhatEarlierPhasesReadOfIt) {
  testing::TempDir dir;
  const auto spans = run_spans(phased_recipe(dir / "run", joined({kMany, two_files(dir.path())}), many_phases()));
  ASSERT_EQ(spans.size(), 7u);  // at first, 3 of the ramp, and 3 more
  const int64_t mix[] = {0, 0, 0, 0, 1, 2, 3}, samples[] = {0, 2, 4, 8, 14, 16, 18},
                first_sample[] = {0, 2, 4, 8, 0, 0, 0};
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(spans[i].mix, mix[i]) << i;
    EXPECT_EQ(spans[i].samples, samples[i]) << i;
    EXPECT_EQ(spans[i].first_sample, first_sample[i]) << i;
  }
  // 14 samples of 16 tokens, by 1 to 2; 2 of 32 tokens by 1 to 2; 2 of 32 by 3 to 1.
  EXPECT_EQ(spans[3].begun, std::vector<int64_t>());
  EXPECT_EQ(spans[4].begun, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(spans[6].longest, 32);
  int64_t read = 0;
  for (const int64_t n : spans[6].begun) read += n;
  EXPECT_EQ(read, 14 + 2 * 2 + 2 * 2) << "in samples of 16 tokens";
}

// A stop that comes between two phases is heard after the first step of the second, whose checkpoint it then is.
TEST(Phases, AStopBetweenTwoPhasesLosesNothing) {
  testing::TempDir dir;
  const Phases phases{{2, {{"train.seq_length", "32"}}}};
  const Settings none{"checkpoint.save_interval=0"};
  const Recipe stopped = phased_recipe(dir / "stopped", none, phases);
  std::atomic<bool> stop{false};
  Machine machine = testing::unmeasured(machine_for(stopped));
  machine.make_backend = [&stop, begun = std::make_shared<int>(0), make = machine.make_backend](Arena& workspace) {
    if (++*begun == 2) stop = true;
    return make(workspace);
  };
  {
    const RunLock lock = claim_run_folder(stopped);
    const int nowhere = open("/dev/null", O_WRONLY);
    EXPECT_FALSE(train_on_ranks({.recipe = stopped, .machine = machine, .stop = stop, .terminal_fd = nowhere}));
    close(nowhere);
  }
  EXPECT_EQ(newest_checkpoint(dir / "stopped")->filename(), "step-3");
  train_phases_of(stopped);
  train_phases_of(phased_recipe(dir / "whole", none, phases));
  expect_same_end_of(dir / "whole", 4, dir / "stopped", 4);
}

TEST(Phases, PhasesAheadMayBeEditedAndThoseBehindMayNot) {
  testing::TempDir dir;
  const Phases first{{1, {{"train.global_batch_size", "8"}}}},
      more{{1, {{"train.global_batch_size", "8"}}}, {3, {{"train.seq_length", "32"}}}},
      other{{1, {{"train.global_batch_size", "12"}}}};
  train_phases_of(phased_recipe(dir / "run", {"train.train_iters=3"}, first));
  const auto refusal = [&](const Settings& settings, const Phases& phases) {
    return testing::error_of<ConfigError>([&] { claim_run_folder(phased_recipe(dir / "run", settings, phases)); });
  };
  EXPECT_SAYS(refusal({}, other), "the [[phase]] with from_step = 1, which has begun (the run has done 3 steps)");
  EXPECT_SAYS(refusal({}, {}), "train.global_batch_size = 8 there, no such phase here");
  EXPECT_SAYS(refusal({"optimizer.lr=0.5"}, first), "add a [[phase]] with from_step = 3");
  train_phases_of(phased_recipe(dir / "run", {}, more));
  train_phases_of(phased_recipe(dir / "whole", {}, more));
  expect_same_end_of(dir / "whole", 4, dir / "run", 4);
  // One that has not begun may also go, the last one there was.
  const Phases ahead{{3, {{"train.seq_length", "32"}}}};
  train_phases_of(phased_recipe(dir / "dropped", {"checkpoint.save_interval=2"}, ahead));
  fs::remove_all(dir / "dropped/checkpoints/step-4");
  train_phases_of(phased_recipe(dir / "dropped", {}));
  train_phases_of(phased_recipe(dir / "never", {}));
  expect_same_end_of(dir / "never", 4, dir / "dropped", 4);
}

}  // namespace
}  // namespace weft
