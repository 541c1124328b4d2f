// That communication is under way while ranks compute: the clock counts the ops that a rank has run.
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/apps/bench_run.h"
#include "weft/comm/timed.h"

namespace weft {
namespace {

class Counted final : public Backend {
 public:
  Counted(Backend& inner, double& ops) : inner_(inner), ops_(ops) {}
  void run(const AnyOp& op) override {
    inner_.run(op);
    ++ops_;
  }

 private:
  Backend& inner_;
  double& ops_;
};

struct Seen {
  std::vector<CommEvent> events;  // of rank 0, in the order of their ends
  double ops = 0;                 // of all of the rank's work
  double polls = 0;
  // Events of this kind at whose wait at least so many ops had run since the call.
  int64_t hidden_behind(const std::string& axis, const std::string& op, double ops_between) const {
    return std::count_if(events.begin(), events.end(), [&](const CommEvent& e) {
      return e.axis == axis && e.op == op && e.waited_s - e.began_s >= ops_between;
    });
  }
  int64_t count(const std::string& axis, const std::string& op) const {
    return std::count_if(events.begin(), events.end(),
                         [&](const CommEvent& e) { return e.axis == axis && e.op == op; });
  }
};

class CountedPolls final : public CommProgress {
 public:
  explicit CountedPolls(std::shared_ptr<CommProgress> inner) : inner_(std::move(inner)) {}
  void poll() override {
    ++count;
    inner_->poll();
  }
  double count = 0;

 private:
  std::shared_ptr<CommProgress> inner_;
};

Seen step_of_recipe(Recipe recipe) {
  const Machine machine = machine_for(recipe);
  const SyntheticTokens tokens(recipe, plan_run(recipe, *machine.workspace_model).model.vocab_size);
  Seen seen;
  run_on_threads(mesh_sizes_of(recipe), *machine.mover, [&](const ProcessMesh& mesh) {
    const int rank = mesh.world->rank();
    CommTimes times;
    std::vector<CommEvent> events;
    double ops = 0;
    ProcessMesh seen_mesh = timed(mesh, times, {.now_s = [&] { return ops; }, .events = &events});
    const auto polls = std::make_shared<CountedPolls>(mesh.progress);
    seen_mesh.progress = polls;
    BenchRun run(recipe, machine.of_rank(rank), plan_run(recipe, *machine.workspace_model, rank), seen_mesh);
    Counted counted(run.rank.backend, ops);
    run.step(counted);
    run.rank.check_used();
    if (rank == 0) seen = {events, ops, polls->count};
  });
  return seen;
}

Seen step_of(std::vector<std::string> overrides, const std::string& model = "llama-gqa") {
  testing::TempDir dir;
  for (const char* more : {"run.backend=ref", "run.threads=1", "train.micro_batch_size=1"}) overrides.push_back(more);
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden" / model;
  return step_of_recipe(testing::golden_recipe(folder, dir / "run", overrides));
}

constexpr double kOpsOfABlock = 10;  // fewer than its backward pass has

TEST(Overlap, DataParallelReducesABlockWhileOthersRunBackward) {
  const Seen s = step_of({"parallel.dp=2"});
  const int64_t units = s.count("replicas", "all-reduce");
  EXPECT_GE(units, 4);  // embedding, blocks, head
  EXPECT_GE(s.hidden_behind("replicas", "all-reduce", kOpsOfABlock), units - 2) << "all but the last ones";
  EXPECT_GE(s.polls, s.ops) << "between any two";
}

TEST(Overlap, ShardedGradientsAreReducedWhileOthersRunBackward) {
  for (const char* stage : {"1", "2", "3"}) {
    const Seen s = step_of({"parallel.dp=2", std::string("parallel.zero_stage=") + stage});
    const int64_t reductions = s.count("shards", "reduce-scatter");
    EXPECT_GE(reductions, 4) << stage;
    EXPECT_GE(s.hidden_behind("shards", "reduce-scatter", kOpsOfABlock), reductions / 2) << stage;
  }
}

TEST(Overlap, WeightsOfTheNextBlockAreFetchedWhileOneComputes) {
  for (const char* model : {"llama-gqa", "llama3-rope-tied", "gpt2"}) {
    const Seen s = step_of({"parallel.dp=2", "parallel.zero_stage=3"}, model);
    const int64_t fetches = s.count("shards", "all-gather");
    EXPECT_GE(fetches, 6) << model;
    EXPECT_GE(s.hidden_behind("shards", "all-gather", kOpsOfABlock), fetches / 2) << model;
  }
}

// The embedding and the head are larger than any block, as in most models.
TEST(Overlap, BlocksAreFetchedEarlyBesideALargeVocabulary) {
  testing::TempDir dir;
  testing::spill(dir / "config.json", R"({"model_type": "llama", "vocab_size": 4096, "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})");
  const Recipe recipe = parse_recipe("", "overlap",
                                     {"model.path=" + dir.path().string(), "model.init=random", "data.train=synthetic",
                                      "train.seq_length=8", "train.micro_batch_size=1", "train.global_batch_size=2",
                                      "parallel.dp=2", "parallel.zero_stage=3", "run.backend=ref", "run.threads=1"});
  const Seen s = step_of_recipe(recipe);
  const int64_t fetches = s.count("shards", "all-gather"), micro_batches = 1, layers = 4;
  EXPECT_EQ(fetches, micro_batches * (1 + layers + 1 + layers));  // forward; the head; backward
  // All but the embedding, which comes first, and the blocks beside it and the head, which have few ops.
  EXPECT_GE(s.hidden_behind("shards", "all-gather", kOpsOfABlock), fetches - 3);
}

// Also the last gradients of keys, on their way home.
TEST(Overlap, KeysAndTheirGradientsTravelWhileAttentionComputes) {
  for (const char* cp : {"2", "4"}) {
    const Seen s = step_of({std::string("parallel.cp=") + cp});
    const int64_t messages = s.count("cp", "receive");
    EXPECT_GT(messages, 0) << cp;
    EXPECT_EQ(s.hidden_behind("cp", "receive", 2), messages) << cp;
  }
}

// Rows go to their experts and come back six times in a micro-batch, their weights and the gradients of these once
// each. Two of the eight can be hidden: the rows of forward, and their gradients.
TEST(Overlap, RowsTravelToTheirExpertsWhileSharedOnesCompute) {
  for (const char* model : {"qwen2-moe", "deepseek-v2-groups", "mixtral"}) {  // shared with a gate, without one; none
    const Seen s =
        step_of({"parallel.dp=2", "parallel.ep=2", "train.seq_length=16", "train.global_batch_size=2"}, model);
    const int64_t messages = s.count("ep", "receive");
    EXPECT_GT(messages, 0) << model;
    const double shared_ops = 3;  // two products and what is between them
    EXPECT_EQ(8 * s.hidden_behind("ep", "receive", shared_ops), model == std::string("mixtral") ? 0 : 2 * messages)
        << model;
  }
}

TEST(Overlap, WhatABlockCannotGoOnWithoutIsWaitedForAtOnce) {
  const Seen s = step_of({"parallel.tp=2"});
  EXPECT_GT(s.count("tp", "all-gather"), 0);
  EXPECT_EQ(s.hidden_behind("tp", "all-gather", 1), 0);
}

}  // namespace
}  // namespace weft
