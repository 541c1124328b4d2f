// What ZeRO divides among data parallel ranks, in bytes: as planned, and as a training step has used it.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "support.h"
#include "weft/apps/backends.h"
#include "weft/models/init.h"
#include "weft/train/batch_loader.h"
#include "weft/train/train_on_ranks.h"
#include "weft/verify/trial_data.h"

namespace weft {
namespace {

constexpr int64_t kRanks = 8, kLayers = 64;

using Sizes = PersistentArenas::Sizes;

// 0.7 million parameters in units that are small beside the whole, as those of large models are.
class ZeroMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::spill(dir_ / "config.json", fmt::format(R"({{"model_type": "llama", "vocab_size": 128, "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": {}, "num_attention_heads": 4, "num_key_value_heads": 4,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false}})",
                                                     kLayers));
  }
  Recipe recipe_of(const char* precision, int64_t zero_stage) const {
    return parse_recipe(
        "", "zero",
        {"model.path=" + dir_.path().string(), "model.init=random", "data.train=none", "train.seq_length=4",
         "train.micro_batch_size=1", fmt::format("train.global_batch_size={}", kRanks),
         fmt::format("parallel.dp={}", kRanks), fmt::format("parallel.zero_stage={}", zero_stage),
         std::string("train.precision=") + precision, "run.threads=1"});
  }
  static Recipe in_codes(Recipe recipe) {
    recipe.optimizer.name = OptimizerKind::adamw8bit;
    recipe.optimizer.min_8bit_size = 1024;
    return recipe;
  }
  static Sizes planned(const Recipe& recipe) {
    return plan_run(recipe, *machine_for(recipe).workspace_model).memory.persistent;
  }

  testing::TempDir dir_;
};
using ZeroMemorySlow = ZeroMemory;

// Elements of each unit's flat tensors, padding included.
std::vector<int64_t> unit_sizes(const ParamStore& params) {
  std::vector<int64_t> sizes;
  for (int u = 0; u < params.num_units(); ++u) {
    sizes.push_back(0);
    for (const ParamStore::UpdateRange& s : params.update_ranges(u)) sizes.back() += s.master.elements();
  }
  return sizes;
}

struct Used {
  Sizes most = {};                  // of any rank
  std::vector<int64_t> unit_sizes;  // where every rank has all of them
  int64_t num_params = 0, num_weights = 0;
};

// By the arenas, after a training step of every rank.
Used used(const Recipe& recipe) {
  Used all;
  std::mutex mutex;
  const Machine machine = machine_for(recipe);
  run_on_threads(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
    RankRun rank(plan_run(recipe, *machine.workspace_model, mesh.world->rank()), machine, mesh);
    const auto data = random_tokens(recipe, rank.plan.config, 1);
    BatchLoader batches(*data, {.seq_length = recipe.train.seq_length,
                                .micro_batch_size = recipe.train.micro_batch_size,
                                .order = rank.plan.step.order});
    init_weights(rank.state.params, 1, 1);
    rank.state.params.masters_changed(rank.backend);
    const LoadMicroBatch load = [&](MicroBatch& b) { batches.load(0, b); };
    rank.executor.run({.load = load, .loss_scale = 1, .dropout_key = 1});
    rank.state.norm->wait_measure(rank.backend);
    update_all(rank.backend, *rank.plan.optimizer, rank.state.params, rank.executor.scratch(),
               {.lr = 1e-3, .grad_scale = 1, .step = 1});
    rank.backend.wait_all();
    rank.check_used();
    const Sizes mine = rank.arenas.peak();
    const std::lock_guard lock(mutex);
    all.most.params = std::max(all.most.params, mine.params);
    all.most.grads = std::max(all.most.grads, mine.grads);
    all.most.states = std::max(all.most.states, mine.states);
    all.most.transit = std::max(all.most.transit, mine.transit);
    all.unit_sizes = unit_sizes(rank.state.params);
    all.num_params = rank.state.params.num_elements();
    all.num_weights = int64_t(rank.state.params.params().size());
  });
  return all;
}

int64_t of_weights(const Sizes& s) { return s.params + s.grads + s.states + s.transit; }

void expect_same(const Sizes& plan, const Sizes& run) {
  EXPECT_EQ(plan.params, run.params);
  EXPECT_EQ(plan.grads, run.grads);
  EXPECT_EQ(plan.states, run.states);
  EXPECT_EQ(plan.transit, run.transit);
}

// Bytes of an element: what layers compute with, its master where that is another tensor, its gradient, its state.
struct Elements {
  const char* precision;
  int64_t value, master;
};
constexpr int64_t kGrad = 4, kAdam = 8;
constexpr int64_t kUnitsInUse = 2;  // and on their way: where no weight is tied
constexpr Elements kElements[] = {{"f32", 4, 0}, {"bf16", 2, 4}};

// Rajbhandari et al. 2020, section 5: with values (2 bytes), masters, gradients and moments of N ranks. Above it stand
// the padding, and at stages 2 and 3 the units in use, which are whole.
TEST_F(ZeroMemorySlow, EachStageKeepsWhatTheoryLeavesItAndTheUnitsInUse) {
  for (const auto& [precision, value, master] : kElements) {
    SCOPED_TRACE(precision);
    const Used dp = used(recipe_of(precision, 0));
    int64_t all = 0;
    for (const int64_t size : dp.unit_sizes) all += size;
    const int64_t largest = *std::max_element(dp.unit_sizes.begin(), dp.unit_sizes.end());
    // A weight begins at a multiple of kSumLeaf, a unit ends at one that the ranks divide.
    EXPECT_GE(all, dp.num_params);
    EXPECT_LT(all, dp.num_params + kSumLeaf * dp.num_weights + kSumLeaf * kRanks * int64_t(dp.unit_sizes.size()));
    expect_same({.params = (value + master) * all, .grads = kGrad * all, .states = kAdam * all}, dp.most);
    // Where masters are the values (f32), stages 1 and 2 keep them whole: layers compute with them.
    const Sizes one = used(recipe_of(precision, 1)).most;
    expect_same({.params = value * all + master * all / kRanks, .grads = kGrad * all, .states = kAdam * all / kRanks},
                one);
    // In f32 the shard of a master is that of the value.
    const int64_t shards = (master > 0 ? value + master : value) * all / kRanks;
    const Sizes two = used(recipe_of(precision, 2)).most, three = used(recipe_of(precision, 3)).most;
    expect_same({.params = one.params,
                 .grads = kGrad * all / kRanks,
                 .states = one.states,
                 .transit = kUnitsInUse * kGrad * largest},
                two);
    expect_same({.params = shards,
                 .grads = two.grads,
                 .states = one.states,
                 .transit = kUnitsInUse * (kGrad + value) * largest},
                three);
  }
}

// 1/8 of it, and the units in use and on their way.
TEST_F(ZeroMemory, Stage3OnEightRanksKeepsAtMostASeventhOfWhatDataParallelRanksKeep) {
  for (const Elements& e : kElements) {
    const Sizes all = planned(recipe_of(e.precision, 0)), shard = planned(recipe_of(e.precision, 3));
    EXPECT_LE(7 * of_weights(shard), of_weights(all)) << e.precision;
    std::cout << fmt::format("{}: {} bytes, at stage 3 {}: 1/{:.2f}\n", e.precision, of_weights(all), of_weights(shard),
                             double(of_weights(all)) / double(of_weights(shard)));
  }
}

// A block has 0.66 million elements, in bf16 or in 4.13 bits.
TEST_F(ZeroMemory, Stage3CutsAndGathersFrozenMatricesAsTheirCodes) {
  testing::spill(dir_ / "config.json", R"({"model_type": "llama", "vocab_size": 128, "hidden_size": 256,
      "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})");
  const auto plan = [&](AdapterKind kind) {
    Recipe recipe = recipe_of("bf16", 3);
    recipe.adapter.kind = kind;
    recipe.adapter.rank = 1;
    return plan_run(recipe, *machine_for(recipe).workspace_model).memory;
  };
  const auto gathered = [](const MemoryPlan& plan) {
    int64_t bytes = 0;
    for (const auto& [what, count] : plan.traffic.counts())
      if (what.second == Traffic::Kind::all_gather) bytes += count.bytes;
    return double(bytes);
  };
  const MemoryPlan whole = plan(AdapterKind::lora), codes = plan(AdapterKind::qlora);
  EXPECT_LT(gathered(codes), 0.35 * gathered(whole));
  EXPECT_LT(codes.persistent.params, whole.persistent.params / 2);
  EXPECT_LT(codes.persistent.transit, whole.persistent.transit / 2);
}

TEST_F(ZeroMemorySlow, WhatIsPlannedIsUsed) {
  for (const Elements& e : kElements)
    for (const int64_t stage : {0, 3})
      expect_same(planned(recipe_of(e.precision, stage)), used(recipe_of(e.precision, stage)).most);
}

// A block has four matrices of 1024 elements and three of 2048, the model two tables of 4096. They take two bytes an
// element, and for each of both moments a number for 256 elements, whose tensor takes at least an arena's 64 bytes.
// Norms, and what fills a unit up to equal shards, are in full.
TEST_F(ZeroMemory, MomentsIn8BitsTakeTwoBytesAnElementAndEightABlock) {
  const Recipe recipe = in_codes(recipe_of("bf16", 0));
  const int64_t of_block = 2 * (4 * 1024 + 3 * 2048) + 7 * 2 * 64, of_table = 2 * 4096 + 2 * 4096 / kCodeBlock * 4;
  const int64_t norms = kAdam * kSumLeaf * kRanks * (kLayers + 1);
  EXPECT_EQ(planned(recipe).states, kLayers * of_block + 2 * of_table + norms);
  EXPECT_EQ(planned(recipe_of("bf16", 0)).states, kLayers * kAdam * 10240 + 2 * kAdam * 4096 + norms);
}
TEST_F(ZeroMemorySlow, MomentsIn8BitsUseWhatIsPlanned) {
  for (const int64_t stage : {0, 1, 3}) {
    const Recipe recipe = in_codes(recipe_of("f32", stage));
    int64_t most = 0;  // norms lie in the last shards
    for (int rank = 0; rank < kRanks; ++rank)
      most = std::max(most, plan_run(recipe, *machine_for(recipe).workspace_model, rank).memory.persistent.states);
    EXPECT_EQ(used(recipe).most.states, most);
  }
}

}  // namespace
}  // namespace weft
