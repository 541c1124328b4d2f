// Training on packed documents.
#include <span>

#include "token_files.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/base/rng.h"
#include "weft/data/packing.h"

namespace weft {
namespace {

using Documents = std::vector<std::vector<int32_t>>;

struct PackedOutcome {
  Metrics metrics;
  std::string norms, weights;  // of the first step's gradients; of the last checkpoint
};

// The model of a golden case, on other data.
PackedOutcome train_on(
    const std::string& name, const std::string& data, std::vector<std::string> overrides,
    const std::function<Machine(Machine)>& changed = [](Machine same) { return same; }) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden" / name;
  testing::TempDir dir;
  overrides.insert(overrides.begin(), {"data.train=" + data, "data.loss_mask=", "run.threads=1", "run.backend=ref"});
  const Recipe recipe = testing::golden_recipe(folder, dir / "run", overrides);
  testing::train(recipe, changed(machine_for(recipe)));
  const auto last = dir / fmt::format("run/checkpoints/step-{}", recipe.train.train_iters);
  return {read_metrics(dir / "run/metrics.jsonl"), testing::slurp(dir / "run/grad_norms.jsonl"),
          testing::slurp(last / "model.safetensors")};
}

Documents some_documents(int64_t n, int64_t most) {
  Documents all;
  for (uint64_t i = 0; i < uint64_t(n); ++i) {
    const uint64_t key = rng_key(rng_key(1, "documents"), i);
    all.emplace_back(1 + random_bits(key, 0) % uint32_t(most));
    for (size_t j = 0; j < all.back().size(); ++j) all.back()[j] = int32_t(random_bits(key, j + 1) % 64);
  }
  return all;
}

// Each document in a sample of its own, as raw ids and a mask: what packing must not change.
std::string write_alone(const testing::TempDir& dir, const Documents& documents, int64_t seq_length) {
  std::vector<int32_t> ids;
  std::string mask;
  for (const auto& d : documents) {
    ids.insert(ids.end(), d.begin(), d.end());
    mask += std::string(d.size() - 1, 1);
    ids.resize(size_t(seq_length) * ((ids.size() + size_t(seq_length) - 1) / size_t(seq_length)), 0);
    mask.resize(ids.size(), 0);
  }
  ids.push_back(0), mask.push_back(0);
  testing::write_raw_tokens(dir / "alone.bin", ids, "uint16");
  testing::spill(dir / "alone.mask.bin", mask);
  return (dir / "alone.bin").string();
}

void expect_as_alone(const std::vector<std::string>& models) {
  for (const std::string& name : models) {
    testing::TempDir dir;
    constexpr int64_t kSeq = 32;
    const Documents documents = some_documents(12, 20);
    testing::write_megatron_tokens(dir / "packed", documents, "uint16");
    const auto source = open_megatron_tokens(dir / "packed", 0);
    const int64_t samples = Packing(*source, {.kind = PackingKind::first_fit, .seq_length = kSeq}).num_samples();
    ASSERT_LT(samples, int64_t(documents.size()));
    const std::string alone = write_alone(dir, documents, kSeq);
    const std::vector<std::string> base{fmt::format("train.seq_length={}", kSeq), "train.train_iters=1",
                                        "optimizer.lr_warmup_iters=0", "train.micro_batch_size=1"};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), base.begin(), base.end());
      return more;
    };
    const PackedOutcome one = train_on(name, alone,
                                       with({fmt::format("train.global_batch_size={}", documents.size()),
                                             "data.loss_mask=" + (dir / "alone.mask.bin").string()}));
    const PackedOutcome packed = train_on(name, (dir / "packed").string(),
                                          with({fmt::format("train.global_batch_size={}", samples),
                                                "data.packing=first-fit", "data.attn_mask_type=block_causal"}));
    ASSERT_EQ(packed.metrics.steps.size(), 1u);
    EXPECT_NEAR(packed.metrics.steps[0].loss, one.metrics.steps[0].loss, 1e-12) << name;
    const auto norms = nlohmann::json::parse(packed.norms)["grad_norm"];
    const auto alone_norms = nlohmann::json::parse(one.norms)["grad_norm"];
    for (const auto& [tensor, norm] : alone_norms.items())
      EXPECT_NEAR(norms[tensor].get<double>(), norm.get<double>(), 1e-10 * (1 + norm.get<double>())) << name << tensor;
  }
}

// Learned positions.
TEST(PackedTraining, EqualsTrainingOnEachDocumentByItself) { expect_as_alone({"gpt2"}); }
// Rotary positions, and a sliding window.
TEST(PackedTrainingSlow, EqualsTrainingOnEachDocumentByItself) { expect_as_alone({"llama-gqa", "mistral-window"}); }

// Samples of 32 tokens with documents of up to 20.
void expect_as_on_one_rank(const std::string& model, const std::vector<std::vector<std::string>>& layouts) {
  const testing::TempDir dir;
  testing::write_megatron_tokens(dir / "packed", some_documents(12, 20), "uint16");
  const auto on = [&](const std::vector<std::string>& layout) {
    std::vector<std::string> all{"train.seq_length=32",
                                 "train.train_iters=1",
                                 "optimizer.lr_warmup_iters=0",
                                 "train.micro_batch_size=2",
                                 "train.global_batch_size=4",
                                 "data.packing=first-fit",
                                 "data.attn_mask_type=block_causal"};
    all.insert(all.end(), layout.begin(), layout.end());
    return train_on(model, (dir / "packed").string(), all);
  };
  const PackedOutcome one = on({});
  const auto expected = nlohmann::json::parse(one.norms)["grad_norm"];
  for (const std::vector<std::string>& layout : layouts) {
    const PackedOutcome many = on(layout);
    const std::string which = fmt::format("{} {}", model, fmt::join(layout, " "));
    EXPECT_NEAR(many.metrics.steps[0].loss, one.metrics.steps[0].loss, 1e-12) << which;
    const auto norms = nlohmann::json::parse(many.norms)["grad_norm"];
    for (const auto& [tensor, norm] : expected.items())
      EXPECT_NEAR(norms[tensor].get<double>(), norm.get<double>(), 1e-10 * (1 + norm.get<double>()))
          << which << " " << tensor;
  }
}

// Documents that begin and end within the runs of ranks, and reach over several; a window that does.
TEST(PackedTrainingSlow, EqualsOneRankWhereRanksShareSequences) {
  std::vector<std::vector<std::string>> layouts;
  for (const char* how : {"p2p", "all_gather", "a2a"})
    for (const char* cp : {"2", "4"})
      layouts.push_back({std::string("parallel.cp=") + cp, std::string("parallel.cp_comm_type=") + how});
  layouts.push_back({"parallel.cp=4", "parallel.cp_comm_type=a2a+p2p", "parallel.cp_a2a_size=2"});
  expect_as_on_one_rank("mistral-window", layouts);
}

// The other axes beside that: heads of a tensor-parallel rank, micro-batches that are alive at once on other stages,
// rows of experts of several ranks.
TEST(PackedTrainingSlow, EqualsOneRankWhereRanksShareSequencesOnOtherAxesToo) {
  expect_as_on_one_rank("mistral-window",
                        {{"parallel.cp=2", "parallel.tp=2"},
                         {"parallel.cp=2", "parallel.pp=2", "train.micro_batch_size=1"},
                         {"parallel.cp=2", "parallel.tp=2", "parallel.pp=2", "parallel.cp_comm_type=all_gather"}});
  expect_as_on_one_rank("mixtral",
                        {{"parallel.cp=2", "parallel.ep=2"}, {"parallel.cp=2", "parallel.dp=2", "parallel.ep=4"}});
}

// Whole sequences take memory beside their operands, other documents none: as attention by a library does, which has
// the one and not the other.
class SequencesNeedMemory final : public WorkspaceModel {
 public:
  using WorkspaceModel::bytes;
  int64_t bytes(const Attention& op) const override { return bytes_of(op.spans); }
  int64_t bytes(const AttentionBackward& op) const override { return 2 * bytes_of(op.spans); }

 private:
  static int64_t bytes_of(std::span<const AttentionSpan> spans) { return spans.size() == 1 ? 4096 : 0; }
};
class TakingMemory final : public Backend {
 public:
  TakingMemory(std::unique_ptr<Backend> inner, Arena& workspace) : inner_(std::move(inner)), workspace_(workspace) {}
  void wait_all() override { inner_->wait_all(); }
  void run(const AnyOp& op) override {
    const Scope scope(workspace_);
    if (const int64_t bytes = op.workspace_bytes(SequencesNeedMemory()); bytes > 0)
      workspace_.alloc(DType::u8, {bytes});
    inner_->run(op);
  }

 private:
  std::unique_ptr<Backend> inner_;
  Arena& workspace_;
};

// What was planned for whole sequences is not all used, which is no fault of such a device.
TEST(PackedTraining, DocumentsMayTakeLessOfADevicesMemoryThanWholeSequences) {
  testing::TempDir dir;
  testing::write_megatron_tokens(dir / "packed", some_documents(60, 9), "uint16");
  const auto train = [&](bool late) {
    return train_on(
        "gpt2", (dir / "packed").string(),
        {"train.seq_length=32", "train.train_iters=1", "optimizer.lr_warmup_iters=0", "train.micro_batch_size=1",
         "train.global_batch_size=2", "data.packing=first-fit", "data.attn_mask_type=block_causal"},
        [&](Machine machine) {
          machine.workspace_model = std::make_shared<SequencesNeedMemory>();
          machine.make_backend = [make = machine.make_backend](Arena& workspace) {
            return std::make_unique<TakingMemory>(make(workspace), workspace);
          };
          machine.late = late;
          return machine;
        });
  };
  EXPECT_EQ(train(true).metrics.steps.size(), 1u);
  EXPECT_NE(testing::error_of([&] { train(false); }).find("workspace: 0 bytes used"), std::string::npos);  // of cores
}

const std::vector<std::vector<std::string>> kPackings = {
    {"data.packing=first-fit", "data.attn_mask_type=block_causal"},
    {"data.packing=first-fit"},
    {"data.packing=concatenate-and-split", "data.attn_mask_type=block_causal"}};

std::vector<std::string> steps_of(const std::vector<std::string>& packing, std::vector<std::string> more) {
  std::vector<std::string> all{"train.seq_length=16",         "train.train_iters=3",      "train.global_batch_size=4",
                               "optimizer.lr_warmup_iters=1", "train.micro_batch_size=1", "data.shuffle=true"};
  all.insert(all.end(), packing.begin(), packing.end());
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Documents of a micro-batch that is still under way while others are loaded.
TEST(PackedTraining, SchedulesKeepTheDocumentsOfTheirMicroBatchesApart) {
  testing::TempDir dir;
  testing::write_megatron_tokens(dir / "packed", some_documents(60, 40), "uint16");
  const std::string data = (dir / "packed").string();
  const auto losses = [&](const std::string& setting) {
    std::vector<double> all;
    for (const StepRecord& step : train_on("llama-gqa", data, steps_of(kPackings[0], {setting})).metrics.steps)
      all.push_back(step.loss);
    return all;
  };
  const std::vector<double> one = losses("parallel.pipeline_schedule=1f1b");
  for (const char* other : {"parallel.pipeline_schedule=gpipe", "parallel.pp=2"}) {
    const std::vector<double> many = losses(other);
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(many[i], one[i], 1e-11) << other << " step " << i + 1;
  }
}

TEST(PackedTrainingSlow, AnyLayoutEqualsOneRank) {
  testing::TempDir dir;
  testing::write_megatron_tokens(dir / "packed", some_documents(60, 40), "uint16");
  const std::string data = (dir / "packed").string();
  for (const auto& packing : kPackings) {
    const PackedOutcome one = train_on("llama-gqa", data, steps_of(packing, {}));
    for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
             {"parallel.dp=4", "parallel.zero_stage=3"},
             {"parallel.tp=2"},
             {"parallel.tp=2", "parallel.sequence_parallel=false", "parallel.dp=2"},
             {"parallel.pp=2", "parallel.pipeline_schedule=zb_h1"},
             {"parallel.recompute=full"},
             {"parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "parallel.recompute=selective"}}) {
      const PackedOutcome many = train_on("llama-gqa", data, steps_of(packing, layout));
      ASSERT_EQ(many.metrics.steps.size(), one.metrics.steps.size());
      for (size_t i = 0; i < one.metrics.steps.size(); ++i)
        EXPECT_NEAR(many.metrics.steps[i].loss, one.metrics.steps[i].loss, 1e-11) << layout[0] << " " << packing[0];
    }
  }
}

// The fast kernels beside those in fp64, with dropout: the random numbers of two documents of a sample are others.
TEST(PackedTrainingSlow, TheCpuKernelsFollowTheReference) {
  testing::TempDir dir;
  testing::write_megatron_tokens(dir / "packed", some_documents(60, 40), "uint16");
  const std::string data = (dir / "packed").string();
  for (const auto& packing : kPackings) {
    const std::vector<std::string> one_step{"model.attention_dropout=0.2", "train.train_iters=1",
                                            "optimizer.lr_warmup_iters=0"};
    const PackedOutcome ref = train_on("llama-gqa", data, steps_of(packing, one_step));
    std::vector<std::string> on_cpu = one_step;
    on_cpu.insert(on_cpu.end(), {"run.backend=cpu", "run.threads=2"});
    const PackedOutcome cpu = train_on("llama-gqa", data, steps_of(packing, on_cpu));
    EXPECT_NEAR(cpu.metrics.steps[0].loss, ref.metrics.steps[0].loss, 1e-6 * ref.metrics.steps[0].loss);
    EXPECT_NEAR(cpu.metrics.steps[0].grad_norm, ref.metrics.steps[0].grad_norm, 2e-5 * ref.metrics.steps[0].grad_norm);
  }
}

TEST(PackedTrainingSlow, InvariantNumericsGiveTheSameBitsOnAnyLayout) {
  testing::TempDir dir;
  testing::write_megatron_tokens(dir / "packed", some_documents(60, 40), "uint16");
  const std::string data = (dir / "packed").string();
  for (const auto& packing : kPackings) {
    const auto run = [&](std::vector<std::string> layout) {
      layout.insert(layout.end(), {"run.backend=cpu", "train.numerics=invariant"});
      return train_on("llama-gqa", data, steps_of(packing, layout)).weights;
    };
    const std::string one = run({});
    EXPECT_EQ(run({"parallel.dp=4", "parallel.zero_stage=2"}), one);
    EXPECT_EQ(run({"parallel.pp=2", "parallel.dp=2", "run.threads=2"}), one);
  }
}

// Stopped after two of its four steps, and gone on with on another layout, a run is the one that was never stopped.
TEST(PackedTrainingSlow, AResumedRunSeesTheSameData) {
  testing::TempDir dir;
  testing::write_megatron_tokens(dir / "packed", some_documents(60, 40), "uint16");
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  for (const auto& packing : kPackings) {
    testing::TempDir runs;
    const auto train = [&](const std::string& run, const std::string& layout) {
      const Recipe recipe = testing::golden_recipe(
          folder, runs / run,
          steps_of(packing, {"data.train=" + (dir / "packed").string(), "train.train_iters=4", "run.threads=1",
                             "checkpoint.save_interval=2", "checkpoint.keep_latest=0", "train.numerics=invariant",
                             "model.hidden_dropout=0.1", layout}));
      testing::train(recipe, machine_for(recipe));
      return testing::slurp(runs / (run + "/checkpoints/step-4/model.safetensors"));
    };
    const std::string whole = train("whole", "parallel.dp=1");
    train("resumed", "parallel.dp=2");
    std::filesystem::remove_all(runs / "resumed/checkpoints/step-4");
    EXPECT_EQ(train("resumed", "parallel.pp=2"), whole) << packing[0];
  }
}

}  // namespace
}  // namespace weft
