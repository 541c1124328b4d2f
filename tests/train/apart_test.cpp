// Runs on a device whose memory the host does not reach: the same bits as on one where it does.
#include "train/forward_only.h"
#include "train/golden.h"
#include "train/late_backend.h"
#include "weft/apps/backends.h"
#include "weft/base/rng.h"
#include "weft/comm/local_group.h"
#include "weft/comm/through_host.h"
#include "weft/verify/run_record.h"
#include "weft/verify/trial_data.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using Settings = std::vector<std::string>;

class Apart : public ::testing::Test {
 protected:
  static Machine here() {
    Recipe recipe;
    recipe.run.backend = BackendKind::cpu;
    recipe.run.threads = 1;
    return machine_for(recipe);
  }
  static Recipe recipe_of(const std::string& name, const fs::path& run, Settings settings) {
    const fs::path golden = fs::path(testing::kSourceDir) / "tests/golden" / name;
    for (const char* more :
         {"train.train_iters=4", "optimizer.lr_warmup_iters=2", "train.micro_batch_size=2",
          "checkpoint.save_interval=2", "checkpoint.keep_latest=0", "train.eval_interval=2", "train.eval_iters=2"})
      settings.emplace_back(more);
    settings.push_back("data.valid=" + (golden / "tokens.bin").string());
    return testing::golden_recipe(golden, run, settings);
  }
  static void expect_same(const fs::path& run, const fs::path& other) {
    for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"}) {
      const std::string bytes = testing::slurp(run / "checkpoints/step-4" / file);
      ASSERT_FALSE(bytes.empty());
      EXPECT_TRUE(testing::slurp(other / "checkpoints/step-4" / file) == bytes) << file << " differs";
    }
    const Metrics a = read_metrics(run / "metrics.jsonl"), b = read_metrics(other / "metrics.jsonl");
    ASSERT_EQ(a.evals.size(), 2u);
    ASSERT_EQ(b.evals.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(a.evals[i].loss, b.evals[i].loss);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(a.steps.at(i).grad_norm, b.steps.at(i).grad_norm);
  }
  testing::TempDir dir_;
};
using ApartSlow = Apart;

TEST_F(ApartSlow, TrainsSavesEvaluatesAndResumes) {
  for (const auto& [name, settings] : std::vector<std::pair<std::string, Settings>>{
           {"llama-gqa", {"optimizer.name=muon", "train.precision=bf16"}},
           {"gpt2", {"parallel.recompute=full"}},
           {"qwen3-qknorm", {"optimizer.name=adamw8bit", "optimizer.min_8bit_size=600"}}}) {
    SCOPED_TRACE(name);
    const fs::path run = dir_ / (name + "-here"), other = dir_ / (name + "-apart");
    const int64_t replays = testing::LateBackend::num_replays;
    testing::train(recipe_of(name, run, settings), here());
    testing::train(recipe_of(name, other, settings), testing::apart(here()));
    expect_same(run, other);
    EXPECT_GT(testing::LateBackend::num_replays, replays);
    fs::remove_all(other / "checkpoints/step-4");
    testing::train(recipe_of(name, other, settings), testing::apart(here()));
    expect_same(run, other);
  }
}

// As processes do, which MPI knows the host's memory of.
TEST_F(ApartSlow, RanksMoveTensorsByWayOfTheHost) {
  const auto by_the_host = [](const MeshSizes& sizes, const Mover& mover,
                              const std::function<void(const ProcessMesh&)>& body) {
    run_local(sizes, [&](const ProcessMesh& mesh) { body(through_host(mesh, mover)); });
  };
  for (const Settings& layout : std::vector<Settings>{{"parallel.dp=2", "parallel.zero_stage=3"},
                                                      {"parallel.tp=2", "parallel.pp=2", "optimizer.name=muon"}}) {
    const std::string name = layout.back() + std::to_string(layout.size());
    const fs::path run = dir_ / (name + "-here"), other = dir_ / (name + "-apart");
    testing::train(recipe_of("llama-gqa", run, layout), here());
    testing::train(recipe_of("llama-gqa", other, layout), testing::apart(here()), by_the_host);
    expect_same(run, other);
  }
}

TEST_F(Apart, MeasuresAndContinuesText) {
  const fs::path run = dir_ / "run";
  testing::train(recipe_of("llama-gqa", run, {}), here());
  const fs::path model = model_folder_of(run, [](const std::string&) {});
  const fs::path tokens = fs::path(testing::kSourceDir) / "tests/golden/llama-gqa/tokens.bin";
  const testing::ForwardResults there = testing::forward_results(model, tokens, testing::apart(here()));
  const testing::ForwardResults expected = testing::forward_results(model, tokens, here());
  EXPECT_EQ(there.loss, expected.loss);
  EXPECT_EQ(there.logits, expected.logits);
}

TEST_F(ApartSlow, TrialsLookAtWeightsGradientsAndOperands) {
  const Recipe recipe = recipe_of("llama-gqa", dir_ / "run", {});
  const auto data = random_tokens(recipe, read_hf_config(recipe.model.path), 1);
  const Trial trial{recipe, read_hf_config(recipe.model.path), *data, 1};
  OpLog here_ops, apart_ops;
  const RunRecord record = record_run(trial, here(), {.ops = &here_ops});
  const Distances distances = compare_run(trial, testing::apart(here()), {.ops = &apart_ops}, record);
  EXPECT_FALSE(first_difference(distances, record, [](int64_t, Quantity, const std::string&) { return 0.0; }));
  EXPECT_GT(apart_ops.num_comparable(here_ops), 0);
  EXPECT_FALSE(apart_ops.first_difference(here_ops, 0));
}

}  // namespace
}  // namespace weft
