// Text that a run writes with the weights that it trains.
#include "weft/train/run_writer.h"

#include "token_files.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/plan/layout_plan.h"
#include "weft/step/text_groups.h"
#include "weft/train/first_weights.h"
#include "weft/train/generate_texts.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using RunSettings = std::vector<std::string>;

constexpr int64_t kWindow = 80, kMostAdded = 12;

fs::path model_of_writer(const std::string& name) { return fs::path(testing::kSourceDir) / "tests/golden" / name; }

// Of unequal lengths: one needs portions of several lengths, one ends a page of the caches.
std::vector<Tokens> prompts_of_writer() {
  std::vector<Tokens> prompts;
  for (const int32_t n : {66, 1, 30, 57, 8}) {
    Tokens& ids = prompts.emplace_back();
    for (int32_t i = 0; i < n; ++i) ids.push_back((n + 7 * i * i + 3 * i) % 61);
  }
  return prompts;
}

Recipe recipe_of_writer(const fs::path& folder, const RunSettings& layout) {
  RunSettings all{fmt::format("train.seq_length={}", kWindow),
                  "train.micro_batch_size=2",
                  "train.global_batch_size=8",
                  "run.threads=1",
                  "run.backend=cpu",
                  "eval.tasks=[\"gsm8k=gsm8k.jsonl\"]"};  // which a plan does not read
  all.insert(all.end(), layout.begin(), layout.end());
  const Recipe r = testing::golden_recipe(folder, "no-run", all);
  check_supported(r);
  return r;
}

// Two texts at once on each rank of dp.
std::vector<Tokens> texts_of_writer(RunWriter& writer, const MeshSizes& sizes) {
  const std::vector<Tokens> prompts = prompts_of_writer();
  const auto batch = size_t(2 * sizes.dp);
  std::vector<Tokens> all;
  for (size_t first = 0; first < prompts.size(); first += batch) {
    const std::vector<Tokens> some(prompts.begin() + int64_t(first),
                                   prompts.begin() + int64_t(std::min(first + batch, prompts.size())));
    for (Tokens& text : generate_texts(writer, {.prompts = some, .how = {.temperature = 0}, .max_tokens = kMostAdded}))
      all.push_back(std::move(text));
  }
  return all;
}

// By the first weights of a run: what every rank has.
std::vector<Tokens> written_by_run(const fs::path& folder, const RunSettings& layout) {
  const Recipe r = recipe_of_writer(folder, layout);
  const Machine machine = machine_for(r);
  const MeshSizes sizes = mesh_sizes_of(r);
  std::vector<std::vector<Tokens>> written(size_t(sizes.world()));
  run_on_threads(sizes, *machine.mover, [&](const ProcessMesh& mesh) {
    RankRun rank(plan_run(r, *machine.workspace_model, mesh.world->rank()), machine, mesh);
    begin_weights(r, rank.plan.model, rank.state.params, rank.backend, 1);
    RunWriter writer(rank, machine.memory);
    written[size_t(mesh.world->rank())] = texts_of_writer(writer, sizes);
    if (sizes.world() == 1) { EXPECT_EQ(writer.bytes_taken(), rank.plan.memory.writing); }
    EXPECT_LE(writer.bytes_taken(), rank.plan.memory.writing);
  });
  for (const auto& one : written) EXPECT_EQ(one, written[0]);
  return written[0];
}

// As the command for models makes one, whose passes are others. `folder` may be an adapter's.
TextGenerator generator_for(const fs::path& folder, const Machine& machine, const Tokens& prompt, Precision precision) {
  const auto n = int64_t(prompt.size());
  return {folder, {.machine = machine, .precision = precision, .texts = {{.prompt = n, .all = n + kMostAdded}}}};
}

Machine machine_of_writer() { return machine_for(recipe_of_writer(model_of_writer("llama3-rope-tied"), {})); }

std::vector<Tokens> written_by_generator(const fs::path& folder) {
  const Machine machine = machine_of_writer();
  std::vector<Tokens> written;
  for (const Tokens& prompt : prompts_of_writer()) {
    TextGenerator generator = generator_for(folder, machine, prompt, kF32);
    written.push_back(
        generate_texts(generator, {.prompts = {prompt}, .how = {.temperature = 0}, .max_tokens = kMostAdded})[0]);
  }
  return written;
}

void expect_same_texts(const std::string& model, const std::vector<RunSettings>& layouts) {
  const fs::path folder = model_of_writer(model);
  const std::vector<Tokens> expected = written_by_generator(folder);
  for (const RunSettings& layout : layouts)
    EXPECT_EQ(written_by_run(folder, layout), expected) << model << " " << fmt::format("{}", fmt::join(layout, " "));
}

TEST(RunWriter, WritesWhatTheCheckpointWouldOnLayouts) {
  expect_same_texts("llama3-rope-tied", {{},
                                         {"parallel.tp=2"},
                                         {"parallel.dp=2", "parallel.zero_stage=3"},
                                         {"parallel.pp=2", "parallel.pipeline_schedule=zbv", "parallel.recompute=full"},
                                         {"parallel.pp=2", "parallel.pipeline_schedule=interleaved_1f1b",
                                          "parallel.zero_stage=1", "parallel.dp=2"},
                                         {"parallel.cp=2", "parallel.cp_comm_type=a2a", "parallel.zero_stage=3"}});
}

TEST(RunWriter, WritesWhatTheCheckpointWouldWithExperts) {
  expect_same_texts("mixtral", {{"parallel.dp=2", "parallel.ep=2", "parallel.zero_stage=3"}});
}

TEST(RunWriterSlow, WritesWhatTheCheckpointWouldOnMoreLayouts) {
  expect_same_texts("mixtral",
                    {{"parallel.dp=2", "parallel.ep=2", "parallel.tp=2"}, {"parallel.cp=2", "parallel.ep=2"}});
  expect_same_texts("gemma3", {{"parallel.tp=2", "parallel.cp=2"}, {"parallel.dp=4", "parallel.zero_stage=3"}});
  expect_same_texts("mtp", {{"parallel.pp=2"}, {"parallel.dp=2", "parallel.zero_stage=2"}});
}

TEST(RunWriter, WritesWhatTheCheckpointWouldOfOtherFamilies) {
  for (const char* model : {"gpt2", "gemma3", "mistral-window", "mtp"}) expect_same_texts(model, {{}});
}

// 38 texts that go on at once are passes of 36 and of 2, and 31 of them one.
TEST(RunWriter, WritesManyTextsInGroups) {
  const fs::path folder = model_of_writer("llama3-rope-tied");
  const std::vector<Tokens> expected = written_by_generator(folder), some = prompts_of_writer();
  const Recipe r = recipe_of_writer(folder, {"train.micro_batch_size=40", "train.global_batch_size=40"});
  const Machine machine = machine_for(r);
  const ProcessMesh mesh = single_mesh();
  RankRun rank(plan_run(r, *machine.workspace_model, 0), machine, mesh);
  begin_weights(r, rank.plan.model, rank.state.params, rank.backend, 1);
  RunWriter writer(rank, machine.memory);
  for (const size_t texts : {38, 31}) {
    std::vector<Tokens> prompts;
    for (size_t i = 0; i < texts; ++i) prompts.push_back(some[i % some.size()]);
    const std::vector<Tokens> written =
        generate_texts(writer, {.prompts = prompts, .how = {.temperature = 0}, .max_tokens = kMostAdded});
    ASSERT_EQ(written.size(), texts);
    for (size_t i = 0; i < texts; ++i) EXPECT_EQ(written[i], expected[i % some.size()]) << i << " of " << texts;
  }
  EXPECT_LE(writer.bytes_taken(), rank.plan.memory.writing);
}

// A rank passes 36 texts and then 2, while the other passes 5 and then a filler; and fillers from where its prompts
// end.
TEST(RunWriter, GroupsOfUnequalRanksPassTogether) {
  const fs::path folder = model_of_writer("llama3-rope-tied");
  const std::vector<Tokens> expected = written_by_generator(folder), prompts = prompts_of_writer();
  const Recipe r = recipe_of_writer(
      folder, {"train.micro_batch_size=40", "train.global_batch_size=80", "parallel.dp=2", "parallel.zero_stage=3"});
  const Machine machine = machine_for(r);
  run_on_threads(mesh_sizes_of(r), *machine.mover, [&](const ProcessMesh& mesh) {
    const int place = mesh.world->rank();
    RankRun rank(plan_run(r, *machine.workspace_model, place), machine, mesh);
    begin_weights(r, rank.plan.model, rank.state.params, rank.backend, 1);
    RunWriter writer(rank, machine.memory);
    const auto vocabulary = size_t(writer.model().vocab_size), texts = size_t(place == 0 ? 38 : 5);
    std::vector<TextFeeder::More> more;
    for (size_t i = 0; i < texts; ++i) more.push_back({.text = int64_t(i), .ids = prompts[i % prompts.size()]});
    for (size_t step = 0; step < size_t(kMostAdded); ++step) {
      const std::span<const double> logits = writer.feed(more);
      for (size_t i = 0; i < texts; ++i) {
        const Tokens& all = expected[i % expected.size()];
        const auto of_text = logits.subspan(i * vocabulary, vocabulary);
        EXPECT_EQ(std::max_element(of_text.begin(), of_text.end()) - of_text.begin(), all.at(step))
            << "rank " << place << ", text " << i << ", token " << step;
        more[i].ids = std::span(all).subspan(step, 1);
      }
    }
    for (size_t i = 0; i < texts; ++i) writer.end(int64_t(i));
    EXPECT_LE(writer.bytes_taken(), rank.plan.memory.writing);
  });
}

// What passes is planned, and few numbers of texts are.
TEST(RunWriter, TextsPassInFewNumbersThatArePlanned) {
  for (const int64_t most : {1, 7, 32, 33, 100, 511, 512, 1000}) {
    const std::vector<int64_t> planned = planned_numbers_of_texts(most);
    if (most <= 32) { EXPECT_EQ(planned.size(), size_t(most)); }
    EXPECT_LE(planned.size(), 32u + 5 * 8 + 1) << most << ": eight from each of 32, 64, ..., 512 on";
    for (int64_t n = 1; n <= most; ++n) {
      const int64_t pass = texts_of_pass(n, most);
      EXPECT_TRUE(std::find(planned.begin(), planned.end(), pass) != planned.end()) << n << " of " << most;
      EXPECT_LE(pass, n);
      EXPECT_GT(8 * pass, 7 * n) << n << " of " << most;
    }
  }
}

// An adapter that a step has changed, so that its B is not 0.
fs::path trained_adapter(const fs::path& base, const fs::path& run, const RunSettings& adapter) {
  RunSettings all{"eval.tasks=[]",
                  "run.dir=" + run.string(),
                  "train.train_iters=1",
                  "train.log_grad_norms=false",
                  "optimizer.lr=0.1",
                  "optimizer.min_lr=0",
                  "optimizer.lr_decay_style=constant",
                  "optimizer.lr_warmup_iters=0"};
  all.insert(all.end(), adapter.begin(), adapter.end());
  const Recipe r = recipe_of_writer(base, all);
  testing::train(r, machine_for(r));
  return run / "checkpoints/step-1";
}

// An adapter is no part of the base's products, and ZeRO cuts both. What it drops in training it has where it writes.
TEST(RunWriter, WritesWhatTheAdaptersFolderWould) {
  const fs::path base = model_of_writer("llama3-rope-tied");
  const testing::TempDir dir;
  const std::vector<Tokens> without = written_by_generator(base);
  const std::vector<RunSettings> layouts{
      {"adapter.dropout=0.5"}, {"parallel.tp=2"}, {"parallel.dp=2", "parallel.zero_stage=3"}};
  for (const char* kind : {"lora", "dora"}) {
    const std::string named = std::string("adapter.kind=") + kind;
    const fs::path adapter = trained_adapter(base, dir / kind, {named});
    const std::vector<Tokens> expected = written_by_generator(adapter);
    EXPECT_NE(expected, without) << kind;
    for (const RunSettings& layout : std::string(kind) == "lora" ? layouts : std::vector<RunSettings>{RunSettings{}}) {
      RunSettings all{named, "adapter.path=" + adapter.string()};
      all.insert(all.end(), layout.begin(), layout.end());
      EXPECT_EQ(written_by_run(base, all), expected) << fmt::format("{}", fmt::join(all, " "));
    }
  }
}

// Behind a prompt, and behind each of two tokens that follow.
std::vector<double> logits_of_writer(TextFeeder& model, const Tokens& prompt) {
  std::vector<double> all;
  for (const Tokens& ids : {prompt, Tokens{5}, Tokens{11}}) {
    const std::vector<TextFeeder::More> more{{.text = 0, .ids = ids}};
    const auto logits = model.feed(more);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  model.end(0);
  return all;
}

double distance_of_writers(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double squares = 0, of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(a[i] - b[i], 2), of_b += b[i] * b[i];
  return std::sqrt(squares / of_b);
}

// With weights as layers read them, not with the masters. The likeliest token may be another where two are nearly as
// likely: sums of passes of other lengths are rounded otherwise.
TEST(RunWriter, InBf16ItHasTheLogitsThatTheCheckpointHas) {
  const fs::path folder = model_of_writer("llama3-rope-tied");
  const Machine of_generators = machine_of_writer();
  const Tokens prompt = prompts_of_writer()[0];
  const auto generated = [&](Precision precision) {
    TextGenerator generator = generator_for(folder, of_generators, prompt, precision);
    return logits_of_writer(generator, prompt);
  };
  const std::vector<double> alike = generated(kBf16), exact = generated(kF32);
  for (const RunSettings& layout : {RunSettings{}, RunSettings{"parallel.dp=2", "parallel.zero_stage=3"}}) {
    RunSettings all{"train.precision=bf16"};
    all.insert(all.end(), layout.begin(), layout.end());
    const Recipe r = recipe_of_writer(folder, all);
    const Machine machine = machine_for(r);
    run_on_threads(mesh_sizes_of(r), *machine.mover, [&](const ProcessMesh& mesh) {
      RankRun rank(plan_run(r, *machine.workspace_model, mesh.world->rank()), machine, mesh);
      begin_weights(r, rank.plan.model, rank.state.params, rank.backend, 1);
      RunWriter writer(rank, machine.memory);
      const std::vector<double> here = logits_of_writer(writer, prompt);
      const double near = distance_of_writers(here, alike), far = distance_of_writers(here, exact);
      EXPECT_LT(near, 0.02) << "eight bits, some roundings one behind the other";
      EXPECT_LT(near, far) << "it computes with other weights";
      EXPECT_LE(writer.bytes_taken(), rank.plan.memory.writing);
    });
  }
}

// Between two texts the weights may change: they are read where the run keeps them now.
TEST(RunWriter, WritesByTheWeightsAsTheyAreThen) {
  for (const RunSettings& layout :
       {RunSettings{"train.precision=bf16"}, RunSettings{"parallel.dp=2", "parallel.zero_stage=3"}}) {
    const Recipe first = recipe_of_writer(model_of_writer("llama3-rope-tied"), layout);
    Recipe later = first;
    later.model.init = InitChoice::random;
    later.train.seed = 7;
    const Machine machine = machine_for(first);
    const MeshSizes sizes = mesh_sizes_of(first);
    run_on_threads(sizes, *machine.mover, [&](const ProcessMesh& mesh) {
      const auto begin = [&](RankRun& rank, const Recipe& r) {
        begin_weights(r, rank.plan.model, rank.state.params, rank.backend, 1);
      };
      const int place = mesh.world->rank();
      RankRun rank(plan_run(first, *machine.workspace_model, place), machine, mesh);
      begin(rank, first);
      RunWriter writer(rank, machine.memory);
      const std::vector<Tokens> before = texts_of_writer(writer, sizes);
      begin(rank, later);
      const std::vector<Tokens> behind = texts_of_writer(writer, sizes);
      RankRun other(plan_run(first, *machine.workspace_model, place), machine, mesh);
      begin(other, later);
      RunWriter of_other(other, machine.memory);
      EXPECT_EQ(behind, texts_of_writer(of_other, sizes)) << fmt::format("{}", fmt::join(layout, " "));
      EXPECT_NE(behind, before);
    });
  }
}

// Stages of a pipeline keep other blocks' keys; every rank of ZeRO keeps all of its texts'.
TEST(RunWriter, IsInThePlanOfEveryRank) {
  const auto plans = [](const RunSettings& more) {
    const Recipe r = recipe_of_writer(model_of_writer("llama3-rope-tied"), more);
    return plan_layout(r, *machine_for(r).workspace_model);
  };
  const LayoutPlan with = plans({"parallel.pp=2"}), more = plans({"parallel.pp=2", "train.micro_batch_size=4"}),
                   without = plans({"parallel.pp=2", "eval.tasks=[\"piqa=piqa.jsonl\"]"});
  ASSERT_EQ(with.classes.size(), more.classes.size());
  // Keys and values of two more texts of two pages each, in the two blocks of a stage: f32, 4 heads of 8.
  for (size_t i = 0; i < with.classes.size(); ++i)
    EXPECT_GE(more.classes[i].plan.writing - with.classes[i].plan.writing, 2 * 2 * 2 * (2 * 64) * (4 * 8) * 4);
  for (const RankClass& c : without.classes) EXPECT_EQ(c.plan.writing, 0);
}

}  // namespace
}  // namespace weft
