// A reference whose log-probabilities are stored beside the rows: the same run as beside a copy of it in memory.
#include "weft/train/run_reference.h"

#include <bit>
#include <cmath>
#include <fstream>

#include "train/golden.h"
#include "weft/apps/backends.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::string>;

const fs::path kGolden = fs::path(testing::kSourceDir) / "tests/golden";

// Runs in folders of one temporary one, beside copies of the rows.
class StoredReferences : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(kGolden / "dpo/pairs.jsonl", dir_ / "pairs.jsonl");
    fs::copy(kGolden / "grpo-sequence-kl/rollouts.jsonl", dir_ / "rollouts.jsonl");
    fs::copy(kGolden / "kto/examples.jsonl", dir_ / "examples.jsonl");
    std::istringstream all(testing::slurp(dir_ / "pairs.jsonl"));
    std::string some, line;
    for (int row = 0; row < 5 && std::getline(all, line); ++row) some += line + "\n";
    std::ofstream(dir_ / "valid.jsonl") << some;
  }

  Recipe recipe(const std::string& run, const Settings& more, const std::vector<Recipe::Phase>& phases = {},
                const char* golden = "dpo") const {
    const bool pairs = golden == std::string("dpo");
    const std::string rows = pairs ? "pairs" : golden == std::string("kto") ? "examples" : "rollouts";
    Settings all{fmt::format("data.{}={}", rows, (dir_ / (rows + ".jsonl")).string()),
                 "data.shuffle=true",
                 "train.train_iters=3",
                 "train.micro_batch_size=2",
                 "optimizer.lr_decay_style=constant",
                 "optimizer.lr_warmup_iters=0",
                 "train.log_grad_norms=false",
                 "run.threads=1",
                 "run.backend=cpu"};
    if (pairs) all.push_back("data.valid=" + (dir_ / "valid.jsonl").string());
    all.insert(all.end(), more.begin(), more.end());
    Recipe r = testing::golden_recipe(kGolden / golden, dir_ / run, all);
    r.phases = phases;
    r = parse_recipe(to_toml(r), "a test", {});
    check_supported(r);
    return r;
  }

  Metrics train(const Recipe& r) const {
    testing::train(r, machine_for(r));
    return read_metrics(fs::path(r.run.dir) / "metrics.jsonl");
  }

  // NaN, of a kind of example that a batch has not, is itself.
  static std::vector<uint64_t> bits_of(const std::vector<std::pair<std::string, double>>& terms) {
    std::vector<uint64_t> bits;
    for (const auto& [name, value] : terms) bits.push_back(std::isnan(value) ? ~0ull : std::bit_cast<uint64_t>(value));
    return bits;
  }

  void expect_same_run(const Settings& settings, const std::vector<Recipe::Phase>& phases = {},
                       const char* golden = "dpo") const {
    SCOPED_TRACE(fmt::format("{} {}", golden, fmt::join(settings, " ")));
    for (const char* run : {"memory", "stored"}) fs::remove_all(dir_ / run);
    Settings stored = settings;
    stored.push_back("objective.precompute_ref_log_probs=true");
    const Metrics a = train(recipe("memory", settings, phases, golden)),
                  b = train(recipe("stored", stored, phases, golden));
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (size_t i = 0; i < a.steps.size(); ++i) {
      EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << i;
      EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm) << i;
      EXPECT_EQ(bits_of(a.steps[i].terms), bits_of(b.steps[i].terms)) << i;
    }
    const size_t moved = golden == std::string("kto") ? 1 : 0;  // kl_before_clamp
    EXPECT_GT(std::abs(a.steps.back().terms[moved].second), 0) << "the model has moved";
    ASSERT_EQ(a.evals.size(), b.evals.size());
    for (size_t i = 0; i < a.evals.size(); ++i) EXPECT_EQ(bits_of(a.evals[i].terms), bits_of(b.evals[i].terms)) << i;
    const std::string last = fmt::format("checkpoints/step-{}", a.steps.size());
    for (const auto& file : fs::directory_iterator(dir_ / "memory" / last))
      if (file.path().extension() == ".safetensors") {
        EXPECT_TRUE(testing::slurp(file.path()) == testing::slurp(dir_ / "stored" / last / file.path().filename()));
      }
  }

  // Held-out ones, and as few to train on that there are several epochs.
  std::string few_examples() const {
    std::istringstream all(testing::slurp(kGolden / "kto/examples.jsonl"));
    std::string train, valid, line;
    for (int row = 0; row < 14 && std::getline(all, line); ++row) (row < 7 ? train : valid) += line + "\n";
    std::ofstream(dir_ / "examples.jsonl") << train;
    std::ofstream(dir_ / "valid.jsonl") << valid;
    return (dir_ / "valid.jsonl").string();
  }

  std::vector<fs::path> stored_files() const {
    std::vector<fs::path> all;
    for (const auto& file : fs::directory_iterator(dir_.path()))
      if (file.path().extension() == ".ref") all.push_back(file.path());
    std::sort(all.begin(), all.end());
    return all;
  }

  testing::TempDir dir_;
};
using StoredReferencesSlow = StoredReferences;

TEST_F(StoredReferences, HaveTheBitsOfACopyInMemory) {
  expect_same_run({"parallel.dp=2", "parallel.zero_stage=3", "train.precision=bf16", "train.train_iters=2"});
  EXPECT_EQ(stored_files().size(), 2u) << "of the pairs, and of those that are held out";
}

// Completions meet other prompts in each epoch of a shuffled order.
TEST_F(StoredReferences, HaveTheBitsOfACopyInMemoryOfMixedCompletions) {
  const Settings small{"train.micro_batch_size=1", "train.train_iters=4", "data.valid=" + few_examples()};
  expect_same_run(small, {}, "kto");
  EXPECT_EQ(stored_files().size(), 4u) << "of the examples and of mixed ones, here and held out";
  for (const char* change : {"train.seed=5", "train.global_batch_size=4", "train.train_iters=1"}) {
    const size_t before = stored_files().size();
    Settings other = small;
    for (const char* more : {"objective.precompute_ref_log_probs=true", change}) other.push_back(more);
    train(recipe(change, other, {}, "kto"));
    EXPECT_GT(stored_files().size(), before) << change;
  }
}

TEST_F(StoredReferencesSlow, HaveTheBitsOfACopyInMemoryOnEveryLayout) {
  for (const Settings& layout : std::vector<Settings>{{"parallel.tp=2"},
                                                      {"parallel.pp=2", "parallel.dp=2"},
                                                      {"parallel.cp=2", "train.precision=bf16"},
                                                      {"parallel.tp=2", "parallel.sequence_parallel=false"},
                                                      {"parallel.dp=2", "parallel.zero_stage=2", "run.backend=ref"},
                                                      {"adapter.kind=lora", "parallel.dp=2"},
                                                      {"adapter.kind=qlora", "adapter.quant_type=int8"},
                                                      {"adapter.kind=dora", "parallel.pp=2"},
                                                      {"objective.loss_type=ipo", "objective.average_logps=true"}})
    expect_same_run(layout);
  for (const Settings& layout : std::vector<Settings>{{}, {"parallel.cp=2"}, {"parallel.dp=2", "parallel.pp=2"}})
    expect_same_run(layout, {}, "grpo-sequence-kl");
  for (const Settings& layout : std::vector<Settings>{{"parallel.cp=2"}, {"parallel.dp=3", "parallel.pp=2"}})
    expect_same_run(layout, {}, "kto");
}

TEST_F(StoredReferencesSlow, AreTheSameInPhases) {
  expect_same_run({"train.train_iters=4"}, {{2, {{"optimizer.lr", "0.0005"}}}});
  expect_same_run(
      {"train.train_iters=4"},
      {{2, {{"train.seq_length", "64"}, {"train.global_batch_size", "2"}, {"train.micro_batch_size", "1"}}}});
}

TEST_F(StoredReferences, ThePlanHasNoReference) {
  const Machine machine = machine_for(recipe("any", {}));
  const WorkspaceModel& workspace = *machine.workspace_model;
  const RunPlan with = plan_run(recipe("any", {}), workspace),
                without = plan_run(recipe("any", {"objective.precompute_ref_log_probs=true"}), workspace);
  EXPECT_GT(with.memory.persistent.frozen, 0);
  EXPECT_EQ(without.memory.persistent.frozen, 0);
}

TEST_F(StoredReferences, AreMadeOnceForTheSameRowsAndWeights) {
  const Settings stored{"objective.precompute_ref_log_probs=true", "train.train_iters=1", "data.valid=[]"};
  train(recipe("first", stored));
  ASSERT_EQ(stored_files().size(), 1u);
  const fs::path file = stored_files()[0];
  const std::string bytes = testing::slurp(file);
  const auto written = fs::last_write_time(file);
  train(recipe("again", stored));
  EXPECT_EQ(fs::last_write_time(file), written);
  EXPECT_EQ(stored_files().size(), 1u);
  // What changes the numbers has a file of its own: other rows, other weights.
  std::ofstream(dir_ / "pairs.jsonl", std::ios::app) << R"({"prompt": [1, 2], "chosen": [3], "rejected": [4, 5]})"
                                                     << "\n";
  Settings weights = stored;
  weights.push_back("objective.reference=" + (dir_ / "again/checkpoints/step-1").string());
  train(recipe("rows", stored));
  train(recipe("weights", weights));
  EXPECT_EQ(stored_files().size(), 3u);
  EXPECT_TRUE(testing::slurp(file) == bytes);
}

TEST_F(StoredReferences, AFileThatIsDamagedOrOfSomethingElseIsNamed) {
  const Settings stored{"objective.precompute_ref_log_probs=true", "train.train_iters=1", "data.valid=[]"};
  train(recipe("first", stored));
  const fs::path file = stored_files()[0];
  const std::string good = testing::slurp(file);
  const auto refusal_of = [&](const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
    fs::remove_all(dir_ / "bad");
    return testing::error_of<FileError>([&] { train(recipe("bad", stored)); });
  };
  std::string bad = good;
  bad[size_t(ReferenceLogpsSpec::kHeaderBytes)] ^= 1;
  EXPECT_SAYS(refusal_of(bad), ".ref: is damaged: it has not the hash that stands at its end; remove it");
  EXPECT_SAYS(refusal_of(good.substr(0, good.size() - 4)), ".ref: ");
  EXPECT_SAYS(refusal_of(good.substr(0, good.size() - 4)), "it is not whole; remove it");
  EXPECT_SAYS(refusal_of("{}"), "it is another file, or was made for other ones");
  fs::remove(file);
  train(recipe("bad", stored));
  EXPECT_TRUE(testing::slurp(file) == good);
}

TEST_F(StoredReferences, WhatCannotBeIsRefusedByName) {
  const auto refusal_of = [&](const Settings& more) {
    return testing::error_of<ConfigError>([&] { recipe("bad", more); });
  };
  Recipe ramp = recipe("bad", {"objective.precompute_ref_log_probs=true"}, {}, "kto");
  ramp.train.rampup_batch_size = {1, 1, 2};
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { check_supported(ramp); }),
              "the reference point of kto has the reference read prompts with completions of their batch");
  const Settings past{"objective.precompute_ref_log_probs=true", "train.on_spike=rollback",
                      "checkpoint.save_interval=1"};
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { recipe("bad", past, {}, "kto"); }),
              "train.on_spike = \"rollback\" cannot run: the reference of the reference point of kto is stored");
  EXPECT_EQ(refusal_of(past), "") << "pairs are read by their numbers, whatever the batch";
  EXPECT_SAYS(refusal_of({"objective.precompute_ref_log_probs=true", "train.objective=reward", "objective.beta=0.1"}),
              "train.objective = \"reward\" has no such setting");
  EXPECT_SAYS(refusal_of({"objective.precompute_ref_log_probs=true", "moe.overflow=drop", "moe.capacity_factor=1"}),
              "moe.overflow = \"error\"");
  Recipe nowhere = recipe("bad", {"objective.precompute_ref_log_probs=true", "data.valid=[]"});
  nowhere.data.pairs = (dir_ / "nowhere/pairs.jsonl").string();  // where root cannot write either
  EXPECT_SAYS(testing::error_of<FileError>([&] { require_reference_folders(nowhere); }),
              "nowhere/pairs.jsonl into a folder of yours, or leave the key out");
}

}  // namespace
}  // namespace weft
