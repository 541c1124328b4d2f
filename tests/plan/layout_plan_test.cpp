// Plans of whole layouts, and the traffic that the dry run counts.
#include "weft/plan/layout_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>

#include "support.h"
#include "weft/apps/backends.h"
#include "weft/comm/local_group.h"
#include "weft/models/init.h"
#include "weft/ops/ref/ref_backend.h"
#include "weft/step/distill.h"
#include "weft/step/executor.h"

namespace weft {
namespace {

constexpr int64_t kSeq = 8;

Recipe recipe_of(const std::filesystem::path& model, std::vector<std::string> overrides) {
  std::vector<std::string> all{"model.path=" + model.string(),           "model.init=random",        "data.train=none",
                               fmt::format("train.seq_length={}", kSeq), "train.micro_batch_size=1", "run.backend=ref"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_recipe("", "plan", all);
}
std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(testing::kSourceDir) / "tests/golden" / name;
}
LayoutPlan plan_of(const std::filesystem::path& model, std::vector<std::string> overrides) {
  return plan_layout(recipe_of(model, std::move(overrides)), WorkspaceModel());
}

// Counts each call in `traffic`, and makes it.
class Counting final : public Communicator {
 public:
  Counting(std::shared_ptr<Communicator> real, std::string axis, Traffic& traffic)
      : real_(std::move(real)), axis_(std::move(axis)), traffic_(traffic) {}
  int size() const override { return real_->size(); }
  int rank() const override { return real_->rank(); }
  Work all_reduce(Tensor x, Site site) override {
    count(Traffic::Kind::all_reduce, 2 * x.bytes() * (size() - 1) / size());
    return real_->all_reduce(x, site);
  }
  Work all_gather(Tensor shard, Tensor full, Site site) override {
    count(Traffic::Kind::all_gather, full.bytes() / size() * (size() - 1));
    return real_->all_gather(shard, full, site);
  }
  Work reduce_scatter(Tensor full, Tensor shard, Site site) override {
    count(Traffic::Kind::reduce_scatter, full.bytes() / size() * (size() - 1));
    return real_->reduce_scatter(full, shard, site);
  }
  Work send(Tensor x, int to, Site site) override {
    count(Traffic::Kind::send, x.bytes());
    return real_->send(x, to, site);
  }
  Work recv(Tensor x, int from, Site site) override { return real_->recv(x, from, site); }

 private:
  void count(Traffic::Kind kind, int64_t bytes) {
    if (size() == 1) return;
    Traffic::Count& c = traffic_.count(axis_, kind);
    ++c.calls;
    c.bytes += bytes;
  }
  const std::shared_ptr<Communicator> real_;
  const std::string axis_;
  Traffic& traffic_;
};

ProcessMesh counting(ProcessMesh mesh, Traffic& traffic) {
  const auto wrap = [&](std::shared_ptr<Communicator>& c, const std::string& axis) {
    c = std::make_shared<Counting>(c, axis, traffic);
  };
  const int dp = mesh[Axis::dp].size();
  mesh.each([&](std::shared_ptr<Communicator>& ranks, const std::string& axis) {
    if (axis == "dp" || axis == "tp" || axis == "pp") wrap(ranks, axis);
    if (axis == "shards" || axis == "replicas" || axis == "frozen_shards")
      wrap(ranks, ranks->size() == dp ? "dp" : axis);
    if (axis == "world" || axis.starts_with("teacher_")) wrap(ranks, axis);
  });
  return mesh;
}

// What one rank sends in a step that is really made.
Traffic traffic_of_step(const RunPlan& plan, const ProcessMesh& mesh, const Objective& objective = kNextToken) {
  Traffic traffic;
  const ProcessMesh counted = counting(mesh, traffic);
  PersistentArenas arenas(plan.memory.persistent);
  TrainingState state(plan.model, plan.step, *plan.optimizer, arenas, counted);
  RefBackend backend(1);
  init_weights(state.params, 3, 1);
  state.params.masters_changed(backend);
  const auto begin = [&](FrozenModel& other) {
    init_weights(other.params, 3, 1);
    other.params.masters_changed(backend);
  };
  for (FrozenModel& other : state.frozen) begin(other);
  if (state.teacher) begin(*state.teacher);
  traffic = {};
  Executor executor(state, plan.step, plan.memory, {backend, counted});
  const std::vector<AttentionSpan> spans{{.q_row = 0, .q_count = kSeq, .k_row = 0, .k_count = kSeq}};
  const LoadMicroBatch load = [&](MicroBatch& b) {
    for (int64_t i = 0; i < kSeq; ++i) {
      b.ids.as<int32_t>()[i] = b.targets.as<int32_t>()[i] = b.positions.as<int32_t>()[i] = int32_t(i);
      if (b.weights.dtype == DType::f64)
        b.weights.as<double>()[i] = 1;
      else
        b.weights.as<float>()[i] = 1;
      b.tokens.as<int64_t>()[i] = i;
    }
    b.spans = spans;
  };
  executor.run(
      {.load = load, .loss_scale = 1, .dropout_key = 1, .objective = objective, .others = &load, .global = &load});
  state.norm->wait_measure(backend);
  update_all(backend, *plan.optimizer, state.params, executor.scratch(), {.lr = 0, .grad_scale = 1, .step = 1});
  executor.check_used();
  EXPECT_EQ(arenas.peak(), plan.memory.persistent);
  return traffic;
}

// That every rank sends what was planned, and that its arenas hold it.
void expect_planned(const char* model, const std::vector<std::string>& layout) {
  const Recipe recipe = recipe_of(golden(model), layout);
  std::mutex mutex;
  run_local(mesh_sizes_of(recipe), [&](const ProcessMesh& mesh) {
    const RunPlan plan = plan_run(recipe, WorkspaceModel(), mesh.world->rank());
    const Distill distill(plan.step.teacher ? plan.step.teacher->loss : Distillation());
    const Objective& objective = plan.step.teacher ? static_cast<const Objective&>(distill) : kNextToken;
    const Traffic sent = traffic_of_step(plan, mesh, objective), planned = plan.memory.traffic;
    const std::lock_guard lock(mutex);
    EXPECT_EQ(planned.counts(), sent.counts())
        << model << " " << layout[0] << " " << layout[1] << " rank " << mesh.world->rank() << "\nplanned\n"
        << to_string(planned) << "sent\n"
        << to_string(sent);
  });
}

// Scores by the model, and by a frozen one of the same weights.
class SeesTheSame final : public Objective {
 public:
  bool scores_first() const override { return true; }
  size_t num_frozen() const override { return 1; }
  bool scores_others() const override { return true; }
  int num_sums() const override { return 2; }
  void sum(const Scores& scores, std::span<const double> counted, std::span<double> sums) const override {
    for (size_t i = 0; i < counted.size(); ++i) sums[scores.others ? 1 : 0] += counted[i];
  }
  void weigh(const Scores& scores, Sums sums, std::span<double>) const override {
    for (const double counted : sums) EXPECT_EQ(counted, double(kSeq)) << "each target once, on every rank";
    for (size_t i = 0; i < scores.own.size(); ++i) {
      loss += scores.own[i];
      EXPECT_EQ(scores.frozen[0][i], scores.own[i]);
    }
  }
  double divisor(int64_t) const override { return 1; }
  mutable double loss = 0;
};

TEST(LayoutPlanSlow, FrozenModelsScoreOnEveryLayoutWithinThePlan) {
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {"parallel.dp=1"},
           {"parallel.dp=2", "parallel.zero_stage=1"},
           {"parallel.dp=2", "parallel.zero_stage=3"},
           {"parallel.tp=2"},
           {"parallel.tp=2", "parallel.sequence_parallel=false", "train.precision=bf16"},
           {"parallel.dp=2", "parallel.zero_stage=3", "train.precision=bf16"},
           {"parallel.pp=2", "parallel.recompute=full"},
           {"parallel.pp=1", "parallel.pipeline_schedule=interleaved_1f1b",
            "parallel.virtual_pipeline_parallel_size=2"},
           {"parallel.pp=2", "parallel.tp=2", "parallel.pipeline_schedule=zbv"}}) {
    std::vector<std::string> overrides = layout;
    overrides.push_back("train.global_batch_size=8");
    const Recipe recipe = recipe_of(golden("llama3-rope-tied"), overrides);
    std::mutex mutex;
    double loss = 0;
    run_local(mesh_sizes_of(recipe), [&](const ProcessMesh& mesh) {
      RunPlan plan = prepare_run(recipe, mesh.world->rank());
      plan.step.evaluates = plan.step.scores_first = true;
      plan.step.scores_others = true;
      plan.step.num_sums = 2;
      plan.step.frozen = {{plan.model, plan.step.model}};
      plan.memory = measure(plan.model, plan.step, *plan.optimizer, WorkspaceModel());
      const SeesTheSame objective;
      const Traffic sent = traffic_of_step(plan, mesh, objective);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(plan.memory.traffic.counts(), sent.counts()) << layout[0] << " rank " << mesh.world->rank();
      loss += objective.loss;
    });
    EXPECT_GT(loss, 0) << layout[0];
  }
}

// The rank with more micro-batches keeps more of them with gpipe, and sends more between stages; in classes of its own.
TEST(LayoutPlan, RanksWithUnequalSharesUseWhatWasPlannedForEach) {
  const std::vector<std::string> gpipe{"parallel.dp=2", "parallel.micro_batches=[5, 2]", "parallel.pp=2",
                                       "parallel.pipeline_schedule=gpipe", "train.global_batch_size=7"};
  expect_planned("llama-gqa", gpipe);
  expect_planned("llama3-rope-tied", {"parallel.dp=2", "parallel.micro_batches=[2, 31]", "parallel.zero_stage=1",
                                      "train.numerics=invariant", "train.global_batch_size=33"});
  const Recipe recipe = recipe_of(golden("llama-gqa"), gpipe);
  const LayoutPlan all = plan_layout(recipe, WorkspaceModel());
  EXPECT_EQ(all.classes.size(), 4u);
  for (const RankClass& c : all.classes)
    for (const int rank : c.ranks) {
      const MemoryPlan own = plan_run(recipe, WorkspaceModel(), rank).memory;
      EXPECT_EQ(own.total_bytes(), c.plan.total_bytes()) << rank;
      EXPECT_EQ(own.traffic.counts(), c.plan.traffic.counts()) << rank;
      EXPECT_EQ(own.chunks[0].slots.till_wgrad, place_of(mesh_sizes_of(recipe), rank).dp == 0 ? 5 : 2) << rank;
    }
}

// The plan runs a loop of the schedule a few times, the step all times.
TEST(LayoutPlan, ManyMicroBatchesAreRunAsTheyWerePlanned) {
  const std::string batch = "train.global_batch_size=";
  expect_planned("llama-gqa", {"parallel.pp=2", "parallel.pipeline_schedule=gpipe", batch + "20"});
  expect_planned("llama-gqa", {"parallel.dp=2", "parallel.zero_stage=3", batch + "40"});
  expect_planned("llama-gqa", {"parallel.dp=2", "parallel.zero_stage=1", batch + "40"});
  expect_planned("llama-gqa", {"parallel.dp=2", "train.numerics=invariant", batch + "50"});
  expect_planned("llama3-rope-tied", {"parallel.dp=2", "parallel.pp=2", "parallel.zero_stage=3",
                                      "parallel.pipeline_schedule=zb_h1", "train.numerics=invariant", batch + "50"});
  expect_planned("llama3-rope-tied",
                 {"parallel.pp=1", "parallel.pipeline_schedule=interleaved_1f1b",
                  "parallel.virtual_pipeline_parallel_size=2", "train.numerics=invariant", batch + "23"});
}

TEST(LayoutPlanSlow, TheTrafficOfEveryRankIsWhatAStepSends) {
  const std::vector<std::string> layouts[] = {
      {"parallel.dp=2", "parallel.pp=2"},
      {"parallel.dp=2", "parallel.tp=2", "parallel.zero_stage=3"},
      {"parallel.dp=4", "parallel.zero_stage=1", "train.numerics=invariant"},
      {"parallel.dp=3", "parallel.zero_stage=2", "train.numerics=invariant"},
      {"parallel.dp=4", "parallel.zero_stage=2", "parallel.zero_shard_size=2", "parallel.tp=2"},
      {"parallel.dp=2", "parallel.zero_stage=1", "parallel.pp=2", "parallel.pipeline_schedule=zb_h1"},
      {"parallel.pp=2", "parallel.tp=2", "parallel.recompute=full", "parallel.sequence_parallel=false"},
      {"parallel.pp=2", "parallel.pipeline_schedule=gpipe"},
      {"parallel.pp=2", "parallel.pipeline_schedule=interleaved_1f1b", "parallel.virtual_pipeline_parallel_size=2"},
      {"parallel.pp=2", "parallel.dp=2", "parallel.pipeline_schedule=zbv", "parallel.zero_stage=3"},
      {"parallel.pp=2", "parallel.pipeline_schedule=zbv", "train.numerics=invariant"}};
  for (const char* model : {"llama-gqa", "llama3-rope-tied"}) {
    for (std::vector<std::string> layout : layouts) {
      layout.push_back("train.global_batch_size=60");  // 60, 30, 20, 15 micro-batches: trees that are not whole
      expect_planned(model, layout);
    }
  }
}

TEST(LayoutPlan, RanksOfOneStageAreOneClassAndTheLargestIsFirst) {
  const LayoutPlan one = plan_of(golden("llama-gqa"), {"parallel.dp=64", "train.global_batch_size=64"});
  ASSERT_EQ(one.classes.size(), 1u);
  EXPECT_EQ(one.classes[0].num_ranks, 64);
  const LayoutPlan two =
      plan_of(golden("llama-gqa"), {"parallel.dp=64", "parallel.pp=2", "train.global_batch_size=640"});
  ASSERT_EQ(two.classes.size(), 2u);
  EXPECT_EQ(two.classes[0].num_ranks, 64);
  EXPECT_GE(two.classes[0].plan.total_bytes(), two.classes[1].plan.total_bytes());
  EXPECT_EQ(two.run.memory.total_bytes(), two.classes[0].plan.total_bytes());
}

TEST(LayoutPlan, UnevenCutsMakeClassesOfTensorParallelRanks) {
  testing::TempDir dir;
  testing::spill(dir / "config.json", R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 24,
    "intermediate_size": 30, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false})");
  const LayoutPlan plan =
      plan_of(dir.path(), {"parallel.tp=2", "parallel.dp=2", "train.global_batch_size=2"});  // 1 and 2 key heads
  ASSERT_EQ(plan.classes.size(), 2u);
  EXPECT_EQ(plan.classes[0].tp_ranks, std::vector<int>{1});
  EXPECT_EQ(plan.classes[1].tp_ranks, std::vector<int>{0});
  EXPECT_EQ(to_string(plan.classes[0], plan.run.step.mesh), "tp 1 (2 ranks, as rank 1)");
}

// What they hold, row by row.
std::string rows_of(const MemoryPlan& plan) {
  std::string text;
  for (const MemoryPlan::Row& row : plan.rows())
    text += fmt::format("{} {} x {}, ", row.name, row.count, row.bytes_each);
  return text;
}

std::vector<std::string> beside_teacher(std::vector<std::string> layout) {
  layout.insert(layout.end(),
                {"train.objective=distill", "objective.teacher=" + (golden("distill-forward") / "teacher").string()});
  return layout;
}

TEST(LayoutPlan, ATeachersPassAndItsHeadBesideTheStudentsAreInIt) {
  const std::string batch = "train.global_batch_size=";
  expect_planned("distill-forward", beside_teacher({"parallel.dp=2", "parallel.zero_stage=3", batch + "20"}));
  expect_planned("distill-forward", beside_teacher({"parallel.pp=2", "parallel.tp=2", batch + "20"}));
  expect_planned("distill-forward", beside_teacher({"parallel.dp=4", "parallel.frozen_shard_size=2", batch + "20"}));
  const auto logits = [&](const char* tp) {
    return plan_of(golden("distill-forward"), beside_teacher({tp, batch + "1"})).run.memory;
  };
  EXPECT_GT(logits("parallel.tp=1").scratch, logits("parallel.tp=2").scratch);
}

// Its part of the teacher, what it finds and what it learns, on each rank; more data ranks than micro-batches too.
TEST(LayoutPlan, ATeacherOnALayoutOfItsOwnIsInIt) {
  const std::string batch = "train.global_batch_size=";
  const auto planned = [&](std::vector<std::string> layout) {
    layout.emplace_back("objective.top_k=5");
    expect_planned("distill-forward", beside_teacher(std::move(layout)));
  };
  planned({"parallel.dp=2", "parallel.teacher_tp=2", batch + "6"});
  planned({"parallel.dp=2", "parallel.zero_stage=2", "parallel.teacher_pp=2", batch + "6"});
  planned({"parallel.tp=2", "parallel.pp=2", "parallel.teacher_tp=1", "parallel.teacher_pp=1", batch + "2"});
  const auto of = [&](const char* tp) {
    return plan_of(golden("distill-forward"), beside_teacher({"parallel.dp=2", "objective.top_k=5", tp, batch + "6"}))
        .run.memory;
  };
  const MemoryPlan whole = of("parallel.teacher_tp=1"), cut = of("parallel.teacher_tp=2");
  EXPECT_NEAR(double(cut.persistent.frozen), double(whole.persistent.frozen) / 2,
              0.1 * double(whole.persistent.frozen));
  EXPECT_EQ(cut.persistent.params, whole.persistent.params);
  const int64_t row = 4 * (2 * 5 + 1), tokens = kSeq;  // three micro-batches here learn, and one is found
  EXPECT_GE(cut.teacher_rows, 4 * tokens * row);
  EXPECT_LE(cut.teacher_rows, 4 * tokens * row + 2 * kArenaAlignment);
}

// A teacher that does not fit a rank whole, beside a student that does.
TEST(LayoutPlan, ShardsOfATeacherTakeTheirPartOfItsMemoryAndNothingOfTheStudents) {
  const auto planned = [&](const std::string& shards) {
    return plan_of(golden("distill-forward"), beside_teacher({"parallel.dp=8", "train.global_batch_size=8",
                                                              "parallel.frozen_shard_size=" + shards}))
        .run.memory;
  };
  const MemoryPlan whole = planned("0");
  for (const int64_t shards : {2, 8}) {
    const MemoryPlan cut = planned(std::to_string(shards));
    EXPECT_NEAR(double(cut.persistent.frozen), double(whole.persistent.frozen) / double(shards),
                0.01 * double(whole.persistent.frozen))
        << shards;
    EXPECT_EQ(cut.persistent.params, whole.persistent.params);
    EXPECT_EQ(cut.persistent.states, whole.persistent.states);
    EXPECT_GT(cut.persistent.transit, whole.persistent.transit) << "blocks that come together";
  }
}

TEST(LayoutPlan, TheClassesHoldWhatEveryRankOfTheLayoutHolds) {
  const std::vector<std::string> layouts[] = {
      {"parallel.dp=6", "optimizer.name=muon"},
      {"parallel.dp=3", "parallel.tp=2", "optimizer.name=muon", "parallel.zero_stage=2"},
      {"parallel.dp=40", "parallel.zero_stage=1", "optimizer.name=muon"},  // more ranks than matrices
      {"parallel.dp=3", "parallel.pp=2", "parallel.tp=2", "optimizer.name=muon"},
      {"parallel.dp=3", "parallel.tp=2", "optimizer.name=adamw8bit", "parallel.zero_stage=2"},
      {"parallel.dp=5", "parallel.tp=3", "optimizer.name=adamw8bit", "parallel.zero_stage=1", "parallel.pp=2",
       "parallel.sequence_parallel=false"},
      {"parallel.dp=3", "parallel.pp=2", "parallel.zero_stage=3", "train.numerics=invariant"}};
  const std::vector<std::string> of_experts[] = {
      {"parallel.dp=6", "parallel.ep=3", "optimizer.name=muon"},
      {"parallel.dp=6", "parallel.ep=2", "optimizer.name=muon", "parallel.zero_stage=2", "parallel.tp=2"},
      {"parallel.dp=4", "parallel.ep=2", "parallel.zero_stage=3", "optimizer.name=adamw8bit", "parallel.tp=2"},
      {"parallel.dp=4", "parallel.ep=2", "parallel.zero_stage=3", "parallel.cp=2", "moe.capacity_factor=1.5"}};
  bool some_differ = false;
  std::vector<std::pair<const char*, std::vector<std::string>>> all;
  for (const auto& layout : layouts) all.emplace_back("llama-gqa", layout);
  all.emplace_back("distill-forward", beside_teacher({"parallel.dp=3", "parallel.pp=2", "parallel.zero_stage=3"}));
  all.emplace_back("distill-forward", beside_teacher({"parallel.dp=6", "parallel.frozen_shard_size=3"}));
  all.emplace_back("distill-forward", beside_teacher({"parallel.dp=3", "parallel.pp=2", "objective.top_k=5",
                                                      "parallel.teacher_tp=2", "parallel.teacher_pp=3"}));
  for (const auto& layout : of_experts) all.emplace_back("moe-zloss-global", layout);
  for (auto& [model, layout] : all) {
    layout.push_back("train.global_batch_size=120");
    layout.push_back("optimizer.min_8bit_size=600");
    const Recipe recipe = recipe_of(golden(model), layout);
    std::map<std::string, int64_t> planned, held;
    for (const RankClass& c : plan_layout(recipe, WorkspaceModel()).classes) planned[rows_of(c.plan)] += c.num_ranks;
    const int world = mesh_sizes_of(recipe).world();
    for (int rank = 0; rank < world; ++rank) ++held[rows_of(plan_run(recipe, WorkspaceModel(), rank).memory)];
    EXPECT_EQ(planned, held) << layout[0] << " " << layout[1];
    some_differ |= recipe.parallel.pp == 1 && held.size() > 1;
  }
  const LayoutPlan some =
      plan_of(golden("llama-gqa"), {"parallel.dp=40", "optimizer.name=muon", "train.global_batch_size=40"});
  EXPECT_SAYS(to_string(some.classes[0], some.run.step.mesh), " of 40 ranks, as rank ");
  EXPECT_TRUE(some_differ) << "no case in which ranks of one stage differ";
}

// Each rank sends the rows of its tokens, all ranks having as many, to the experts of the others and back, and of each
// expert how many there are.
TEST(LayoutPlan, RowsOfExpertsAreTrafficOfTheirRanks) {
  const LayoutPlan plan = plan_of(golden("mixtral"), {"parallel.dp=2", "parallel.ep=2", "train.global_batch_size=2"});
  const Traffic::Counts& sent = plan.run.memory.traffic.counts();
  const ModelSpec& m = plan.run.model;
  const int64_t layers = m.num_layers, rows = kSeq * m.experts.chosen / 2, number = sizeof(double);
  const Traffic::Count counts = sent.at({"ep", Traffic::Kind::all_gather}),
                       moved = sent.at({"ep", Traffic::Kind::send});
  EXPECT_EQ(counts, (Traffic::Count{layers, layers * (m.experts.count + 1) * 4}));
  EXPECT_EQ(moved.calls, layers * 8);  // x, weights, results; their gradients; x and gradients of results for weights
  EXPECT_EQ(moved.bytes, layers * rows * number * (6 * m.width + 2));
  EXPECT_SAYS(to_string(plan.run.memory.traffic), "\nep ");
}

TEST(LayoutPlan, RoomForRowsOfExpertsIsPlannedAsTheCapacityFactorSays) {
  const auto bytes = [](const std::string& factor) {
    return plan_of(golden("mixtral"),
                   {"parallel.dp=4", "parallel.ep=4", "train.global_batch_size=4", "train.seq_length=64", factor})
        .run.memory.total_bytes();
  };
  EXPECT_LT(bytes("moe.capacity_factor=1"), bytes("moe.capacity_factor=1.5"));
  EXPECT_LT(bytes("moe.capacity_factor=1.5"), bytes("train.seed=1"));
  EXPECT_EQ(bytes("moe.capacity_factor=100"), bytes("train.seed=1"));
}

TEST(LayoutPlan, ExpertsThatCannotBeDealtOutAreRefusedWithTheNearestThatCan) {
  const auto why = [](const char* model, std::vector<std::string> layout) {
    layout.push_back("train.global_batch_size=12");
    return testing::error_of<ConfigError>([&] { plan_of(golden(model), layout); });
  };
  EXPECT_SAYS(why("llama-gqa", {"parallel.dp=2", "parallel.ep=2"}),
              "parallel.ep = 2 cannot run: the model has no experts; the nearest that works: parallel.ep = 1");
  EXPECT_SAYS(why("llama-gqa", {"moe.capacity_factor=2"}), "moe.capacity_factor = 2 has no effect");
  EXPECT_SAYS(why("mixtral", {"parallel.dp=12", "parallel.ep=12"}),
              "parallel.ep = 12 cannot run: 4 experts cannot be dealt out evenly over so many ranks; the nearest that "
              "works: parallel.ep = 4");
  EXPECT_SAYS(why("mixtral", {"parallel.dp=6", "parallel.ep=3"}), "the nearest that works: parallel.ep = 2");
  EXPECT_EQ(why("mixtral", {"parallel.dp=12", "parallel.ep=4"}), "");
}

// To the byte for what layers keep. What travels around the ring, and weights, are beside it.
TEST(LayoutPlan, ActivationsOfARankFallAsTheRanksThatShareASequence) {
  const auto plan = [](int cp) {
    return plan_of(std::filesystem::path(testing::kSourceDir) / "bench/models/llama-2x256",
                   {"train.seq_length=131072", "train.global_batch_size=1", fmt::format("parallel.cp={}", cp),
                    "parallel.cp_comm_type=p2p"})
        .run.memory;
  };
  const auto kept = [](const MemoryPlan& of) { return of.chunks.at(0).till_dgrad + of.chunks.at(0).till_wgrad; };
  const MemoryPlan one = plan(1);
  EXPECT_GT(kept(one), one.total_bytes() / 2);
  for (const int cp : {2, 4}) {
    const MemoryPlan many = plan(cp);
    EXPECT_EQ(kept(many) * cp, kept(one)) << cp;
    EXPECT_LE(many.total_bytes() * cp, one.total_bytes() * 23 / 20) << cp;
  }
}

// MiB of the rank that needs most, as `weft plan` says it of a recipe of bench/ on a sequence of 131,072 tokens.
int64_t mib_of_long_sequence(const std::string& model, std::vector<std::string> overrides) {
  const std::filesystem::path bench = std::filesystem::path(testing::kSourceDir) / "bench";
  overrides.insert(overrides.begin(), {"model.path=" + (bench / "models" / model).string(), "train.seq_length=131072",
                                       "train.micro_batch_size=1", "train.global_batch_size=1"});
  const Recipe recipe = parse_recipe_file((bench / (model + ".toml")).string(), overrides);
  const Machine machine = machine_to_plan_for(recipe);
  return plan_layout(recipe, *machine.workspace_model).classes.at(0).plan.total_bytes() >> 20;
}

// The figures are those of docs/benchmarks.md; kernels' temporaries, which depend on the machine, are a few MiB of
// them.
TEST(LayoutPlan, ASequenceOf131072TokensFits24GiBOnOneRankAndOnFourThatShareIt) {
  const std::vector<std::string> here = backends_here();
  if (std::find(here.begin(), here.end(), "cpu") == here.end()) GTEST_SKIP() << "this build has no backend cpu";
  constexpr int64_t kMost = 24 << 10, kTemporaries = 64;
  struct Case {
    const char* model;
    std::vector<std::string> overrides;
    int64_t mib;
  };
  for (const auto& [model, overrides, mib] :
       {Case{"llama-2x256", {}, 5997}, Case{"llama-2x256", {"parallel.cp=4", "run.threads=1"}, 1691},
        Case{"llama-8x512", {"parallel.cp=4", "run.threads=1"}, 9916},
        Case{"llama-8x512", {"parallel.recompute=full"}, 12804}}) {
    const int64_t needed = mib_of_long_sequence(model, overrides);
    EXPECT_LE(needed, kMost) << model << " " << fmt::format("{}", fmt::join(overrides, " "));
    EXPECT_NEAR(double(needed), double(mib), kTemporaries)
        << model << " " << fmt::format("{}", fmt::join(overrides, " "));
  }
  const int64_t whole = mib_of_long_sequence("llama-8x512", {});
  EXPECT_GT(whole, kMost) << "which recomputation is for";
  EXPECT_NEAR(double(whole), 35895, kTemporaries);
}

// `sizes`: query heads, key heads, inner width, vocabulary.
std::string refusal_of(std::array<int, 4> sizes, std::vector<std::string> overrides) {
  testing::TempDir dir;
  testing::spill(dir / "config.json",
                 fmt::format(R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": 24, "intermediate_size": {},
    "num_hidden_layers": 7, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": 4,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": false}})",
                             sizes[3], sizes[2], sizes[0], sizes[1]));
  overrides.insert(overrides.begin(), "train.global_batch_size=1");
  return testing::error_of<ConfigError>([&] { plan_of(dir.path(), std::move(overrides)); });
}

TEST(LayoutPlan, TheTensorParallelRanksThatAreAdvisedAreTheNearestThatPassEveryCheck) {
  const std::string no_sp = "parallel.sequence_parallel=false";
  const auto advised = [&](std::array<int, 4> sizes, int tp, const std::string& more = "train.seed=1") {
    const std::string why = refusal_of(sizes, {fmt::format("parallel.tp={}", tp), more}), key = "parallel.tp = ";
    const size_t at = why.rfind("works: " + key);
    if (at == std::string::npos) return "none: " + why;
    const std::string nearest = why.substr(at + 7 + key.size());
    EXPECT_EQ(refusal_of(sizes, {"parallel.tp=" + nearest, more}), "") << why;
    return nearest;
  };
  EXPECT_EQ(advised({6, 3, 30, 100}, 5, no_sp), "6") << "above";
  EXPECT_EQ(advised({6, 3, 30, 100}, 4, no_sp), "3") << "below";
  EXPECT_EQ(advised({6, 3, 30, 100}, 7, no_sp), "6");
  EXPECT_EQ(advised({6, 3, 30, 100}, 5), "2") << "8 tokens";
  EXPECT_EQ(advised({6, 3, 30, 100}, 5, "train.seq_length=12"), "6");
  EXPECT_EQ(advised({8, 8, 30, 6}, 7, no_sp), "6") << "a small vocabulary";
  EXPECT_EQ(advised({8, 8, 30, 6}, 7), "4");
  EXPECT_EQ(advised({7, 7, 30, 100}, 8, "train.seq_length=11"), "1");
}

TEST(LayoutPlan, ARefusalOfTensorParallelRanksGivesTheReasonThatIsTrue) {
  const std::string no_sp = "parallel.sequence_parallel=false";
  EXPECT_SAYS(refusal_of({6, 3, 30, 100}, {"parallel.tp=5"}), "6 query heads and 3 key heads cannot be cut");
  EXPECT_SAYS(refusal_of({8, 8, 30, 6}, {"parallel.tp=8", no_sp}), "cannot run: a vocabulary of 6 cannot be cut");
  EXPECT_SAYS(refusal_of({8, 8, 5, 60}, {"parallel.tp=8", no_sp}), "cannot run: an inner width of 5 cannot be cut");
  EXPECT_SAYS(refusal_of({8, 8, 30, 60}, {"parallel.tp=3"}),
              "8 tokens of a micro-batch cannot be cut evenly over parallel.tp = 3");
}

TEST(LayoutPlan, APipelineLayoutThatDoesNotFitIsRefusedWithTheNearestThatDoes) {  // 7 blocks
  const auto refusal = [](int pp, const std::string& layout) {
    return refusal_of({6, 3, 30, 100}, {fmt::format("parallel.pp={}", pp), "parallel.pipeline_layout=" + layout});
  };
  EXPECT_EQ(refusal(2, "[6, 2]"),
            "parallel.pipeline_layout = [6, 2] cannot run: the counts add up to 8, and the model has 7 blocks; the "
            "nearest that works: parallel.pipeline_layout = [5, 2]");
  EXPECT_EQ(refusal(2, "[5, 2]"), "");
  EXPECT_SAYS(refusal(3, "[3, 0, 4]"), "virtual stage 1 would have nothing to do");
  EXPECT_SAYS(refusal(3, "[3, 0, 4]"), "the nearest that works: parallel.pipeline_layout = [3, 1, 3]");
  EXPECT_SAYS(refusal(10, "[1,1,1,1,1,1,1,1,1,1]"),
              "parallel.pp = 10 cannot run: 10 stages of 1 chunks for a model of 7 blocks; the nearest that works: "
              "parallel.pp = 7 and parallel.pipeline_layout = []");
}

constexpr const char* kLlama70B = R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192,
  "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
  "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false})";

// The norm's sums, and what a rank does to find them: not in proportion to the shards. (The losses of micro-batches
// are.)
TEST(LayoutPlan, TheMemoryOfNormsDoesNotGrowWithTheShards) {
  testing::TempDir dir;
  testing::spill(dir / "config.json", kLlama70B);
  const auto records = [&](int64_t dp) {
    const LayoutPlan plan = plan_of(dir.path(), {fmt::format("parallel.dp={}", dp), "parallel.zero_stage=1",
                                                 "parallel.tp=8", fmt::format("train.global_batch_size={}", dp)});
    return plan.run.memory.persistent.records - dp * int64_t(sizeof(double));
  };
  const int64_t few = records(2);
  EXPECT_LT(few, 160 << 10);  // of 80 blocks
  for (int64_t dp : {128, 2048}) EXPECT_LE(std::abs(records(dp) - few), 4096) << dp;
}

// A tenth of a second each; the bound is there to catch what grows with the number of ranks or micro-batches.
// GPipe gives all stages the same list of actions.
TEST(LayoutPlan, StagesWithOtherBlocksAreMeasuredThemselves) {
  testing::TempDir dir;
  testing::spill(dir / "config.json", kLlama70B);
  const std::vector<std::string> overrides{"parallel.pp=5", "parallel.pipeline_schedule=gpipe",
                                           "parallel.pipeline_layout=[18,18,19,19,6]", "train.global_batch_size=6"};
  const LayoutPlan plan = plan_of(dir.path(), overrides);
  EXPECT_EQ(plan.classes.size(), 4u);  // stages 2 and 3 are one
  for (const RankClass& c : plan.classes)
    for (const int stage : c.stages)
      EXPECT_EQ(to_string(plan_run(recipe_of(dir.path(), overrides), WorkspaceModel(), stage).memory),
                to_string(c.plan))
          << "stage " << stage;
}

TEST(LayoutPlan, ABigModelOnManyRanksIsPlannedAtOnce) {
  testing::TempDir dir;
  testing::spill(dir / "config.json", kLlama70B);
  const auto began = std::chrono::steady_clock::now();
  const LayoutPlan cut =
      plan_of(dir.path(), {"parallel.dp=128", "parallel.tp=8", "parallel.pp=16", "parallel.zero_stage=1",
                           "parallel.pipeline_schedule=interleaved_1f1b", "parallel.virtual_pipeline_parallel_size=5",
                           "train.global_batch_size=4096"});
  EXPECT_EQ(cut.run.step.mesh.world(), 16384);
  const LayoutPlan sharded =
      plan_of(dir.path(), {"parallel.dp=16384", "parallel.zero_stage=3", "train.global_batch_size=16384"});
  ASSERT_EQ(sharded.classes.size(), 1u);
  EXPECT_EQ(sharded.classes[0].num_ranks, 16384);
  const LayoutPlan long_step =
      plan_of(dir.path(), {"parallel.pp=80", "parallel.zero_stage=1", "train.global_batch_size=65536"});
  EXPECT_EQ(long_step.classes.size(), 80u);  // 1F1B keeps another number of micro-batches on each stage
  const LayoutPlan all_alive =
      plan_of(dir.path(), {"parallel.pp=1", "parallel.pipeline_schedule=gpipe", "train.global_batch_size=65536"});
  EXPECT_EQ(all_alive.run.memory.chunks[0].slots.till_wgrad, 65536);
  const LayoutPlan all_alive_cut =
      plan_of(dir.path(), {"parallel.pp=80", "parallel.pipeline_schedule=gpipe", "train.global_batch_size=65536"});
  EXPECT_EQ(all_alive_cut.classes.size(), 3u);  // all but the ends are alike
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

}  // namespace
}  // namespace weft
