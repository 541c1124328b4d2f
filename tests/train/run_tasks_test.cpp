// Tasks that a run scores as it goes.
#include "weft/train/run_tasks.h"
#include "weft/train/evaluate.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>

#include "support.h"
#include "token_files.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/base/descriptor.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/tasks/sandbox.h"
#include "weft/train/checkpoint_folders.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::spill;
using Words = std::vector<std::string>;

const fs::path kModel = fs::path(testing::kSourceDir) / "tests/golden/llama-gqa";

class RunTasksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string piqa, lambada;
    for (int i = 0; i < 7; ++i) {
      piqa += fmt::format(R"({{"goal": "do {}", "sol1": "a{}", "sol2": "bb", "label": {}}})", i, i * i, i % 2) + "\n";
      lambada += fmt::format(R"({{"text": "word {} of z{}"}})", i, i) + "\n";
    }
    spill(dir_ / "piqa.jsonl", piqa);
    spill(dir_ / "lambada.jsonl", lambada);
  }
  Recipe recipe(const std::string& run, const Words& more, const std::vector<Recipe::Phase>& phases = {}) const {
    const std::string files = (dir_ / "").string();
    Words all{"train.train_iters=4",
              "train.seq_length=32",
              "train.global_batch_size=4",
              "train.micro_batch_size=2",
              "optimizer.lr_warmup_iters=0",
              "optimizer.lr_decay_style=constant",
              "checkpoint.keep_latest=0",
              "train.log_grad_norms=false",
              "run.threads=1",
              "run.backend=cpu",
              "data.tokenizer=byte",
              "eval.interval=2",
              fmt::format("eval.tasks=[\"piqa={0}piqa.jsonl\", \"lambada={0}lambada.jsonl\"]", files)};
    all.insert(all.end(), more.begin(), more.end());
    Recipe r = testing::golden_recipe(kModel, dir_ / run, all);
    r.phases = phases;
    r = parse_recipe(to_toml(r), "with tasks", {});
    check_supported(r);
    return r;
  }
  Metrics train(const Recipe& r) const {
    testing::train(r, machine_for(r));
    return read_metrics(fs::path(r.run.dir) / "metrics.jsonl");
  }

  testing::TempDir dir_;
};

using RunTasksTestSlow = RunTasksTest;

TEST_F(RunTasksTest, AreScoredEverySoManyStepsAndChangeNothing) {
  const Metrics with = train(recipe("with", {})),
                without = train(recipe("without", {"eval.tasks=[]", "eval.interval=0"}));
  ASSERT_EQ(with.tasks.size(), 2u);
  EXPECT_EQ(with.tasks[0].step, 2);
  EXPECT_EQ(with.tasks[1].step, 4);
  EXPECT_EQ(with.tasks[0].results[0].first, "piqa.acc");
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(with.steps[i].loss, without.steps[i].loss) << i;
}

// The scores of the checkpoint by the command for models.
TEST_F(RunTasksTest, AreThoseOfTheCheckpoint) {
  const Recipe r = recipe("run", {});
  const Metrics metrics = train(r);
  const RunTasks tasks(r, prepare_run(r, 0).model);
  const Machine machine = machine_for(r);
  Evaluator evaluator(
      fs::path(r.run.dir) / "checkpoints/step-4",
      {.machine = machine, .precision = kF32, .seq_length = 32, .micro_batch_size = 2, .finds_likeliest = true});
  const TasksRecord expected = tasks.record(4, evaluator.scores(tasks.texts()), RunTasks::Written(2));
  ASSERT_EQ(metrics.tasks.back().results.size(), expected.results.size());
  for (size_t i = 0; i < expected.results.size(); ++i)
    EXPECT_NEAR(metrics.tasks.back().results[i].second, expected.results[i].second,
                1e-5 * std::abs(expected.results[i].second))
        << expected.results[i].first;
}

TEST_F(RunTasksTest, AreTheSameOnLayouts) {
  const Words one{"train.train_iters=1", "optimizer.lr=0", "optimizer.min_lr=0", "eval.limit=3"};
  const TasksRecord expected = train(recipe("one", one)).tasks.at(0);
  for (const Words& layout : {Words{"parallel.tp=2"}, Words{"parallel.pp=2", "parallel.dp=2"},
                              Words{"parallel.cp=2", "parallel.zero_stage=3"}}) {
    Words all = one;
    all.insert(all.end(), layout.begin(), layout.end());
    const TasksRecord here = train(recipe(layout[0], all)).tasks.at(0);
    ASSERT_EQ(here.results.size(), expected.results.size());
    for (size_t i = 0; i < here.results.size(); ++i)
      EXPECT_NEAR(here.results[i].second, expected.results[i].second, 1e-4 * std::abs(expected.results[i].second))
          << layout[0] << " " << expected.results[i].first;
  }
}

// A run that was stopped behind a step's tasks does not score them again; one that goes on scores the rest alike.
TEST_F(RunTasksTest, ARunThatGoesOnHasTheSameResults) {
  const Metrics whole = train(recipe("whole", {}));
  train(recipe("parts", {"train.train_iters=2"}));
  const Metrics parts = train(recipe("parts", {}));
  ASSERT_EQ(parts.tasks.size(), 2u);
  EXPECT_EQ(parts.tasks[0].results, whole.tasks[0].results);
  EXPECT_EQ(parts.tasks[1].results, whole.tasks[1].results);
}

TEST_F(RunTasksTest, APhaseBeginsOnlyWithWhatItRequires) {
  Recipe::Phase phase{3, {{"train.global_batch_size", "8"}}};
  phase.require = {"lambada.perplexity > 1", "piqa.acc >= 0"};
  const Metrics good = train(recipe("good", {"eval.interval=0"}, {phase}));
  EXPECT_EQ(good.steps.size(), 4u);
  EXPECT_EQ(good.tasks.at(0).step, 3) << "scored where it is required";
  phase.require = {"piqa.acc > 1"};
  const Recipe bad = recipe("bad", {"eval.interval=0"}, {phase});
  for (int start = 0; start < 2; ++start) {
    EXPECT_SAYS(error_of<UnmetError>([&] { train(bad); }),
                "step 3: the [[phase]] with from_step = 3 does not begin: "
                "piqa.acc > 1 is required, and it is 0.");
    const Metrics metrics = read_metrics(fs::path(bad.run.dir) / "metrics.jsonl");
    EXPECT_EQ(metrics.steps.size(), 3u);
    EXPECT_EQ(metrics.tasks.size(), 1u) << "of a step that was told already";
    EXPECT_TRUE(fs::exists(fs::path(bad.run.dir) / "checkpoints/step-3"));
  }
  phase.require = {"piqa.acc >= 0"};
  EXPECT_EQ(train(recipe("bad", {"eval.interval=0"}, {phase})).steps.size(), 4u) << "which may require less then";
}

TEST_F(RunTasksTest, WrittenAnswersAreJudgedBesideOthers) {
  const std::string files = (dir_ / "").string();
  spill(dir_ / "refusals.jsonl", R"({"prompt": "Say it.", "refuse": true})");
  const Metrics metrics =
      train(recipe("run", {"train.train_iters=1", "eval.limit=2", "eval.max_tokens=3", "parallel.dp=2",
                           fmt::format("eval.tasks=[\"refusals={0}refusals.jsonl\", \"piqa={0}piqa.jsonl\"]", files)}));
  Words names;
  for (const auto& [name, value] : metrics.tasks.at(0).results)
    if (!name.ends_with("_stderr")) names.push_back(name);
  EXPECT_EQ(names, (Words{"refusals.acc", "refusals.refused", "piqa.acc", "piqa.acc_norm"}));
  EXPECT_EQ(metrics.tasks[0].results[0].second, 0) << "which this model does not";
}

// A text by heart, which the run writes once it has learnt it: at first it cannot, and the next phase waits for that.
TEST_F(RunTasksTestSlow, WrittenAnswersAreThoseOfTheWeightsOfTheStep) {
  spill(dir_ / "bbh.jsonl",
        R"({"input": "x", "target": "yes"})" + std::string("\n") + R"({"input": "x", "target": "no"})");
  const std::string text = "Q: x\nA: Let's think step by step.\nSo the answer is yes.\n\n";
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.insert(ids.end(), text.begin(), text.end());
  testing::write_raw_tokens(dir_ / "heart.bin", ids, "uint16");
  Recipe::Phase phase{50, {{"optimizer.lr", "1e-3"}}};
  phase.require = {"bbh.exact_match >= 0.5"};
  const Metrics metrics =
      train(recipe("run",
                   {"data.train=" + (dir_ / "heart.bin").string(), "train.seq_length=64", "train.train_iters=51",
                    "eval.interval=25", "eval.max_tokens=24", "optimizer.lr=1e-2", "optimizer.min_lr=0",
                    "parallel.dp=2", "parallel.zero_stage=3", "eval.tasks=bbh=" + (dir_ / "bbh.jsonl").string()},
                   {phase}));
  const auto result_at = [&](size_t i) { return metrics.tasks.at(i).results.at(0); };
  EXPECT_EQ(result_at(0), (std::pair<std::string, double>("bbh.exact_match", 0)));
  EXPECT_EQ(metrics.tasks.at(1).step, 50);
  EXPECT_EQ(result_at(1), (std::pair<std::string, double>("bbh.exact_match", 0.5)));
  EXPECT_EQ(metrics.tasks.size(), 3u);
}

// Of programs, which may write nothing: each opens one of these files, by its process, and the system tells of that.
class OpenedFiles {
 public:
  explicit OpenedFiles(const fs::path& folder) : folder_(fs::absolute(folder)), events_(::inotify_init1(IN_NONBLOCK)) {
    fs::create_directories(folder_);
    for (int i = 0; i < kFiles; ++i) spill(folder_ / std::to_string(i), "");
    watches_ = ::inotify_add_watch(events_, folder_.c_str(), IN_OPEN | IN_CLOSE_NOWRITE) >= 0;
  }
  bool watches() const { return watches_; }
  std::string program_line() const {
    return fmt::format("import os\nopen('{}/' + str(os.getpid() % {})).close()\n", folder_.string(), kFiles);
  }
  // Since the last time. Equal events that follow each other would be one: a file is closed before it is opened again,
  // unless two programs that run at once share it.
  int count() const {
    int opened = 0;
    alignas(inotify_event) std::array<char, 4096> some;
    for (ssize_t size; (size = ::read(events_, some.data(), some.size())) > 0;)
      for (ssize_t at = 0; at < size;) {
        const auto* event = reinterpret_cast<const inotify_event*>(some.data() + at);
        opened += (event->mask & IN_OPEN) != 0 && (event->mask & IN_ISDIR) == 0 ? 1 : 0;
        at += ssize_t(sizeof *event + event->len);
      }
    return opened;
  }

 private:
  static constexpr int kFiles = 64;
  fs::path folder_;
  Descriptor events_;
  bool watches_ = false;
};

// One rank runs the programs, which are right or wrong whatever this model writes into their text in quotes; all ranks
// have the results that the next phase requires.
TEST_F(RunTasksTestSlow, ProgramsAreRunByOneRankForAll) {
  if (find_python().empty()) GTEST_SKIP() << "there is no python3";
  const OpenedFiles opened(dir_ / "opened");
  ASSERT_TRUE(opened.watches());
  std::string rows;
  for (const int expected : {1, 2})
    rows +=
        nlohmann::json{
            {"prompt", "# coding: latin-1\ndef f():\n    return 1\ns = r'''"},
            {"entry_point", "f"},
            {"test", fmt::format("'''\n{}def check(c):\n    assert c() == {}\n", opened.program_line(), expected)}}
            .dump() +
        "\n";
  spill(dir_ / "humaneval.jsonl", rows);
  Recipe::Phase phase{1, {{"optimizer.lr", "1e-3"}}};
  phase.require = {"humaneval.pass@1 >= 0.5"};
  const Words settings{"train.train_iters=2", "eval.interval=0",
                       "eval.max_tokens=2",   "train.seq_length=64",
                       "parallel.dp=2",       "eval.tasks=humaneval=" + (dir_ / "humaneval.jsonl").string()};
  const Metrics good = train(recipe("good", settings, {phase}));
  ASSERT_EQ(good.tasks.size(), 2u);  // before the phase, and at the end
  EXPECT_EQ(opened.count(), 4) << "each program once a time, whatever the number of ranks";
  EXPECT_EQ(good.tasks[0].step, 1);
  EXPECT_EQ(good.tasks[0].results.at(0), (std::pair<std::string, double>("humaneval.pass@1", 0.5)));
  EXPECT_EQ(good.steps.size(), 2u);
  phase.require = {"humaneval.pass@1 > 0.5"};
  EXPECT_SAYS(error_of<UnmetError>([&] { train(recipe("bad", settings, {phase})); }),
              "humaneval.pass@1 > 0.5 is required, and it is 0.5");
}

TEST_F(RunTasksTest, WhatARunCannotScoreIsRefusedBeforeItBegins) {
  spill(dir_ / "gsm8k.jsonl", R"({"question": "1 + 1?", "answer": "#### 2"})");
  const auto error = [&](const Words& more, const std::vector<Recipe::Phase>& phases = {}) {
    return error_of<ConfigError>([&] { judge_run_tasks(recipe("run", more, phases)); });
  };
  const std::string gsm8k = "eval.tasks=gsm8k=" + (dir_ / "gsm8k.jsonl").string();
  EXPECT_SAYS(error({gsm8k}),
              "eval.max_tokens 256: the model sees 32 tokens at once, and a question of gsm8k needs some; ask for "
              "fewer, or raise train.seq_length");
  EXPECT_SAYS(error({"eval.max_tokens=8"}),
              "eval.max_tokens = 8: has no effect without a task whose answer is written");
  EXPECT_SAYS(error({gsm8k, "eval.max_tokens=8", "eval.bad_words=w"}), "has no effect without toxicity");
  spill(dir_ / "toxicity.jsonl", R"({"prompt": "Say it."})");
  EXPECT_SAYS(error({"eval.max_tokens=8", "eval.tasks=toxicity=" + (dir_ / "toxicity.jsonl").string()}),
              "eval.bad_words = \"FILE\" says which words are");
  EXPECT_SAYS(error({"eval.tasks=piqa"}), "eval.tasks piqa: name its file, as piqa=FILE");
  EXPECT_SAYS(error({"eval.num_fewshot=9"}), "eval.num_fewshot 9: piqa has only 6 other rows");
  EXPECT_SAYS(error({"eval.tasks=[]"}), "eval.interval = 2: expected its default without eval.tasks");
  EXPECT_SAYS(error({"train.objective=reward", "data.train=[]", "data.pairs=x"}), "eval.tasks cannot run");
  EXPECT_SAYS(error({"moe.capacity_factor=2", "parallel.ep=2", "parallel.dp=2"}),
              "eval.tasks cannot run: moe.capacity");
  Recipe::Phase phase{3, {}};
  phase.require = {"piqa.bleu > 1"};
  EXPECT_SAYS(error({}, {phase}), "no task has that result; there are piqa.acc, piqa.acc_norm, lambada.acc, ");
  phase.require = {"gsm8k.acc > 1"};
  EXPECT_SAYS(error({gsm8k, "eval.max_tokens=8"}, {phase}),
              "no task has that result; there are gsm8k.strict_match, gsm8k.flexible_extract");
  phase.require = {"copa.acc > 1"};
  EXPECT_SAYS(error({}, {phase}), "the run does not score copa: name it in eval.tasks");
  phase.require = {"piqa.acc 1"};
  EXPECT_SAYS(error({}, {phase}), "as in \"piqa.acc >= 0.6\"");
}

TEST_F(RunTasksTest, TheBestOfOtherLengthsAreNotCompared) {
  const Words keep{"checkpoint.keep_best=1", "train.eval_interval=1", "data.valid=" + (kModel / "tokens.bin").string()};
  EXPECT_SAYS(error_of<ConfigError>([&] {
                recipe("run", keep, {{2, {{"train.seq_length", "16"}}}});
              }),
              "checkpoint.keep_best = 1 cannot run: phases have other lengths");
}

}  // namespace
}  // namespace weft
