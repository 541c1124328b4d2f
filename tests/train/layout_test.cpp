// Layouts: the same training, cut over ranks.
#include <span>

#include "support.h"
#include "train/golden.h"
#include "weft/apps/backends.h"

namespace weft {
namespace {

struct Outcome {
  Metrics metrics;
  std::string weights, optimizer;  // files of the last checkpoint
};

// A golden case with these overrides, on threads as ranks; `backend` is cpu or ref.
Outcome run_case(const std::string& name, const std::string& backend, std::vector<std::string> overrides) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden" / name;
  testing::TempDir dir;
  overrides.push_back("run.backend=" + backend);
  overrides.push_back("run.threads=1");
  const Recipe recipe = testing::golden_recipe(folder, dir / "run", overrides);
  testing::train(recipe, machine_for(recipe));
  const auto last = dir / fmt::format("run/checkpoints/step-{}", recipe.train.train_iters);
  return {read_metrics(dir / "run/metrics.jsonl"), testing::slurp(last / "model.safetensors"),
          testing::slurp(last / "weft/optimizer.safetensors")};
}

void expect_same_losses(const Outcome& one, const Outcome& many, double tolerance, const std::string& what) {
  ASSERT_EQ(one.metrics.steps.size(), many.metrics.steps.size()) << what;
  for (size_t i = 0; i < one.metrics.steps.size(); ++i) {
    const auto &a = one.metrics.steps[i], &b = many.metrics.steps[i];
    EXPECT_NEAR(a.loss, b.loss, tolerance * a.loss) << what << " step " << i + 1;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 10 * tolerance * a.grad_norm) << what << " step " << i + 1;
  }
}

// In fp64 a layout differs from one rank by the order of its sums alone.
TEST(LayoutsSlow, DataParallelEqualsOneRankInFp64) {
  for (const char* name : {"llama3-rope-tied", "llama-sft-mask", "gpt2"}) {
    const std::vector<std::string> base{"train.train_iters=3", "optimizer.lr_warmup_iters=1",
                                        "train.micro_batch_size=1"};
    const Outcome one = run_case(name, "ref", base);
    for (const char* dp : {"2", "4", "8"}) {
      for (const char* recompute : {"none", "full"}) {
        std::vector<std::string> overrides = base;
        overrides.push_back(std::string("parallel.dp=") + dp);
        overrides.push_back(std::string("parallel.recompute=") + recompute);
        const Outcome many = run_case(name, "ref", overrides);
        expect_same_losses(one, many, 1e-11, fmt::format("{} dp {} recompute {}", name, dp, recompute));
      }
    }
  }
}

// However ranks are numbered, and whichever parts of a layout lie far apart.
TEST(LayoutsSlow, TheOrderOfTheAxesChangesNothing) {
  const std::vector<std::string> base{"train.train_iters=3", "optimizer.lr_warmup_iters=1", "train.micro_batch_size=1"};
  const Outcome one = run_case("llama-gqa", "ref", base);
  for (const char* order : {"tp-cp-ep-dp-pp", "pp-dp-ep-cp-tp", "dp-pp-tp-ep-cp", "cp-dp-ep-tp-pp"}) {
    for (const char* zero_stage : {"0", "2"}) {
      std::vector<std::string> overrides = base;
      for (const char* size : {"parallel.dp=2", "parallel.tp=2", "parallel.pp=2"}) overrides.push_back(size);
      overrides.push_back(std::string("parallel.zero_stage=") + zero_stage);
      overrides.push_back(std::string("parallel.order=") + order);
      expect_same_losses(one, run_case("llama-gqa", "ref", overrides), 1e-11, order);
    }
  }
}

// Each gradient is rounded to bf16 once on its rank, their sum once.
TEST(LayoutsSlow, GradientsThatTravelInBf16ChangeARunByTheirRounding) {
  const std::vector<std::string> base{"train.train_iters=3", "optimizer.lr_warmup_iters=1", "train.micro_batch_size=1",
                                      "parallel.dp=2"};
  for (const char* stage : {"0", "1", "2", "3"}) {
    std::vector<std::string> overrides = base;
    overrides.push_back(std::string("parallel.zero_stage=") + stage);
    const Outcome f32 = run_case("llama-gqa", "cpu", overrides);
    overrides.push_back("train.grad_reduce_dtype=bf16");
    const Outcome bf16 = run_case("llama-gqa", "cpu", overrides);
    expect_same_losses(f32, bf16, 0x1p-8, stage);
    EXPECT_NE(f32.metrics.steps[0].grad_norm, bf16.metrics.steps[0].grad_norm) << stage;
  }
}

// Held-out data is scored through all stages, by as many ranks as there are batches for, and by others in vain.
TEST(LayoutsSlow, EvaluationIsTheSameOnAnyLayout) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  const std::vector<std::string> base{"train.train_iters=2", "optimizer.lr_warmup_iters=1", "train.micro_batch_size=1",
                                      "train.eval_iters=3", "data.valid=" + (folder / "tokens.bin").string()};
  const Outcome one = run_case("llama-gqa", "ref", base);
  ASSERT_EQ(one.metrics.evals.size(), 1u);
  for (const char* layout : {"parallel.tp=2", "parallel.pp=4", "parallel.pp=2 parallel.pipeline_schedule=zbv",
                             "parallel.dp=4 parallel.zero_stage=3 parallel.tp=2",
                             "parallel.pp=2 parallel.pipeline_schedule=interleaved_1f1b parallel.dp=2"}) {
    std::vector<std::string> overrides = base;
    std::istringstream words(layout);
    for (std::string word; words >> word;) overrides.push_back(word);
    const Outcome many = run_case("llama-gqa", "ref", overrides);
    ASSERT_EQ(many.metrics.evals.size(), 1u) << layout;
    EXPECT_NEAR(one.metrics.evals[0].loss, many.metrics.evals[0].loss, 1e-11) << layout;
    EXPECT_EQ(one.metrics.evals[0].tokens, many.metrics.evals[0].tokens) << layout;
  }
}

// Two micro-batches for each of three ranks, of which the last window is not whole.
TEST(Layouts, HeldOutLossIsThatOfOneRankAndWeightsItsTokensAlike) {
  testing::TempDir dir;
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  testing::spill(dir / "valid.bin",
                 std::string_view(testing::slurp(folder / "tokens.bin")).substr(0, 2 * (10 * 16 + 6)));
  const std::vector<std::string> base{"train.train_iters=1",        "train.seq_length=16",
                                      "train.global_batch_size=12", "optimizer.lr_warmup_iters=0",
                                      "train.micro_batch_size=2",   "data.valid=" + (dir / "valid.bin").string()};
  const auto evaluate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run_case("llama-gqa", "ref", all);
    EXPECT_EQ(outcome.metrics.evals.size(), 1u);
    return outcome.metrics.evals.at(0);
  };
  const EvalRecord one = evaluate({});
  EXPECT_EQ(one.tokens, 10 * 16 + 5);
  const EvalRecord alone = evaluate({"train.micro_batch_size=1"});  // a window at a time: other sums, the same mean
  EXPECT_NEAR(alone.loss, one.loss, 1e-11);
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.dp=3"},
        {"parallel.pp=2", "parallel.tp=2", "parallel.pipeline_schedule=zbv"}}) {
    const EvalRecord many = evaluate(layout);
    EXPECT_NEAR(many.loss, one.loss, 1e-11) << layout[0];
    EXPECT_EQ(many.tokens, one.tokens) << layout[0];
  }
}

// In fp16: a loss scale that takes a dozen steps of overflow to fall to where gradients fit.
constexpr const char* kOverflowing = "train.initial_loss_scale=1073741824";  // 2^30

struct Cut {
  int dp, pp, zero_stage, zero_shard_size;
  const char *schedule, *recompute;
};
constexpr Cut kCutsOfRanks[] = {
    {2, 1, 0, 0, "1f1b", "none"},       {3, 1, 0, 0, "gpipe", "full"}, {4, 1, 1, 0, "zb_h1", "selective"},
    {6, 1, 2, 2, "zb_h1", "full"},      {12, 1, 3, 0, "1f1b", "none"}, {3, 1, 2, 0, "1f1b", "none"},
    {6, 1, 3, 3, "gpipe", "selective"}, {1, 2, 0, 0, "1f1b", "none"},  {1, 4, 0, 0, "gpipe", "full"},
    {2, 2, 1, 0, "zb_h1", "selective"}, {2, 2, 3, 0, "zbv", "none"},   {3, 2, 2, 0, "interleaved_1f1b", "none"},
    {6, 2, 1, 2, "zbv", "full"}};

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Any number of ranks that divides the batch, powers of two or not, any accumulation, schedule, recomputation: one run.
// Returns the steps that were skipped.
int64_t expect_same_bits(const char* name, const std::vector<std::string>& settings, std::span<const Cut> cuts) {
  std::vector<std::string> base{
      "train.numerics=invariant",    "train.micro_batch_size=1", "train.global_batch_size=12", "train.train_iters=4",
      "optimizer.lr_warmup_iters=1", "model.hidden_dropout=0.1", "model.attention_dropout=0.1"};
  base.insert(base.end(), settings.begin(), settings.end());
  const Outcome one = run_case(name, "cpu", base);
  EXPECT_FALSE(one.weights.empty());
  for (const Cut& cut : cuts) {
    std::vector<std::string> overrides = base;
    overrides.push_back(fmt::format("parallel.dp={}", cut.dp));
    overrides.push_back(fmt::format("parallel.pp={}", cut.pp));
    overrides.push_back(fmt::format("parallel.zero_stage={}", cut.zero_stage));
    overrides.push_back(fmt::format("parallel.zero_shard_size={}", cut.zero_shard_size));
    overrides.push_back(std::string("parallel.pipeline_schedule=") + cut.schedule);
    overrides.push_back(std::string("parallel.recompute=") + cut.recompute);
    SCOPED_TRACE(fmt::format("{} dp {} pp {} zero {}/{} {} {}", name, cut.dp, cut.pp, cut.zero_stage,
                             cut.zero_shard_size, cut.schedule, cut.recompute));
    const Outcome many = run_case(name, "cpu", overrides);
    EXPECT_TRUE(many.weights == one.weights);
    EXPECT_TRUE(many.optimizer == one.optimizer);
    for (size_t i = 0; i < one.metrics.steps.size(); ++i) {
      EXPECT_TRUE(same_number(many.metrics.steps[i].loss, one.metrics.steps[i].loss));
      EXPECT_TRUE(same_number(many.metrics.steps[i].grad_norm, one.metrics.steps[i].grad_norm));
      EXPECT_EQ(many.metrics.steps[i].skipped_steps, one.metrics.steps[i].skipped_steps);
    }
  }
  return one.metrics.steps.back().skipped_steps;
}

TEST(Layouts, InvariantNumericsGiveTheSameBitsForSomeLayouts) {
  constexpr Cut kSome[] = {{3, 1, 0, 0, "gpipe", "full"}, {6, 1, 2, 2, "zb_h1", "none"}, {2, 2, 3, 0, "zbv", "none"}};
  expect_same_bits("llama3-rope-tied", {}, kSome);
}

TEST(LayoutsSlow, InvariantNumericsGiveTheSameBitsForAnyLayout) {
  for (const char* name : {"llama3-rope-tied", "qwen2-bias"}) expect_same_bits(name, {}, kCutsOfRanks);
}

TEST(LayoutsSlow, InvariantNumericsInFp16GiveTheSameBitsForAnyLayout) {
  const int64_t skipped = expect_same_bits(
      "llama3-rope-tied",
      {"train.precision=fp16", "train.initial_loss_scale=8388608", "train.hysteresis=1", "train.train_iters=8"},
      kCutsOfRanks);
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 6);
}

// Muon sees matrices whole that many ranks keep parts of.
TEST(LayoutsSlow, InvariantNumericsWithMuonGiveTheSameBitsForAnyLayout) {
  for (const char* name : {"llama3-rope-tied", "qwen2-bias"})
    expect_same_bits(name, {"optimizer.name=muon"}, kCutsOfRanks);
}

// And code blocks, of which many ranks keep pieces.
TEST(LayoutsSlow, InvariantNumericsWithMomentsIn8BitsGiveTheSameBitsForAnyLayout) {
  for (const char* name : {"llama3-rope-tied", "qwen2-bias"})
    expect_same_bits(name, {"optimizer.name=adamw8bit", "optimizer.min_8bit_size=500"}, kCutsOfRanks);
}

// Each rank has leaves of its own, which are the batch's micro-batches in their order.
TEST(Layouts, InvariantNumericsGiveTheSameBitsForUnequalShares) {
  const std::vector<std::string> base{"train.numerics=invariant",    "train.micro_batch_size=1",
                                      "train.global_batch_size=12",  "train.train_iters=3",
                                      "optimizer.lr_warmup_iters=1", "model.hidden_dropout=0.1"};
  const Outcome one = run_case("llama3-rope-tied", "cpu", base);
  using Words = std::vector<std::string>;
  for (const Words& layout : {Words{"parallel.dp=2", "parallel.micro_batches=[9, 3]"},
                              Words{"parallel.dp=3", "parallel.micro_batches=[1, 7, 4]", "parallel.pp=2",
                                    "parallel.zero_stage=1", "parallel.pipeline_schedule=zb_h1"}}) {
    Words all = base;
    all.insert(all.end(), layout.begin(), layout.end());
    const Outcome many = run_case("llama3-rope-tied", "cpu", all);
    EXPECT_TRUE(many.weights == one.weights) << layout[1];
    EXPECT_TRUE(many.optimizer == one.optimizer) << layout[1];
    for (size_t i = 0; i < one.metrics.steps.size(); ++i)
      EXPECT_TRUE(same_number(many.metrics.steps[i].loss, one.metrics.steps[i].loss)) << layout[1];
  }
}

// The control of the tests above: sums in the order of the ranks are not the same bits.
TEST(Layouts, FastNumericsDependOnTheLayout) {
  const std::vector<std::string> base{"train.micro_batch_size=1", "train.train_iters=4", "optimizer.lr_warmup_iters=1"};
  std::vector<std::string> cut = base;
  cut.push_back("parallel.dp=4");
  EXPECT_FALSE(run_case("llama3-rope-tied", "cpu", base).weights == run_case("llama3-rope-tied", "cpu", cut).weights);
  EXPECT_TRUE(run_case("llama3-rope-tied", "cpu", cut).weights == run_case("llama3-rope-tied", "cpu", cut).weights);
}

// A loss scale that is far too large: no weight changes until it has fallen to where gradients fit; then the run
// trains.
TEST(Layouts, AnFp16RunThatOverflowsSkipsRecoversAndTrains) {
  const Outcome run = run_case("llama-gqa", "cpu",
                               {"train.precision=fp16", kOverflowing, "train.hysteresis=1", "train.train_iters=30",
                                "optimizer.lr=1e-2", "optimizer.lr_warmup_iters=1"});
  const std::vector<StepRecord>& steps = run.metrics.steps;
  ASSERT_EQ(steps.size(), 30u);
  double scale = 0x1p30;
  int64_t skipped = 0;
  for (const StepRecord& step : steps) {
    const bool overflowed = !std::isfinite(step.grad_norm);
    EXPECT_EQ(step.loss_scale, scale) << step.step;
    EXPECT_TRUE(skipped + 1 < step.step || step.lr == steps[0].lr) << "the learning rate counts updates";
    skipped += overflowed;
    if (overflowed) scale /= 2;
    EXPECT_EQ(step.skipped_steps, skipped) << step.step;
  }
  EXPECT_FALSE(std::isfinite(steps[4].grad_norm));
  EXPECT_LT(skipped, 20);
  EXPECT_LT(steps.back().loss, 0.97 * steps[0].loss);
}

// Every step sees the same batch, so the updates behind the skipped steps are those of a run that begins with a scale
// at which gradients fit: to the bit, with the learning rates and bias corrections of the first updates.
TEST(Layouts, SkippedStepsLeaveNoTraceInTheUpdatesBehindThem) {
  testing::TempDir dir;
  const std::string tokens =
      testing::slurp(std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa/tokens.bin");
  testing::spill(dir / "batch.bin", std::string_view(tokens).substr(0, 2 * (8 * 16 + 1)));
  const auto run = [&](const std::vector<std::string>& scale) {
    std::vector<std::string> all{"train.precision=fp16",        "data.train=" + (dir / "batch.bin").string(),
                                 "train.seq_length=16",         "train.train_iters=20",
                                 "optimizer.lr_warmup_iters=3", "optimizer.lr_decay_iters=10"};
    all.insert(all.end(), scale.begin(), scale.end());
    return run_case("llama-gqa", "cpu", all).metrics.steps;
  };
  const auto updates = [](const std::vector<StepRecord>& steps) {
    std::vector<double> losses;
    for (const StepRecord& step : steps)
      if (std::isfinite(step.grad_norm)) losses.push_back(step.loss);
    return losses;
  };
  const std::vector<StepRecord> falling = run({kOverflowing, "train.hysteresis=1"});
  EXPECT_GT(falling.back().skipped_steps, 3);
  const auto behind = updates(falling);
  const auto alone = updates(run({fmt::format("train.loss_scale={}", falling.back().loss_scale)}));
  ASSERT_GT(behind.size(), 3u);
  ASSERT_EQ(alone.size(), 20u);
  for (size_t i = 0; i < behind.size(); ++i) EXPECT_NEAR(behind[i], alone[i], 1e-4 * alone[i]) << "update " << i + 1;
}

// SGD, whose steps are as long as its gradient: by the norm of the scaled one they would be a thousandth of that.
TEST(Layouts, AnFp16RunIsClippedByTheNormOfItsTrueGradients) {
  const auto losses = [](const std::string& clip, const std::vector<std::string>& more) {
    std::vector<std::string> all{"optimizer.name=sgd",          "optimizer.lr=1",      "train.train_iters=5",
                                 "optimizer.lr_warmup_iters=0", "train.seq_length=16", "optimizer.clip_grad=" + clip};
    all.insert(all.end(), more.begin(), more.end());
    std::vector<double> found;
    for (const StepRecord& step : run_case("llama-gqa", "cpu", all).metrics.steps) found.push_back(step.loss);
    return found;
  };
  const auto exact = losses("0.1", {}), unclipped = losses("0", {});
  const auto scaled = losses("0.1", {"train.precision=fp16", "train.loss_scale=1024"});
  constexpr double kRounding = 5e-4;
  ASSERT_EQ(scaled.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(scaled[i], exact[i], kRounding * exact[i]) << "step " << i + 1;
  EXPECT_LT(exact.back(), exact.front() * (1 - 10 * kRounding)) << "learned too little to tell";
  EXPECT_GT(std::abs(unclipped.back() - exact.back()), 10 * kRounding * exact.back()) << "nothing was clipped";
}

TEST(LayoutsSlow, EveryLayoutSkipsTheSameStepsInFp16) {
  const std::vector<std::string> base{"train.precision=fp16", kOverflowing,           "train.micro_batch_size=1",
                                      "train.hysteresis=1",   "train.train_iters=16", "optimizer.lr_warmup_iters=1"};
  const Outcome one = run_case("llama-gqa", "cpu", base);
  EXPECT_GT(one.metrics.steps.back().skipped_steps, 5);
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {"parallel.dp=2"},
           {"parallel.tp=2"},
           {"parallel.tp=2", "parallel.sequence_parallel=false"},
           {"parallel.pp=2"},
           {"parallel.dp=2", "parallel.zero_stage=2"},
           {"parallel.dp=2", "parallel.zero_stage=3"},
           {"parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "parallel.zero_stage=1"}}) {
    std::vector<std::string> overrides = base;
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    const Outcome many = run_case("llama-gqa", "cpu", overrides);
    ASSERT_EQ(one.metrics.steps.size(), many.metrics.steps.size());
    for (size_t i = 0; i < one.metrics.steps.size(); ++i) {
      const StepRecord &a = one.metrics.steps[i], &b = many.metrics.steps[i];
      const std::string where = fmt::format("{} {} step {}", layout[0], layout.back(), i + 1);
      EXPECT_EQ(a.skipped_steps, b.skipped_steps) << where;
      EXPECT_EQ(a.loss_scale, b.loss_scale) << where;
      EXPECT_NEAR(a.loss, b.loss, 1e-3 * a.loss) << where;
      EXPECT_TRUE(!std::isfinite(a.grad_norm) || std::abs(a.grad_norm - b.grad_norm) < 1e-2 * a.grad_norm) << where;
    }
  }
}

// Below the least scale there is nothing left to try: the report of bad numbers ends every rank.
TEST(Layouts, AnOverflowAtTheLeastLossScaleEndsTheRunWithItsReport) {
  try {
    run_case("llama-gqa", "cpu",
             {"train.precision=fp16", kOverflowing, "train.min_loss_scale=268435456", "parallel.dp=2"});
    FAIL() << "2^28 trained";
  } catch (const NumericsError& e) {
    EXPECT_NE(std::string(e.what()).find("step 4: loss"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("at the least loss scale, 268435456"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("first in"), std::string::npos) << e.what();
  }
}

// bf16, SGD, held-out loss: what is counted over ranks agrees with one.
TEST(LayoutsSlow, EvaluationIsSharedAmongTheRanks) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  const std::vector<std::string> base{"train.train_iters=4",      "optimizer.lr_warmup_iters=1",
                                      "train.micro_batch_size=1", "train.eval_interval=2",
                                      "optimizer.name=sgd",       "data.valid=" + (folder / "tokens.bin").string()};
  const Outcome one = run_case("llama-gqa", "ref", base);
  std::vector<std::string> overrides = base;
  overrides.push_back("parallel.dp=4");
  const Outcome many = run_case("llama-gqa", "ref", overrides);
  ASSERT_EQ(one.metrics.evals.size(), 2u);
  ASSERT_EQ(many.metrics.evals.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(one.metrics.evals[i].loss, many.metrics.evals[i].loss, 1e-11);
    EXPECT_EQ(one.metrics.evals[i].tokens, many.metrics.evals[i].tokens);
  }
}

// A checkpoint knows nothing of the layout that wrote it.
void expect_goes_on_under_another_layout(const std::vector<std::string>& optimizer) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/qwen3-qknorm";
  testing::TempDir dir;
  const auto part = [&](const std::filesystem::path& run, const std::string& dp, bool stopping) {
    std::vector<std::string> settings{"train.numerics=invariant", "train.micro_batch_size=1",   "run.threads=1",
                                      "train.train_iters=6",      "checkpoint.save_interval=1", "parallel.dp=" + dp};
    settings.insert(settings.end(), optimizer.begin(), optimizer.end());
    Recipe recipe = testing::golden_recipe(folder, run, settings);
    const RunLock lock = claim_run_folder(recipe);
    const Machine machine = testing::unmeasured(machine_for(recipe));
    const std::atomic<bool> stop{stopping};
    const int nowhere = open("/dev/null", O_WRONLY);
    const bool done = train_on_ranks({.recipe = recipe, .machine = machine, .stop = stop, .terminal_fd = nowhere});
    close(nowhere);
    return done;
  };
  EXPECT_TRUE(part(dir / "whole", "1", false));
  EXPECT_FALSE(part(dir / "cut", "4", true));  // before the first step: there is nothing to save
  EXPECT_FALSE(std::filesystem::exists(dir / "cut/checkpoints"));
  std::filesystem::create_directories(dir / "cut/checkpoints");
  std::filesystem::copy(dir / "whole/checkpoints/step-5", dir / "cut/checkpoints/step-5",
                        std::filesystem::copy_options::recursive);
  EXPECT_TRUE(part(dir / "cut", "2", false));
  EXPECT_TRUE(testing::slurp(dir / "whole/checkpoints/step-6/model.safetensors") ==
              testing::slurp(dir / "cut/checkpoints/step-6/model.safetensors"));
  EXPECT_TRUE(testing::slurp(dir / "whole/checkpoints/step-6/weft/optimizer.safetensors") ==
              testing::slurp(dir / "cut/checkpoints/step-6/weft/optimizer.safetensors"));
}

TEST(Layouts, ARunGoesOnUnderAnotherLayoutToTheBit) {
  for (const std::vector<std::string>& optimizer : {std::vector<std::string>{"optimizer.name=adamw"},
                                                    {"optimizer.name=muon"},
                                                    {"optimizer.name=adamw8bit", "optimizer.min_8bit_size=500"}})
    expect_goes_on_under_another_layout(optimizer);
}

// The tensors of a checkpoint's optimizer whose names end so, one after the other.
std::string optimizer_bytes(const std::filesystem::path& checkpoint, const std::string& ending) {
  const SafetensorsFile file = SafetensorsFile::open(checkpoint / "weft/optimizer.safetensors");
  std::string all;
  for (const SafetensorsEntry& e : file.tensors())
    if (e.name.ends_with(ending)) {
      const auto bytes = file.bytes(e);
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  return all;
}

// In fp64 each layout has the codes of one rank, all of them: code blocks are of whole matrices (in this model of 2560
// and 1024 elements in rows of 64, and so on), however tp and ZeRO cut them.
void expect_codes_of_one_rank(const std::vector<std::vector<std::string>>& layouts) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  testing::TempDir dir;
  const auto train = [&](const std::string& run, const std::vector<std::string>& layout) {
    std::vector<std::string> settings{"run.backend=ref",          "run.threads=1",
                                      "optimizer.name=adamw8bit", "optimizer.min_8bit_size=600",
                                      "train.train_iters=2",      "optimizer.lr_warmup_iters=0",
                                      "train.micro_batch_size=1"};
    settings.insert(settings.end(), layout.begin(), layout.end());
    const Recipe recipe = testing::golden_recipe(folder, dir / run, settings);
    testing::train(recipe, machine_for(recipe));
    return dir / run / "checkpoints/step-2";
  };
  const auto one = train("one", {});
  const std::string codes = optimizer_bytes(one, ".codes"), absmax = optimizer_bytes(one, ".absmax");
  ASSERT_FALSE(codes.empty());
  EXPECT_EQ(absmax.size(), codes.size() / 256 * sizeof(double));
  for (size_t run = 0; run < layouts.size(); ++run) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layouts[run], " ")));
    const auto many = train(fmt::format("many{}", run), layouts[run]);
    EXPECT_TRUE(optimizer_bytes(many, ".codes") == codes);
    const std::string there = optimizer_bytes(many, ".absmax");
    ASSERT_EQ(there.size(), absmax.size());
    for (size_t at = 0; at < absmax.size(); at += sizeof(double)) {
      double a = 0, b = 0;
      std::memcpy(&a, absmax.data() + at, sizeof a);
      std::memcpy(&b, there.data() + at, sizeof b);
      ASSERT_NEAR(a, b, 1e-11 * a) << at;
    }
  }
}

// Over three ranks tp cuts heads and widths unevenly, and shards end within rows and blocks.
TEST(Layouts, CodesOfMomentsIn8BitsAreThoseOfOneRank) {
  expect_codes_of_one_rank(
      {{"parallel.tp=3", "parallel.dp=2", "parallel.zero_stage=3", "parallel.sequence_parallel=false"}});
}
TEST(LayoutsSlow, CodesOfMomentsIn8BitsAreThoseOfOneRankOnAnyLayout) {
  expect_codes_of_one_rank({{"parallel.dp=4"},
                            {"parallel.dp=4", "parallel.zero_stage=1"},
                            {"parallel.dp=2", "parallel.zero_stage=2"},
                            {"parallel.dp=4", "parallel.zero_stage=3"},
                            {"parallel.dp=4", "parallel.zero_stage=2", "parallel.zero_shard_size=2"},
                            {"parallel.tp=2"},
                            {"parallel.tp=4", "parallel.sequence_parallel=false"},
                            {"parallel.tp=3", "parallel.sequence_parallel=false"},
                            {"parallel.cp=2", "parallel.zero_stage=1"},
                            {"parallel.pp=2", "parallel.tp=2", "parallel.dp=2", "parallel.zero_stage=2"}});
}

TEST(Layouts, ACheckpointOfMomentsInFullIsNoneOfMomentsIn8Bits) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  testing::TempDir dir;
  const auto train = [&](const std::string& run, const std::string& optimizer, const std::string& steps) {
    const Recipe recipe = testing::golden_recipe(
        folder, dir / run,
        {"run.threads=1", "optimizer.name=" + optimizer, "optimizer.min_8bit_size=600", "optimizer.lr_warmup_iters=0",
         "optimizer.lr_decay_iters=9", "train.train_iters=" + steps});
    testing::train(recipe, machine_for(recipe));
  };
  train("full", "adamw", "1");
  train("codes", "adamw8bit", "1");
  std::filesystem::remove_all(dir / "codes/checkpoints/step-1");
  std::filesystem::copy(dir / "full/checkpoints/step-1", dir / "codes/checkpoints/step-1",
                        std::filesystem::copy_options::recursive);
  const std::string error = testing::error_of([&] { train("codes", "adamw8bit", "2"); });
  EXPECT_NE(error.find(".exp_avg.absmax"), std::string::npos) << error;
  EXPECT_NE(error.find("made with another optimizer"), std::string::npos) << error;
}

TEST(Layouts, AMuonCheckpointHoldsMomentumOfMatricesAndMomentsOfTheRest) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/qwen3-qknorm";
  testing::TempDir dir;
  const auto train = [&](const std::string& optimizer, const std::string& steps) {
    const Recipe recipe = testing::golden_recipe(
        folder, dir / "run",
        {"run.threads=1", "optimizer.name=" + optimizer, "train.train_iters=" + steps, "parallel.tp=2", "parallel.dp=2",
         "parallel.zero_stage=1", "train.micro_batch_size=1", "optimizer.lr_warmup_iters=0"});
    testing::train(recipe, machine_for(recipe));
  };
  train("muon", "1");
  const SafetensorsFile file = SafetensorsFile::open(dir / "run/checkpoints/step-1/weft/optimizer.safetensors");
  for (const SafetensorsEntry& e : file.tensors()) {
    const bool matrix = e.shape.size() == 2 && e.name.starts_with("blocks.");
    EXPECT_EQ(e.name.ends_with(".momentum_buffer"), matrix) << e.name;
  }
  EXPECT_NE(file.find("embed.tokens.exp_avg_sq"), nullptr);
}

// Bad numbers on one rank end all of them, with the message of the one that found them.
TEST(Layouts, ABadStepEndsEveryRankAndNamesItself) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  testing::TempDir dir;
  const Recipe recipe = testing::golden_recipe(folder, dir / "run",
                                               {"train.micro_batch_size=1", "run.threads=1", "parallel.dp=4",
                                                "optimizer.lr=1e30", "optimizer.lr_warmup_iters=0"});
  const RunLock lock = claim_run_folder(recipe);
  const Machine machine = testing::unmeasured(machine_for(recipe));
  const std::atomic<bool> stop{false};
  const int nowhere = open("/dev/null", O_WRONLY);
  const std::string said = testing::error_of<NumericsError>(
      [&] { train_on_ranks({.recipe = recipe, .machine = machine, .stop = stop, .terminal_fd = nowhere}); });
  EXPECT_SAYS(said, "step 2");
  close(nowhere);
}

}  // namespace
}  // namespace weft
